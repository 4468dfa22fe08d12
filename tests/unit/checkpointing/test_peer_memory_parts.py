"""The pure parts of peer memory: the choice of a holder, tokens, and which chunks stay in a bounded memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.profiles import examples
from trainhouse.checkpointing.chain.manifest import Held
from trainhouse.checkpointing.lease.access_rule import Ask, Lease, Operation, refusal
from trainhouse.checkpointing.peer_memory import held_chunks
from trainhouse.checkpointing.peer_memory.access_token import Access, AccessRefusedError, access_of, token_of
from trainhouse.checkpointing.peer_memory.held_chunks import SILENT_S, HeldChunk, HeldChunks, NoRoomError, Owner, StaleWriterError
from trainhouse.checkpointing.peer_memory.holder_choice import Place, chosen
from trainhouse.checkpointing.peer_memory.holder_records import STALE_S, HolderRecord, HolderRecords, rack_of
from trainhouse.checkpointing.saver import held_by
from trainhouse.checkpointing.stores.object_store import Body

A, B, C = "a" * 64, "b" * 64, "c" * 64
ACCESS = Access("job", 3, ("job",), writes=True, until_s=100.0)
OWNER = Owner("job", 0)


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def put(chunks: HeldChunks, owner: Owner, sha256: str, size_bytes: int, epoch: int = 1) -> bool:
    """Whether it had to be sent."""
    wanted = chunks.reserve(owner, epoch, sha256, size_bytes)
    if wanted:
        chunks.store(owner, sha256, bytes(size_bytes))
    return wanted


def body_of(chunks: HeldChunks, job_id: str, sha256: str) -> Body | None:
    chunk = chunks.lend(job_id, sha256)
    if chunk is None:
        return None
    body = chunk.body
    chunks.end_loan(chunk)
    return body


def test_the_holder_is_in_another_rack_else_another_node_else_there_is_none() -> None:
    own = Place("n0", "r0")
    assert chosen(own, [own]) is None
    assert chosen(own, [own, Place("n1", "r0")]) == Place("n1", "r0")
    assert chosen(own, [own, Place("n1", "r0"), Place("n2", "r1"), Place("n3", "")]) == Place("n2", "r1")
    assert chosen(Place("n0"), [Place("n1", "r0")]) == Place("n1", "r0")


@given(st.sets(st.integers(0, 50), min_size=2), st.integers(0, 50))
@settings(max_examples=examples(100), deadline=None)
def test_a_node_that_comes_or_goes_changes_the_choice_of_few(numbers: set[int], other: int) -> None:
    places = [Place(f"n{n}", f"r{n % 3}") for n in sorted(numbers)]
    own, gone = places[0], Place(f"n{other}", f"r{other % 3}")
    before, after = chosen(own, places), chosen(own, [p for p in places if p != gone])
    assert before is not None and before.node_id != own.node_id
    assert before in (after, gone)
    assert chosen(own, reversed(places)) == before


def test_a_token_is_of_one_holder_and_ends() -> None:
    token = token_of("secret", ACCESS)
    assert access_of("secret", token, 99.0) == ACCESS
    with pytest.raises(AccessRefusedError, match="ended 1 s ago"):
        access_of("secret", token, 101.0)
    for wrong in ("", "x", ".", token[:-1], token[1:], token_of("other", ACCESS), token_of("other", ACCESS) + "\u00e9", "\ud800.x"):
        with pytest.raises(AccessRefusedError, match="not one for this holder"):
            access_of("secret", wrong, 0.0)
    changed = token_of("other", replace(ACCESS, job_id="another")).partition(".")[0]
    with pytest.raises(AccessRefusedError):
        access_of("secret", f"{changed}.{token.partition('.')[2]}", 0.0)


def test_a_rank_has_no_right_to_the_records_of_holders() -> None:
    lease = Lease("job", 1)
    for operation in (Operation.GET, Operation.PUT, Operation.LIST):
        assert refusal(lease, Ask(operation, "peer-memory/default/-/node")) is not None


def test_records_are_of_one_pool_and_go_stale() -> None:
    now = [0.0]
    store = MemoryObjectStore(lambda: now[0])
    records, others = HolderRecords(store, "pool"), HolderRecords(store, "pool-2")
    first, second = Place("n1", rack_of("row 7/b")), Place("n2")
    records.write(first, HolderRecord("10.0.0.1", 5, "s"))
    now[0] = STALE_S - 1
    records.write(second, HolderRecord("10.0.0.2", 6, "t"))
    assert set(records.places()) == {first, second} and others.places() == []
    assert records.read(first) == HolderRecord("10.0.0.1", 5, "s")
    now[0] = STALE_S + 1
    assert records.places() == [second]
    records.remove(second)
    assert records.places() == [] and records.read(second) is None


def test_the_newest_save_stays_and_of_the_one_before_what_the_newest_commit_names() -> None:
    chunks = HeldChunks(10, Clock())
    chunks.begin(OWNER, 1, 1, [])
    assert put(chunks, OWNER, A, 4) and put(chunks, OWNER, B, 4)
    chunks.begin(OWNER, 1, 2, [A, B])
    assert not put(chunks, OWNER, A, 4)
    assert body_of(chunks, "job", B) is not None, "the commit of before is whole until there is no room"
    assert put(chunks, OWNER, C, 4)
    assert body_of(chunks, "job", B) is None and body_of(chunks, "job", A) is not None and chunks.used_bytes == 8
    chunks.begin(OWNER, 1, 2, [A, B])  # a later wave of the same save
    assert body_of(chunks, "job", C) is not None
    chunks.begin(OWNER, 1, 3, [C])
    assert body_of(chunks, "job", A) is None and chunks.used_bytes == 4


def test_a_chunk_is_of_one_job_and_of_all_ranks_that_have_it() -> None:
    chunks = HeldChunks(10, Clock())
    other = Owner("job", 1)
    for owner in (OWNER, other):
        chunks.begin(owner, 1, 1, [])
    assert put(chunks, OWNER, A, 4) and not put(chunks, other, A, 4)
    assert body_of(chunks, "another", A) is None
    chunks.begin(OWNER, 1, 2, [])
    assert body_of(chunks, "job", A) is not None and chunks.used_bytes == 4
    chunks.begin(other, 1, 2, [])
    assert body_of(chunks, "job", A) is None and chunks.used_bytes == 0


def test_without_room_a_chunk_is_refused_until_another_rank_was_silent_for_long() -> None:
    clock = Clock()
    chunks = HeldChunks(10, clock)
    late = Owner("late", 0)
    chunks.begin(OWNER, 1, 1, [])
    put(chunks, OWNER, A, 8)
    clock.now_s += SILENT_S
    chunks.begin(late, 1, 1, [])
    with pytest.raises(NoRoomError, match="TRAINHOUSE_AGENT_PEER_MEMORY_GIB"):
        chunks.reserve(late, 1, A, 6)
    clock.now_s += 1
    assert put(chunks, late, A, 6)
    assert body_of(chunks, "job", A) is None and chunks.used_bytes == 6
    with pytest.raises(NoRoomError):
        chunks.reserve(late, 1, B, 8)


def test_an_older_attempt_changes_nothing() -> None:
    chunks = HeldChunks(10, Clock())
    other = Owner("job", 1)
    chunks.begin(other, 1, 1, [])
    chunks.begin(OWNER, 2, 1, [])
    put(chunks, OWNER, A, 4, epoch=2)
    with pytest.raises(StaleWriterError, match="epoch 2 of job job"):
        chunks.begin(Owner("job", 7), 1, 9, [])
    for owner in (OWNER, other):  # both had begun before the newer attempt did
        with pytest.raises(StaleWriterError, match="epoch 2 of job job"):
            chunks.reserve(owner, 1, B, 4)
    assert body_of(chunks, "job", A) is not None and chunks.used_bytes == 4


def test_empty_chunks_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_chunks, "MAX_CHUNKS", 2)
    chunks = HeldChunks(10, Clock())
    chunks.begin(OWNER, 1, 1, [])
    assert put(chunks, OWNER, A, 0) and put(chunks, OWNER, B, 0)
    with pytest.raises(NoRoomError, match="in 2 chunks of at most 2"):
        put(chunks, OWNER, C, 0)
    chunks.begin(OWNER, 1, 2, None)
    assert put(chunks, OWNER, C, 0), "in the place of the save before"


def test_ranks_of_a_job_have_a_bound_that_is_not_another_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_chunks, "MAX_RANKS", 2)
    chunks = HeldChunks(10, Clock())
    for rank in (0, 1, 1):
        chunks.begin(Owner("job", rank), 1, 1, [])
    with pytest.raises(NoRoomError, match="2 ranks of job job"):
        chunks.begin(Owner("job", 2), 1, 1, [])
    chunks.begin(Owner("late", 2), 1, 1, [])


def test_a_job_alone_has_all_and_gives_what_is_above_its_share_to_another() -> None:
    clock = Clock()
    chunks = HeldChunks(12, clock)
    greedy, other = [Owner("greedy", rank) for rank in range(3)], Owner("other", 0)
    for owner, sha256 in zip(greedy, (A, B, C), strict=True):
        clock.now_s += 1
        chunks.begin(owner, 1, 1, [])
        assert put(chunks, owner, sha256, 4)
    chunks.begin(other, 1, 1, [])
    assert put(chunks, other, A, 2) and put(chunks, other, B, 4), "up to its equal share"
    assert [body_of(chunks, "greedy", sha256) is not None for sha256 in (A, B, C)] == [False, False, True]
    with pytest.raises(NoRoomError, match="job greedy has 4 of them, and an equal share of 2 jobs is 6: no room for 4 more"):
        put(chunks, greedy[0], A, 4)
    with pytest.raises(NoRoomError, match="job other has 6 of them"):
        put(chunks, other, C, 4)
    assert chunks.used_bytes == 10


def test_chunks_of_a_job_have_a_share_as_their_bytes_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_chunks, "MAX_CHUNKS", 2)
    chunks, other = HeldChunks(10, Clock()), Owner("other", 0)
    chunks.begin(OWNER, 1, 1, [])
    assert put(chunks, OWNER, A, 0) and put(chunks, OWNER, B, 0)
    chunks.begin(other, 1, 1, [])
    assert put(chunks, other, A, 0)
    with pytest.raises(NoRoomError):
        put(chunks, other, B, 0)
    assert body_of(chunks, "job", A) is None and body_of(chunks, "job", B) is not None


def test_a_chunk_that_is_read_counts_until_its_last_reader_has_done_with_it() -> None:
    chunks = HeldChunks(10, Clock())
    chunks.begin(OWNER, 1, 1, [])
    put(chunks, OWNER, A, 8)
    loans = [chunks.lend("job", A), chunks.lend("job", A)]
    chunks.begin(OWNER, 1, 2, [])
    assert body_of(chunks, "job", A) is None and chunks.used_bytes == 8
    with pytest.raises(NoRoomError, match="and 8 bytes that are still read"):
        put(chunks, OWNER, B, 8)
    for loan, used_bytes in zip(loans, (8, 0), strict=True):
        assert loan is not None
        chunks.end_loan(loan)
        assert chunks.used_bytes == used_bytes
    assert put(chunks, OWNER, B, 8)


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["job", "late", "third"]),
        st.integers(0, 1),
        st.integers(1, 3),
        st.sampled_from([A, B, C]),
        st.integers(0, 2000),
        st.sampled_from(["", "lend", "end"]),
    ),
    max_size=30,
)
SIZES = {A: 3, B: 5, C: 0}


@given(OPERATIONS)
@settings(max_examples=examples(200), deadline=None)
def test_memory_stays_within_its_budget_and_counts_what_is_there_and_what_is_read(
    operations: list[tuple[str, int, int, str, int, str]],
) -> None:
    clock = Clock()
    chunks = HeldChunks(15, clock)
    loans: list[HeldChunk] = []
    for job_id, rank, save, sha256, later_s, reading in operations:
        clock.now_s += later_s
        owner = Owner(job_id, rank)
        chunks.begin(owner, 1, save, [A] if save == 2 else None)
        try:
            put(chunks, owner, sha256, SIZES[sha256])
            assert body_of(chunks, job_id, sha256) is not None
        except NoRoomError:
            own_bytes = sum(size for each, size in SIZES.items() if body_of(chunks, job_id, each) is not None)
            assert loans or own_bytes + SIZES[sha256] > 5, "an equal share is there for each"
        if reading == "lend" and (chunk := chunks.lend(job_id, sha256)) is not None:
            loans.append(chunk)
        elif reading == "end" and loans:
            chunks.end_loan(loans.pop())
        there = {id(c): c for c in loans} | {id(c): c for j in ("job", "late", "third") for c in held_of(chunks, j)}
        assert chunks.used_bytes == sum(len(chunk.body) for chunk in there.values()) <= 15
    for chunk in loans:
        chunks.end_loan(chunk)
    assert chunks.used_bytes == sum(len(chunk.body) for j in ("job", "late", "third") for chunk in held_of(chunks, j))


def held_of(chunks: HeldChunks, job_id: str) -> list[HeldChunk]:
    found = [chunk for sha256 in SIZES if (chunk := chunks.lend(job_id, sha256)) is not None]
    for chunk in found:
        chunks.end_loan(chunk)
    return found


def test_a_manifest_names_the_holders_of_runs_of_chunks() -> None:
    assert held_by(["", "a", "a", "b", "", ""]) == (Held(node_id="a", first=1, count=2), Held(node_id="b", first=3, count=1))
    assert held_by([]) == ()
