"""`upgrade`: what of the control plane runs at which version, and the end of an update.

Holds: an update is finished only at a level that everything that runs reads and writes; what is written names who and why.
Never: goes back to a lower level.
"""

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import Json, KafkaDir

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainhouse.events.settings import KafkaSettings
    from trainhouse.scheduler.core.protocol.machine import Machine
    from trainhouse.scheduler.upgrades import JournalUpgrade

SOURCE = "trainhouse/upgrade"
WAIT_S = 60.0
LOOK_EVERY_S = 0.5


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(no_args_is_help=True, help="Show and finish updates of the control plane.")
    group.command("status")(status)
    group.command("finish")(finish)
    app.add_typer(group, name="upgrade")


def status(json: Json = False, data_dir: KafkaDir = None) -> None:
    """Show the programs that run, the level that each journal is written at, and whether an update can be finished.

    \b
    trainhouse upgrade status
    trainhouse upgrade status --json | jq 'select(.kind == "program")'
    """
    from trainhouse.client.quick.quick_reads import by_topics_or
    from trainhouse.client.quick.quick_upgrades import upgrades_of

    found = by_topics_or(upgrades_of, lambda: _read(*_journals()))
    if json:
        from trainhouse.cli.shared import output

        output.json_lines(row for one in found for row in _rows(one))
        return
    for one in found:
        sys.stdout.write(f"{one.journal}: {_levels(one)}; {one.state()}\n")
    _programs(found)
    if any(one.can_finish for one in found):
        sys.stdout.write('trainhouse upgrade finish --reason "..."\n')


def finish(
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it is kept with your name, in every partition.")],
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """End an update: from now on records and snapshots are written in the new formats, and the version before cannot come back.

    \b
    trainhouse upgrade finish --reason "0.2.0 ran for a week"
    """
    if not reason.strip():
        raise CliError("say why the update is finished: --reason TEXT", Exit.USAGE)
    kafka, machines = _journals()
    before = _read(kafka, machines)
    for one in before:
        if one.silent or (one.behind and not one.can_finish):
            raise CliError(f"{one.journal}: {one.state()}; nothing was written", Exit.REJECTED)
    targets = {one.journal: one.reachable for one in before if one.can_finish}
    for journal, level in targets.items():
        _send(kafka, journal, level, reason.strip())
    after = _wait(kafka, machines, targets)
    _print_levels(after, targets, json=json)


def _journals() -> "tuple[KafkaSettings, Mapping[str, Machine[Any]]]":
    from trainhouse.cli.shared import output
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.scheduler.stream.history.journal_replay import machines

    output.logs_aside()
    return KafkaSettings(), machines(KafkaSettings())


def _read(kafka: "KafkaSettings", machines: "Mapping[str, Machine[Any]]") -> "list[JournalUpgrade]":
    from trainhouse.scheduler.stream.history.upgrade_reading import upgrades_of

    return upgrades_of(kafka, machines)


def _send(kafka: "KafkaSettings", journal: str, level: int, reason: str) -> None:
    import getpass

    from trainhouse.client.kafka.operator_events import send_event
    from trainhouse.events.model.upgrade import MAX_TEXT_CHARS, UpgradeFinished
    from trainhouse.events.runtime.clock import wall_ms
    from trainhouse.events.wire.topics import UPGRADES_FINISHED

    text = reason[:MAX_TEXT_CHARS]
    event = UpgradeFinished(journal=journal, level=level, reason=text, user=getpass.getuser(), at_ms=wall_ms())
    send_event(kafka, UPGRADES_FINISHED, event, event_id=f"upgrade:{journal}:{level}", source=SOURCE, key=event.key)


def _wait(kafka: "KafkaSettings", machines: "Mapping[str, Machine[Any]]", targets: dict[str, int]) -> "list[JournalUpgrade]":
    """Until each partition is there, or for a while."""
    until_s = time.monotonic() + WAIT_S
    while True:
        found = _read(kafka, machines)
        if not _left(found, targets) or time.monotonic() > until_s:
            return found
        time.sleep(LOOK_EVERY_S)


def _left(found: "list[JournalUpgrade]", targets: dict[str, int]) -> list[str]:
    """The partitions that are not at their journal's level yet."""
    return [f"{one.journal}-{p.partition}" for one in found for p in one.partitions if p.level < targets.get(one.journal, 0)]


def _print_levels(after: "list[JournalUpgrade]", targets: dict[str, int], *, json: bool) -> None:
    left = _left(after, targets)
    if json:
        from trainhouse.cli.shared import output

        output.json_lines(row for one in after for row in _rows(one))
    else:
        for one in after:
            done = f"finished at level {targets[one.journal]}" if one.journal in targets else one.state()
            sys.stdout.write(f"{one.journal}: {done}\n")
    if left:
        raise CliError(
            f"the update is finished, and these partitions are not at its level after {WAIT_S:g} s: {', '.join(left)}; each goes there "
            "with its owner's next record, see `trainhouse ps` and `trainhouse upgrade status`",
            Exit.FAILED,
        )


def _levels(one: "JournalUpgrade") -> str:
    levels = sorted({p.level for p in one.partitions})
    if len(levels) == 1:
        return f"level {levels[0]} in {len(one.partitions)} partitions"
    return ", ".join(f"level {level} in {sum(p.level == level for p in one.partitions)} partitions" for level in levels)


def _programs(found: "list[JournalUpgrade]") -> None:
    from trainhouse.cli.shared import output

    rows = [
        (p.journal, p.process, p.release, str(p.lowest_level), str(p.fold_version), str(p.decide_version))
        for one in found
        for p in one.programs
    ]
    output.table(("journal", "process", "release", "writes from", "reads to", "decides as"), rows)


def _rows(one: "JournalUpgrade") -> list[dict[str, Any]]:
    head = {
        "kind": "journal",
        "journal": one.journal,
        "level": one.level,
        "highest": one.highest,
        "reachable": one.reachable,
        "can_finish": one.can_finish,
        "state": one.state(),
        "unannounced": one.silent,
        "partitions": [{"partition": p.partition, "level": p.level, "owner": p.owner} for p in one.partitions],
    }
    return [head, *({"kind": "program", **p.model_dump(mode="json")} for p in one.programs)]
