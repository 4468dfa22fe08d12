"""`journal repair`: shows the record of a journal that no reader can fold, and has it count as empty.

Holds: without a record and its hash nothing is written; a record that can be folded, here or by a newer version, is never emptied; what
is written names who and why.
"""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import Json, KafkaDir

if TYPE_CHECKING:
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.scheduler.core.protocol.machine import Machine
    from trainhouse.scheduler.repairs import Broken, Search

SOURCE = "trainhouse/journal-repair"
_NEWER = "written by a newer version: update this program"


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(no_args_is_help=True, help="Repair the journals of the control plane.")
    group.command("repair")(repair)
    app.add_typer(group, name="journal")


@dataclass(frozen=True)
class Place:
    """`trainhouse.decisions-2@1234`."""

    journal: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.journal}-{self.partition}@{self.offset}"


def repair(
    record: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(metavar="JOURNAL-PARTITION@OFFSET", help="The record, as the dry run names it.", show_default=False),
    ] = None,
    hash_: Annotated[str, typer.Option("--hash", metavar="SHA256", help="Its hash, as the dry run prints it.")] = "",
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why it may count as empty; it is kept with your name.")] = "",
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Fold from the first record on, and not from the newest snapshot.")
    ] = False,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Find the records of the journals that cannot be folded, and have one of them count as empty, for every reader and for ever.

    \b
    trainhouse journal repair
        a dry run: what is broken, and the command that mends it
    trainhouse journal repair trainhouse.decisions-2@1234 --hash 3fe1... \\
        --reason "written by a broken build"

    The inputs of an emptied record are decided on again; its decisions never were. Its partition goes on within seconds, without a
    restart. Update or stop schedulers of another version first: one that can fold the record would go on with another state.
    """
    from trainhouse.cli.shared import output
    from trainhouse.events.settings import KafkaSettings

    output.logs_aside()
    place = _place(record) if record is not None else None
    if place is not None and not (hash_ and reason.strip()):
        raise CliError(f"to have {place} count as empty, give its --hash (as the dry run prints it) and a --reason", Exit.USAGE)
    kafka = KafkaSettings()
    machines = _machines(kafka, place)
    if place is None:
        found = {name: _search(kafka, name, machine, from_beginning) for name, machine in machines.items()}
        _show(found, json=json)
        raise typer.Exit(Exit.FAILED if any(f.broken for f in found.values()) else Exit.OK)
    _mend(kafka, place, machines[place.journal], hash_, reason.strip(), from_beginning, json=json)


def _place(text: str) -> Place:
    where, _, offset = text.rpartition("@")
    journal, _, partition = where.rpartition("-")
    if not (journal and partition.isdecimal() and offset.isdecimal()):
        raise CliError(f"{text!r} names no record; it is written trainhouse.decisions-2@1234: journal, partition, offset", Exit.USAGE)
    return Place(journal, int(partition), int(offset))


def _machines(kafka: "KafkaSettings", place: Place | None) -> "dict[str, Machine[Any]]":
    from trainhouse.scheduler.stream.history.journal_replay import machines

    known = machines(kafka)
    if place is not None and place.journal not in known:
        raise CliError(f"{place.journal!r} is no journal; there are {', '.join(known)}", Exit.USAGE)
    return known


def _search(
    kafka: "KafkaSettings", journal: str, machine: "Machine[Any]", from_beginning: bool, emptied: frozenset[str] | None = None
) -> "Search[Any]":
    from trainhouse.checkpointing.stores.topic_archive import ObjectArchive
    from trainhouse.client.kafka.present import snapshot_store
    from trainhouse.scheduler.stream.history.journal_replay import broken_records

    store = snapshot_store()
    archive = ObjectArchive() if store is not None else None
    return broken_records(kafka, journal, machine, store=None if from_beginning else store, archive=archive, emptied=emptied)


def _mend(
    kafka: "KafkaSettings", place: Place, machine: "Machine[Any]", hash_: str, reason: str, from_beginning: bool, *, json: bool
) -> None:
    import getpass
    import time

    from trainhouse.client.kafka.operator_events import send_event
    from trainhouse.events.bus.repair_log import emptied_records
    from trainhouse.events.model.repair import MAX_TEXT_CHARS, JournalRepaired
    from trainhouse.events.wire.topics import JOURNAL_REPAIRS

    broken = _repairable(place, _search(kafka, place.journal, machine, from_beginning).broken.get(place.partition), hash_)
    event = JournalRepaired(
        journal=place.journal,
        partition=place.partition,
        offset=place.offset,
        record_hash=hash_,
        seq=broken.seq,
        error=broken.error,
        reason=reason[:MAX_TEXT_CHARS],
        user=getpass.getuser(),
        at_ms=time.time_ns() // 1_000_000,
    )
    send_event(kafka, JOURNAL_REPAIRS, event, event_id=f"repair:{place}:{hash_}", source=SOURCE, key=event.key)
    found = _search(kafka, place.journal, machine, from_beginning, emptied_records(kafka, place.journal) | {hash_})
    _show({place.journal: found}, json=json, repaired=event.model_dump(mode="json"))
    if place.partition in found.broken:
        raise typer.Exit(Exit.FAILED)


def _repairable(place: Place, broken: "Broken | None", hash_: str) -> "Broken":
    """The record, if it is the one that may count as empty. Raises CliError."""
    if broken is None or broken.offset != place.offset:
        known = f"the first that cannot is {place.journal}-{place.partition}@{broken.offset}" if broken else "its partition can be folded"
        raise CliError(f"{place} is not a record that cannot be folded: {known}; nothing was written", Exit.REJECTED)
    if broken.newer:
        raise CliError(f"{place} was {_NEWER}; nothing was written", Exit.REJECTED)
    if broken.record_hash != hash_:
        raise CliError(f"{place} has the hash {broken.record_hash}, not {hash_}; nothing was written", Exit.REJECTED)
    return broken


def _show(found: "dict[str, Search[Any]]", *, json: bool, repaired: dict[str, Any] | None = None) -> None:
    from trainhouse.cli.shared import output

    if json:
        rows = [{"kind": "repaired", **repaired}] if repaired is not None else []
        for journal, one in found.items():
            rows += [_row(journal, broken) for _, broken in sorted(one.broken.items())]
        output.json_lines(rows)
        return
    if repaired is not None:
        sys.stdout.write(f"{repaired['journal']}-{repaired['partition']}@{repaired['offset']} counts as empty from now on\n")
        sys.stdout.write("its rows, if the tables have any, go with `trainhouse projections rebuild`\n")
    for journal, one in found.items():
        for partition in sorted(one.partitions.keys() | one.broken.keys()):
            broken = one.broken.get(partition)
            if broken is None:
                sys.stdout.write(f"{journal}-{partition}: can be folded to its end, seq {one.partitions[partition].seq}\n")
            else:
                sys.stdout.write("".join(f"{line}\n" for line in _lines(journal, broken)))


def _lines(journal: str, broken: "Broken") -> list[str]:
    from trainhouse.cli.data.replay import stamp

    place = f"{journal}-{broken.partition}@{broken.offset}"
    when = f", {stamp(broken.now_ms)}" if broken.now_ms is not None else ""
    by = f" by {broken.owner}{when}" if broken.owner else ""
    lines = [f"{place}: cannot be folded, after seq {broken.folded_seq}: {broken.error[:400]}"]
    lines.append(f"  written{by}; {broken.after} records follow" if by else f"  {broken.after} records follow")
    lines.append(f"  inputs, decided on again: {_counts(broken.inputs)}")
    lines.append(f"  decisions, which would never have been: {_counts(broken.decisions)}")
    if broken.newer:
        return [*lines, f"  {_NEWER}"]
    lines.append(f'  trainhouse journal repair {place} --hash {broken.record_hash} --reason "..."')
    return lines


def _counts(kinds: dict[str, int]) -> str:
    return ", ".join(f"{count} x {kind}" for kind, count in sorted(kinds.items())) or "none"


def _row(journal: str, broken: "Broken") -> dict[str, Any]:
    return {
        "kind": "broken",
        "journal": journal,
        "partition": broken.partition,
        "offset": broken.offset,
        "hash": broken.record_hash,
        "seq": broken.seq,
        "folded_seq": broken.folded_seq,
        "owner": broken.owner,
        "now_ms": broken.now_ms,
        "error": broken.error,
        "inputs": broken.inputs,
        "decisions": broken.decisions,
        "records_after": broken.after,
        "newer": broken.newer,
    }
