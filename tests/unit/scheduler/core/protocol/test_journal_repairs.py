"""A record that counts as empty does so for every reader: its seq is taken, its inputs come again, and nothing of it ever was."""

from typing import Any

import orjson
import pytest

from tests.support.counting_machine import CountingMachine, Counts, cancel, proposed
from trainhouse.cli.data.journal_repair import Place, _lines, _repairable, _row
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.events import envelope_of
from trainhouse.events.model.repair import JournalRepaired
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.journal import record_hash
from trainhouse.events.wire.repairs import emptied_by
from trainhouse.events.wire.topics import DECISIONS, DIRECTORY
from trainhouse.scheduler.core.errors import BrokenInvariant
from trainhouse.scheduler.core.protocol.batch import Limits, Pending, Proposer, pending
from trainhouse.scheduler.core.protocol.journal import Folded, begin, fold_bytes
from trainhouse.scheduler.repairs import search
from trainhouse.scheduler.replay import LogEntry, verify
from trainhouse.scheduler.stream.history.history_journal import happenings
from trainhouse.scheduler.time_travel import past

MACHINE = CountingMachine()
INPUTS = 6
Story = tuple[list[LogEntry], str]


def inputs(first: int) -> list[Pending]:
    return [pending(n, cancel(n), (), Limits()) for n in range(first, INPUTS)]


def spoilt(value: bytes) -> bytes:
    """The record with a decision that cannot be read."""
    head = orjson.loads(value)
    head["decisions"][0]["data"]["job_id"] = 7
    return orjson.dumps(head)


def written(bad_at: int, junk: bool = False) -> Story:
    """A journal of one input a record. The record at `bad_at` is broken; it was repaired, and its input was decided on again."""
    proposer, folded, entries, hash_ = Proposer(MACHINE, "a", Limits(batch_count=1)), begin(MACHINE, 0), list[LogEntry](), ""
    while folded.cursor < INPUTS - 1:
        value = proposed(proposer, folded, 1_000 + folded.seq, inputs(folded.cursor + 1), 0, tick=False).encode()
        if len(entries) == bad_at:
            value = b"\x00 no record" if junk else spoilt(value)
            hash_ = record_hash(value)
        entries.append(LogEntry(0, len(entries), value))
        folded, _ = fold_bytes(MACHINE, folded, value, emptied=frozenset({hash_}))
    return entries, hash_


def folded_to_end(entries: list[LogEntry], emptied: frozenset[str]) -> Folded[Counts]:
    folded = begin(MACHINE, 0)
    for entry in entries:
        folded, _ = fold_bytes(MACHINE, folded, entry.value, emptied=emptied)
    return folded


@pytest.mark.parametrize("junk", [False, True])
@pytest.mark.parametrize("bad_at", [0, 2, 5])
def test_every_reader_goes_on_behind_an_emptied_record_and_its_input_is_decided_again(bad_at: int, junk: bool) -> None:
    entries, hash_ = written(bad_at, junk)
    with pytest.raises(BrokenInvariant):
        folded_to_end(entries, frozenset())
    assert not verify(entries, MACHINE).same

    folded = folded_to_end(entries, frozenset({hash_}))
    assert sum(folded.state.counts.values()) == INPUTS and folded.cursor == INPUTS - 1
    assert folded.seq == len(entries) - junk  # junk has no seq to take
    report = verify(entries, MACHINE, emptied=frozenset({hash_}))
    assert report.same and (report.emptied, report.records) == (1, INPUTS) and report.seqs == {0: folded.seq}
    assert past(entries, MACHINE, 2**62, emptied=frozenset({hash_})).partitions[0].state == folded.state
    assert len(list(happenings(entries, frozenset({hash_})))) == 1  # how far it goes; what it counts is none of a history's kinds


def test_another_hash_empties_nothing() -> None:
    entries, hash_ = written(2)
    with pytest.raises(BrokenInvariant):
        folded_to_end(entries, frozenset({hash_[::-1]}))


