"""`archive`: the topics that never expire, and the audit, go to the object store, and what is safe there may go from the brokers.

Holds: once means up to the topics' ends; with `--follow` it does so again and again, and what passes by itself (brokers or store away) it
waits out. Killed at any instant, or run twice at once, nothing is lost or doubled: the next run goes on.
Never: trims what the schedulers or the projector still need, or what was not read back from the archive and compared.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import Json, KafkaDir

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from trainhouse.events.archive.log import PartitionLog
    from trainhouse.events.archive.partition import PartitionArchive
    from trainhouse.events.archive.writing import Archived
    from trainhouse.events.settings import KafkaSettings

    Place = tuple[PartitionLog, PartitionArchive]

Needed = Callable[[str, int], int]
COLUMNS = ("topic", "partition", "archived to", "records", "objects", "topic begins at")


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("archive")(archive)


def archive(
    follow: Annotated[bool, typer.Option("--follow", help="Go on until SIGTERM, as a service.")] = False,
    every_s: Annotated[float, typer.Option("--every", min=1, help="With --follow: seconds between two runs, a tenth more or less.")] = 600,
    trim: Annotated[bool, typer.Option("--trim", help="Then delete from the topics what is archived and nobody needs there.")] = False,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Copy the journals (decisions, directory, admission, registry) to the object store, from where replay and rebuilds read what topics
    lack. The audit too, as a chain that `trainhouse audit verify` proves whole; it expires from its topic by itself.

    \b
    trainhouse archive                               up to the topics' ends
    trainhouse archive --trim --json                 and free the brokers' disks
    trainhouse archive --follow --every 600 --trim
        as a service; any number of them may run

    Trimmed is only what lies before the last three snapshots of its journal and before what the projector has read.
    """
    from trainhouse.cli.shared import output
    from trainhouse.events.archive.log import journal_reader
    from trainhouse.events.settings import KafkaSettings

    output.logs_aside()
    kafka = KafkaSettings()
    reader = journal_reader(kafka)
    try:
        if follow:
            _follow(kafka, reader, every_s, trim=trim, json=json)
            return
        with _sentences():
            _show(_run(kafka, _places(kafka, reader), trim=trim), json)
    finally:
        reader.close()


def _follow(kafka: "KafkaSettings", reader: "Consumer", every_s: float, *, trim: bool, json: bool) -> None:
    from trainhouse.checkpointing.errors import ObjectStoreUnavailableError
    from trainhouse.cli.shared.repeat import again_and_again
    from trainhouse.events.model.errors import BusUnavailableError
    from trainhouse.projections.errors import ClickHouseRequestError

    places: list[Place] = []

    def work() -> None:
        if not places:
            places.extend(_places(kafka, reader))
        _show([row for row in _run(kafka, places, trim=trim) if row["records"]], json)

    passing = (BusUnavailableError, ObjectStoreUnavailableError, ClickHouseRequestError)
    again_and_again("archive", every_s, work, passing, "When all was archived last, in seconds since 1970")


def _places(kafka: "KafkaSettings", reader: "Consumer") -> "list[Place]":
    """Every partition of the topics that are archived, with its archive. Blocks."""
    from trainhouse.checkpointing.stores.topic_archive import ObjectArchive
    from trainhouse.events.archive.log import KafkaPartition
    from trainhouse.events.archive.partition import PartitionArchive
    from trainhouse.events.archive.reading import ARCHIVED, RECORDED
    from trainhouse.events.bus.admin import topic_id
    from trainhouse.events.bus.kafka import partitions_of

    store = ObjectArchive()
    return [
        (KafkaPartition(kafka, reader, topic, partition), PartitionArchive(store, topic, of_topic, partition))
        for topic, of_topic in ((topic, topic_id(kafka, topic)) for topic in (*ARCHIVED, *RECORDED))
        for partition in partitions_of(reader, topic)
    ]


def _run(kafka: "KafkaSettings", places: "list[Place]", *, trim: bool) -> list[dict[str, Any]]:
    """Archives all up to the ends as of now, then trims; a row a partition. Blocks."""
    from trainhouse.events.archive.reading import RECORDED
    from trainhouse.events.archive.trimming import trim as trim_topic
    from trainhouse.events.archive.writing import archive_partition

    done = [archive_partition(log, archive, expires=archive.topic in RECORDED) for log, archive in places]
    if trim:
        needed = _needed(kafka)
        begins = [
            log.bounds()[0] if archive.topic in RECORDED else trim_topic(log, archive, needed(archive.topic, archive.partition))
            for log, archive in places
        ]
    else:
        begins = [log.bounds()[0] for log, _ in places]
    return [_row(archive, did, at) for (_, archive), did, at in zip(places, done, begins, strict=True)]


def _row(archive: "PartitionArchive", done: "Archived", begins_at: int) -> dict[str, Any]:
    return {
        "topic": archive.topic,
        "partition": archive.partition,
        "archived_to": done.end,
        "records": done.records,
        "objects": done.objects,
        "topic_begins_at": begins_at,
    }


def _needed(kafka: "KafkaSettings") -> Needed:
    """The first offset of a topic partition that somebody still reads from the topic. Blocks on the brokers, the store, ClickHouse."""
    from trainhouse.checkpointing.settings import StoreSettings
    from trainhouse.checkpointing.stores.s3 import S3ObjectStore
    from trainhouse.client.kafka.snapshots import ObjectSnapshots
    from trainhouse.projections.ingest.trim_bounds import needed_by_lanes
    from trainhouse.projections.settings import ClickHouseSettings
    from trainhouse.projections.store.clickhouse import connect_server
    from trainhouse.scheduler.stream.history.trim_bounds import needed_by_recovery

    recovery = needed_by_recovery(kafka, ObjectSnapshots(S3ObjectStore(StoreSettings())))
    clickhouse = connect_server(ClickHouseSettings())
    try:
        lanes = needed_by_lanes(clickhouse)
    finally:
        clickhouse.close()

    def needed(topic: str, partition: int) -> int:
        read = lanes.get(topic)
        by_recovery = recovery.get((topic, partition), 0)
        return by_recovery if read is None else min(by_recovery, read.get(partition, 0))

    return needed


@contextmanager
def _sentences() -> Iterator[None]:
    from trainhouse.projections.errors import ProjectionError

    try:
        yield
    except ProjectionError as error:
        raise CliError(f"nothing was trimmed: how far the projector has read is not known: {error}", Exit.UNAVAILABLE) from error


def _show(rows: list[dict[str, Any]], json: bool) -> None:
    import sys

    from trainhouse.cli.shared import output

    if json:
        output.json_lines(rows)
    elif rows:
        output.table(COLUMNS, [tuple(row.values()) for row in rows], right=COLUMNS[1:])
    sys.stdout.flush()
