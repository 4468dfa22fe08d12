"""`trainhouse audit list|verify`: who asked what, and whether the archive of that is whole.

Holds: a proof reads every object and changes nothing.
"""

from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import DataDir, Json, KafkaDir, Limit, Since, User

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trainhouse.events.archive.chain import Proved
    from trainhouse.events.archive.part import Part

Place = tuple[str, int]
TIMES = "90s, 15m, 2h, 3d, or 2026-05-01T12:00"
LISTED = ("at", "user", "kind", "count", "action", "resource", "outcome", "reason", "address", "rows", "bytes")
DROP = ("address", "bytes", "rows", "count", "kind", "reason")
PROVED = ("topic", "partition", "from", "to", "objects", "records", "compared with the topic", "first", "last", "seal")


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(
        no_args_is_help=True, help="List and verify the audit: every access to the gateway and to nodes, allowed or refused."
    )
    group.command("list")(list_rows)
    group.command()(verify)
    app.add_typer(group, name="audit")


def list_rows(user: User = None, since: Since = None, limit: Limit = 100, json: Json = False, data_dir: DataDir = None) -> None:
    """List audited requests: user, action, address and outcome; the newest last.

    \b
    trainhouse audit list --user ana --since 2h
    """
    import time

    from trainhouse.cli.shared import output
    from trainhouse.cli.shared.filters import parse_time
    from trainhouse.client.quick.quick_reads import sql_of_settings

    since_ms = parse_time(since, time.time_ns() // 1_000_000) if since else 0
    sql = (
        f"SELECT {', '.join(LISTED)} FROM audit WHERE at >= fromUnixTimestamp64Milli({{since_ms:Int64}}, 'UTC') "
        "AND ({user:String} = '' OR user = {user:String}) ORDER BY at DESC, event_id LIMIT {most:UInt32}"
    )
    found = sql_of_settings().table(sql, {"since_ms": since_ms, "user": user or "", "most": limit}).dicts()[::-1]
    if json:
        output.json_lines(found)
        return
    output.table(
        LISTED, ([None if row[c] is None else str(row[c]) for c in LISTED] for row in found), right=("count", "rows", "bytes"), drop=DROP
    )


def verify(
    seal: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--seal", metavar="[TOPIC/]PARTITION=SEAL", help="A seal that an earlier proof printed: it must still be in the chain."
        ),
    ] = None,
    from_: Annotated[Optional[str], typer.Option("--from", metavar="TIME", help=f"Only what has records from then on: {TIMES}.")] = None,  # noqa: UP045
    to: Annotated[Optional[str], typer.Option("--to", metavar="TIME", help="Only what has records before then.")] = None,  # noqa: UP045
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Prove that the archive of the audit is whole: each object names the one before it, and the topic agrees as far as it goes.

    \b
    trainhouse archive && trainhouse audit verify
    trainhouse audit verify --seal 0=9f86d0…
        also that the chain of before was not written anew
    trainhouse audit verify --seal trainhouse.node-audit/0=9f86d0…
    trainhouse audit verify --from 2026-05-01 --to 2026-06-01
        a part, also where another part is damaged

    Note the seals that it prints where nobody who can write to the object store can: they prove what was there until then.
    """
    from trainhouse.cli.shared import output
    from trainhouse.events.archive.errors import ArchiveError

    output.logs_aside()
    span = _span(from_, to)
    try:
        found = _proofs(_seals(seal or []), span)
    except ArchiveError as error:
        raise CliError(f"the archive of the audit is not whole: {error}", Exit.FAILED) from error
    rows = [_row(topic, partition, part.proved) for topic, partition, part in found if part.proved is not None]
    if span is not None:
        for line in _words(found, span):
            output.remark(line)
    if not rows:
        raise CliError("nothing is proved: no record of the audit's archive is of this time", Exit.NOT_FOUND)
    if json:
        output.json_lines(rows)
        return
    output.table(PROVED, ([None if value is None else str(value) for value in row.values()] for row in rows), right=PROVED[1:7])


def _span(from_: str | None, to: str | None) -> tuple[int, int] | None:
    """The time that is to be proved; None for all. Raises CliError."""
    import time

    from trainhouse.cli.shared.filters import parse_time

    if from_ is None and to is None:
        return None
    now_ms = time.time_ns() // 1_000_000
    span = (parse_time(from_, now_ms) if from_ else 0, parse_time(to, now_ms) if to else now_ms + 1)
    if span[0] >= span[1]:
        raise CliError(f"--from {from_ or 'the beginning'} is not before --to {to or 'now'}", Exit.USAGE)
    return span


def _words(found: "Sequence[tuple[str, int, Part]]", span: tuple[int, int]) -> "Iterator[str]":
    """Yields the problems of parts: those without a record of the time, and objects that could not be read."""
    for topic, partition, part in found:
        if part.proved is None:
            has = "nothing yet" if part.first_ms is None else f"records from {_time(part.first_ms)} to {_time(part.last_ms or 0)}"
            yield (
                f"{topic}-{partition}: no record is of {_time(span[0])} to {_time(span[1])}; its archive has {has}, "
                "and `trainhouse archive` takes what is newer"
            )
        if part.unread:
            yield f"{topic}-{partition}: {part.unread} objects outside the part cannot be read; they may have held records of this time"


def _proofs(noted: dict[Place, list[str]], span: tuple[int, int] | None) -> "list[tuple[str, int, Part]]":
    """Of each partition. Blocks. Raises ArchiveCorruptError, ChainBrokenError."""
    from trainhouse.checkpointing.stores.topic_archive import ObjectArchive
    from trainhouse.events.archive.chain import verify as proof
    from trainhouse.events.archive.log import KafkaPartition, journal_reader
    from trainhouse.events.archive.part import Part, verify_part
    from trainhouse.events.archive.partition import PartitionArchive
    from trainhouse.events.archive.reading import RECORDED
    from trainhouse.events.bus.admin import topic_id
    from trainhouse.events.bus.kafka import partitions_of
    from trainhouse.events.settings import KafkaSettings

    kafka, store = KafkaSettings(), ObjectArchive()
    reader = journal_reader(kafka)
    try:
        places = [(topic, n) for topic in RECORDED for n in partitions_of(reader, topic)]
        if unknown := set(noted) - set(places):
            topic, partition = min(unknown)
            raise CliError(f"--seal: the audit has no partition {partition} of {topic}", Exit.USAGE)
        ids = {topic: topic_id(kafka, topic) for topic in RECORDED}
        found = []
        for at in places:
            archive, log = PartitionArchive(store, at[0], ids[at[0]], at[1]), KafkaPartition(kafka, reader, *at)
            if span is not None:
                found.append((*at, verify_part(archive, *span, log, noted.get(at, ()))))
            else:
                proved = proof(archive, log, noted.get(at, ()))
                found.append((*at, Part(proved, proved.first_ms, proved.last_ms, 0)))
        return found
    finally:
        reader.close()


def _seals(given: list[str]) -> dict[Place, list[str]]:
    """Returns the recorded seals, by topic and partition. Raises CliError."""
    from trainhouse.events.wire.topics import AUDIT

    found: dict[Place, list[str]] = {}
    for one in given:
        place, _, seal = one.partition("=")
        topic, _, partition = place.rpartition("/")
        if not partition.isdecimal() or len(seal) != 64:
            raise CliError(f"--seal {one!r}: write [TOPIC/]PARTITION=SEAL, as `trainhouse audit verify` prints them", Exit.USAGE)
        found.setdefault((topic or AUDIT, int(partition)), []).append(seal)
    return found


def _row(topic: str, partition: int, proved: "Proved") -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": partition,
        "from": proved.first,
        "to": proved.end,
        "objects": proved.objects,
        "records": proved.records,
        "compared": proved.compared,
        "first": None if proved.first_ms is None else _time(proved.first_ms),
        "last": None if proved.last_ms is None else _time(proved.last_ms),
        "seal": proved.seal,
    }


def _time(at_ms: int) -> str:
    """A record's time; its writer said it, so it may be of no year that there is."""
    from trainhouse.events.model.written_times import rfc3339

    try:
        return rfc3339(at_ms)
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms since 1970"