def test_a_search_names_the_first_broken_record_of_each_partition_and_what_it_held() -> None:
    entries, hash_ = written(2)
    other = [LogEntry(1, e.offset, e.value) for e in written(2)[0][:2]]
    found = search([*entries, *other], MACHINE)
    assert found.broken.keys() == {0} and found.partitions[1].seq == 2
    broken = found.broken[0]
    assert (broken.offset, broken.record_hash, broken.seq, broken.folded_seq, broken.after) == (2, hash_, 3, 2, len(entries) - 3)
    assert broken.owner == "a" and broken.inputs == {"trainhouse.job.cancel.v1": 1}, broken.inputs
    assert broken.decisions == {"trainhouse.job.status.v1": 1} and "job_id" in broken.error
    assert not search(entries, MACHINE, emptied=frozenset({hash_})).broken


@pytest.mark.parametrize(
    "value", [b"", b"[]", b'{"seq": 1}', b'{"seq": 1, "inputs": 3, "decisions": [7, {"type": 8}], "now_ms": "x"}', b"\xff"]
)
def test_a_search_survives_bytes_of_any_kind(value: bytes) -> None:
    broken = search([LogEntry(0, 0, value)], MACHINE).broken[0]
    assert broken.record_hash == record_hash(value) and broken.error


EVIL = "\x1b]0;pwn\x07\x1b[2J\u202ex\nfake line"


@pytest.mark.parametrize("now_ms", [10**18, -(10**18), True, "x", 1])
def test_nothing_of_a_broken_record_reaches_a_terminal_as_it_is(now_ms: Any) -> None:
    kinds = [{"type": f"{EVIL}{n}" * 100} for n in range(1_000)]
    head = {"seq": 1, "owner": EVIL * 100, "now_ms": now_ms, "inputs": [{"event": kind} for kind in kinds], "decisions": [*kinds, 7]}
    value = orjson.dumps(head)
    broken = search([LogEntry(0, 0, value)], MACHINE).broken[0]
    lines = _lines(DECISIONS, broken)
    assert all(line.isprintable() for line in lines) and sum(map(len, lines)) < 20_000
    assert (broken.now_ms == 1) is (now_ms == 1 and now_ms is not True) and not broken.newer
    assert _row(DECISIONS, broken)["owner"].isprintable() and broken.error.isprintable()


def test_a_record_of_a_newer_version_is_never_emptied() -> None:
    entries, _ = written(2)
    newer = orjson.dumps(orjson.loads(entries[2].value) | {"fold_version": MACHINE.fold_version + 1})
    broken = search([*entries[:2], LogEntry(0, 2, newer)], MACHINE).broken[0]
    lines = _lines(DECISIONS, broken)
    assert broken.newer and "written by a newer version: update this program" in lines[-1]
    assert not any("trainhouse journal repair" in line for line in lines)
    place = Place(DECISIONS, 0, 2)
    with pytest.raises(CliError, match="written by a newer version: update this program; nothing was written") as refused:
        _repairable(place, broken, record_hash(newer))
    assert refused.value.code is Exit.REJECTED
    old = search(entries, MACHINE).broken[0]
    assert _repairable(place, old, old.record_hash) is old and "trainhouse journal repair" in _lines(DECISIONS, old)[-1]


def test_repairs_are_those_of_their_journal_and_junk_among_them_is_passed_over() -> None:
    fields: dict[str, Any] = {"partition": 0, "offset": 1, "error": "e", "reason": "r", "user": "u", "at_ms": 1}
    events = [JournalRepaired(journal=j, record_hash=h * 64, **fields) for j, h in ((DECISIONS, "a"), (DIRECTORY, "b"), (DECISIONS, "c"))]
    values = [encode(envelope_of(e, id=e.record_hash, source="test", now_ms=1)) for e in events]
    assert emptied_by([None, b"junk", *values], DECISIONS) == {"a" * 64, "c" * 64}
