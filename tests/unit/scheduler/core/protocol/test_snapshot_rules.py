"""Which snapshots stay, and up to where topics may be trimmed."""

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from tests.support.fakes.journal_fakes import MemoryStore
from trainhouse.events.wire.journal import SnapshotPointer
from trainhouse.scheduler.core.protocol.settled import Segment
from trainhouse.scheduler.core.protocol.snapshot_choice import (
    KEPT,
    MOST_DELETED,
    Pointers,
    folder,
    object_key,
    pointers_of,
    segment_key,
    segment_orphans,
    segment_surplus,
    segments_folder,
    surplus,
)
from trainhouse.scheduler.stream.history.trim_bounds import whole_snapshots

JOURNAL, TOPIC = "j", "own"
PREFIX = folder(JOURNAL, 0)


def pointer(seq: int, topic_id: str = TOPIC, content: bytes = b"whole", partition: int = 0) -> SnapshotPointer:
    sha256 = hashlib.sha256(content).hexdigest()
    key = object_key(JOURNAL, partition, seq, topic_id, sha256)
    return SnapshotPointer(JOURNAL, partition, topic_id, seq, seq, "0" * 64, key, sha256, "1" * 64, "m", 1)


POINTERS = st.lists(st.tuples(st.integers(0, 12), st.sampled_from((TOPIC, "former"))), max_size=20)


@given(POINTERS, st.sets(st.integers(0, 12)), st.lists(st.integers(0, 12), max_size=8))
def test_the_newest_three_stay_and_no_object_goes_that_a_pointer_names(
    named: list[tuple[int, str]], gone: set[int], orphans: list[int]
) -> None:
    pointers = Pointers({p.key: p for p in (pointer(seq, topic_id) for seq, topic_id in named)}, frozenset({b"junk"}))
    present = {p.object_key for p in pointers.readable.values() if p.seq not in gone}
    alone = {object_key(JOURNAL, 0, seq, TOPIC, "ab" * 32) for seq in orphans}
    old = surplus(pointers, TOPIC, present, sorted(present | alone), PREFIX)
    usable = [p for p in pointers.newest_first(TOPIC) if p.object_key in present]
    assert [p.seq for p in usable] == sorted({s for s, t in named if t == TOPIC and s not in gone}, reverse=True)
    if len(usable) < KEPT:
        assert not old.pointers and not old.objects
        return
    left = {key: p for key, p in pointers.readable.items() if key not in old.pointers}
    assert {p.key for p in usable[:KEPT]} <= left.keys() and b"junk" in old.pointers
    assert not {p.object_key for p in left.values()} & set(old.objects)
    assert all(p.topic_id == TOPIC and p.seq >= usable[KEPT - 1].seq for p in left.values())
    floor = usable[KEPT - 1].seq
    assert {key for key in alone if int(key.removeprefix(PREFIX)[:16]) < floor} <= set(old.objects)
    assert not {key for key in alone if int(key.removeprefix(PREFIX)[:16]) >= floor} & set(old.objects)


def test_each_snapshot_has_a_pointer_and_an_object_of_its_own_name() -> None:
    several = [pointer(7), pointer(8), pointer(7, "former"), pointer(7, partition=1)]
    assert len({p.key for p in several}) == len({p.object_key for p in several}) == 4
    assert pointer(7).object_key != pointer(7, content=b"of another owner at the same seq").object_key
    found = pointers_of({p.key: p.encode() for p in several}, JOURNAL, 0)
    assert {p.key for p in found.readable.values()} == {p.key for p in several[:3]}
    assert not pointers_of({b"j/10/own/7": b"junk"}, JOURNAL, 1).unreadable, "it is of partition 10"


def test_a_topic_is_needed_from_the_oldest_of_three_whole_snapshots_on() -> None:
    store = MemoryStore()
    several = [pointer(seq, partition=partition) for seq in (9, 8, 7, 6, 5) for partition in (0, 1)]
    for p in several:
        store[p.object_key] = b"damaged" if (p.seq, p.partition) == (8, 0) else b"whole"
    del store[several[1].object_key]
    assert several[1].partition == 1 and several[1].seq == 9
    found = [(p.partition, p.seq) for p, _ in whole_snapshots(several, store)]
    assert [seq for partition, seq in found if partition == 0] == [9, 7, 6]
    assert [seq for partition, seq in found if partition == 1] == [8, 7, 6]


SEGMENTS = segments_folder(JOURNAL, 0)


def segment(number: int, content: str, topic_id: str = TOPIC) -> str:
    return segment_key(JOURNAL, 0, topic_id, Segment(number, 1, hashlib.sha256(content.encode()).hexdigest()))


HISTORY = st.lists(st.sampled_from("abc"), max_size=6)


@given(HISTORY, st.lists(HISTORY, max_size=3), HISTORY, HISTORY)
def test_no_segment_goes_that_a_remaining_snapshot_names_or_that_may_be_under_way(
    newest: list[str], others: list[list[str]], former: list[str], left: list[str]
) -> None:
    named = {segment(n, c) for n, c in enumerate(newest)}
    elsewhere = {segment(n, c) for other in others for n, c in enumerate(other)}
    foreign = {segment(n, c, "former") for n, c in enumerate(former)} | {f"{SEGMENTS}notes.txt", f"{SEGMENTS}{0:08d}.own.ab.segment"}
    orphans = {segment(n, c) for n, c in enumerate(left)}
    deleted = set(segment_surplus(segment_orphans(sorted(named | elsewhere | foreign | orphans), named, TOPIC, SEGMENTS), elsewhere))
    assert not deleted & (named | elsewhere | foreign)
    assert deleted == {key for key in orphans - named - elsewhere if int(key.removeprefix(SEGMENTS)[:8]) < len(newest)}


def test_segments_lie_outside_the_folder_of_snapshots_and_one_pass_is_bounded() -> None:
    assert not SEGMENTS.startswith(PREFIX) and not SEGMENTS.startswith(folder(JOURNAL, 1))
    assert len(segment_surplus([segment(0, str(n)) for n in range(2 * MOST_DELETED)], ())) == MOST_DELETED
