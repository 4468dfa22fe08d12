"""`topics`: how many partitions each topic has, and more of them for the scheduler.

Holds: what is recorded is what counts; a grow that was cut off is finished by the same command.
Never: takes a partition away, or adds one to a topic whose records are spread by their key.
"""

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import Json, KafkaDir

if TYPE_CHECKING:
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.events.wire.partition_counts import Topology

NUMBERS = ("partitions", "recorded")
NARROW = ("topic", *NUMBERS, "key")
WIDE = (*NARROW, "carries")
# Of a pipe, and of a terminal that does not say.
COLUMNS_OF_TEXT = 80
BETWEEN_COLUMNS = 2
LEAST_KEY_CHARS = 8
Wide = Annotated[bool, typer.Option("--wide", help="Whole keys, and which events each topic carries.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]
Count = Annotated[int, typer.Option("--partitions", min=1, help="How many partitions the scheduler's topics are to have.")]


def register(app: typer.Typer) -> None:
    """Adds the group of commands about topics."""
    group = typer.Typer(invoke_without_command=True, help=show.__doc__)
    group.callback()(show)
    group.command("grow")(grow)
    app.add_typer(group, name="topics")


def show(context: typer.Context, wide: Wide = False, json: Json = False, data_dir: KafkaDir = None) -> None:
    """List topics, with how many partitions they have on the brokers and how many are recorded; exit code 1 where these differ.

    \b
    trainhouse topics
    trainhouse topics --wide                   and what each one carries
    trainhouse topics grow --partitions 6
        more partitions for the scheduler, while it works
    """
    if context.invoked_subcommand is not None:
        return
    from trainhouse.cli.shared import output
    from trainhouse.client.quick.quick_reads import by_topics_or
    from trainhouse.client.quick.quick_topology import quick_topology
    from trainhouse.events.wire.partition_counts import why_refused
    from trainhouse.events.wire.project_topics import rows_of
    from trainhouse.events.wire.topics import TOPICS

    topology, found, setting = by_topics_or(quick_topology, _topology)
    rows = [
        {"topic": t.name, "partitions": found.get(t.name), "recorded": topology.counts.get(t.name), "key": t.key, "carries": t.carries}
        for t in (*TOPICS, *rows_of(found))
    ]
    if json:
        output.json_lines(rows)
    elif wide:
        output.table(WIDE, ([row[c] for c in WIDE] for row in rows), right=NUMBERS)
    else:
        width = shutil.get_terminal_size((COLUMNS_OF_TEXT, 0)).columns if sys.stdout.isatty() else COLUMNS_OF_TEXT
        output.table(NARROW, narrow_rows(rows, width), right=NUMBERS)
    if refusal := why_refused(topology, found, setting):
        raise CliError(refusal, Exit.FAILED)


def _topology() -> "tuple[Topology, dict[str, int], int | None]":
    """As `quick_topology`, by models. Raises CliError."""
    from trainhouse.events.bus.topology_log import read_topology, setting_of
    from trainhouse.events.settings import KafkaSettings

    kafka = KafkaSettings()
    with _sentences(kafka):
        topology, found = read_topology(kafka)
    return topology, found, setting_of(kafka)


def narrow_rows(rows: Sequence[Mapping[str, Any]], width: int) -> list[list[Any]]:
    """The rows with their keys cut, so that a line of the table fits into `width`. Names of topics are never cut."""
    from trainhouse.cli.shared.output import one_line

    names = max((len(row["topic"]) for row in rows), default=0)
    taken = names + sum(len(title) + BETWEEN_COLUMNS for title in NUMBERS) + BETWEEN_COLUMNS
    most = max(LEAST_KEY_CHARS, width - taken)
    return [[row["topic"], *(row[c] for c in NUMBERS), one_line(row["key"], most)] for row in rows]


def grow(partitions: Count, dry_run: DryRun = False, json: Json = False, data_dir: KafkaDir = None) -> None:
    """Add partitions to control, progress, decisions and allocations while everything runs; pools may be made or moved there soon.

    All other topics keep their partitions: their records are spread by the hash of a key.

    \b
    trainhouse topics grow --partitions 6 --dry-run
    trainhouse topics grow --partitions 6
    trainhouse pool create vision --partition 5
    trainhouse pool move speech --to 5
    """
    from trainhouse.cli.shared import output
    from trainhouse.events.bus.admin import grow_topics
    from trainhouse.events.settings import KafkaSettings

    kafka = KafkaSettings()
    with _sentences(kafka):
        _check_level(kafka)
        plan = grow_topics(kafka, partitions, dry_run=dry_run)
        if not dry_run:
            _publish_growth(kafka, partitions)
    if json:
        output.json_lines([{"topic": t, "from": n, "to": partitions, "done": not dry_run} for t, n in plan.before.items()])
        return
    for topic, count in plan.before.items():
        verb = "would get" if dry_run else "got"
        outcome = f"has {count} partitions already" if count == partitions else f"{verb} {partitions} for {count}"
        sys.stdout.write(f"{topic} {outcome}\n")


def _check_level(kafka: "KafkaSettings") -> None:
    """Refuses before an update is finished: the version before, which may come back, knows no more partitions. Raises CliError."""
    from trainhouse.cli.stack.levels import check_levels
    from trainhouse.events.model.routing import ControlGrown
    from trainhouse.events.wire.topics import DIRECTORY
    from trainhouse.scheduler.core.intake.directory import DirectoryMachine

    needed = {DIRECTORY: DirectoryMachine.since[ControlGrown.event_type]}
    check_levels(kafka, {DIRECTORY: DirectoryMachine()}, needed, "more partitions")


def _publish_growth(kafka: "KafkaSettings", partitions: int) -> None:
    """Each part of the directory learns which partitions pools may be given. Its id makes a repeat the same event."""
    from confluent_kafka.admin import AdminClient

    from trainhouse.events import envelope_of
    from trainhouse.events.bus.kafka import ONE_SHOT, EventProducer, partitions_of
    from trainhouse.events.model.routing import ControlGrown
    from trainhouse.events.runtime.clock import wall_ms
    from trainhouse.events.wire.topics import ADMISSION

    producer = EventProducer(kafka, **ONE_SHOT, log_level=0)
    event = envelope_of(ControlGrown(partitions=partitions), id=f"control:grown:{partitions}", source="trainhouse/topics", now_ms=wall_ms())
    for number in partitions_of(AdminClient(kafka.client_config(log_level=0)), ADMISSION):
        producer.send(ADMISSION, event, partition=number)
    producer.flush()


@contextmanager
def _sentences(kafka: "KafkaSettings") -> Iterator[None]:
    from trainhouse.events.model.errors import BusUnavailableError, TopicsDifferError

    try:
        yield
    except ValueError as error:
        raise CliError(str(error), Exit.USAGE) from error
    except TopicsDifferError as error:
        raise CliError(str(error), Exit.FAILED) from error
    except BusUnavailableError as error:
        raise CliError(f"the topics on {kafka.bootstrap}: {error}", Exit.UNAVAILABLE) from error
