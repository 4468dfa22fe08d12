"""People are told of forged records, and not flooded: the bounds, and that the scheduler and the detector tell alike."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from tests.support.counting_machine import CountingMachine, Counts
from tests.support.fakes.journal_fakes import FakeBroker, FakeLog, LoopClock, run_virtually
from trainhouse.events import SignatureRefused, decode
from trainhouse.events.wire.journal import NO_HASH, InputRefused, JournaledInput, JournalRecord
from trainhouse.events.wire.topics import CONTROL, DEAD_LETTERS, DECISIONS, VERDICTS
from trainhouse.scheduler.core.protocol.journal import begin
from trainhouse.scheduler.core.protocol.ownership import Ownership
from trainhouse.scheduler.core.protocol.publication import Outgoing, outgoing
from trainhouse.scheduler.core.protocol.refusal_limits import MOST_PUBLISHED, WINDOW_S, PublishedRefusals, key_of
from trainhouse.scheduler.stream.journal.follower import Follower, Unpublished
from trainhouse.scheduler.stream.journal.publishing import Publishing

FLOOD = 300


def forged(first: int, count: int, claimed: str = "node a") -> list[Outgoing]:
    """What a record makes public that refuses so many inputs in one name."""
    inputs = tuple(JournaledInput(first + n, None, b"junk") for n in range(count))
    refusals = tuple(InputRefused(offset=i.offset, reason="another key made it", forged=claimed) for i in inputs)
    return outgoing(CountingMachine(), CONTROL, 0, JournalRecord(1, "o", 1, first + count, inputs, refusals, 0, 1, 1, NO_HASH))


@given(st.lists(st.tuples(st.integers(0, 400), st.sampled_from([0.0, 0.0, 0.1, 20.0])), max_size=600))
def test_in_no_window_more_is_told_than_the_bounds_allow(steps: list[tuple[int, float]]) -> None:
    told, now_s, found = PublishedRefusals(), 0.0, list[tuple[float, int]]()
    for who, pause_s in steps:
        now_s += pause_s
        if told.next(str(who), now_s):
            found.append((now_s, who))
    for begin_s, _ in found:
        within = [who for at_s, who in found if begin_s <= at_s < begin_s + WINDOW_S]
        assert len(within) == len(set(within)) <= MOST_PUBLISHED


def test_who_was_told_of_is_told_of_again_later() -> None:
    told = PublishedRefusals()
    assert told.next("a", 0.0) and not told.next("a", WINDOW_S - 1) and told.next("b", 1.0)
    assert told.next("a", WINDOW_S) and not told.next("b", WINDOW_S)
    told.forget()
    assert told.next("a", WINDOW_S)


def test_a_refusal_is_told_with_all_else_of_its_node() -> None:
    assert [key_of(c) for c in ("node a", "job vision.x", "platform")] == ["a", "vision.x", "platform"]
    (told,) = (out for out in forged(0, 1) if out.topic == VERDICTS)
    event = decode(told.value).event
    assert told.key == b"a" and isinstance(event, SignatureRefused) and event.node_id == "a"


def test_a_flood_on_control_is_told_once_in_a_while_and_every_record_is_a_dead_letter() -> None:
    async def tale() -> None:
        broker, clock, machine = FakeBroker(partitions=1), LoopClock(), CountingMachine()
        follower: Follower[Counts] = Follower(machine, CONTROL, begin(machine, 0), 0, Ownership("a", 2.0, 0.0), clock)
        publishing = Publishing(FakeLog(broker), DECISIONS, follower, clock, transactional=True)
        running = asyncio.create_task(publishing.run())
        await asyncio.sleep(0.1)

        async def land(seq: int, effects: list[Outgoing]) -> None:
            follower.unpublished.append(Unpublished(seq, effects, b""))
            follower.wake()
            await asyncio.sleep(1)

        for seq in range(1, 4):
            await land(seq, forged(seq * FLOOD, FLOOD))
        assert len(broker.committed(VERDICTS, 0)) == 1 and len(broker.committed(DEAD_LETTERS, 0)) == 3 * FLOOD
        await land(4, forged(0, 2, "node b"))
        assert len(broker.committed(VERDICTS, 0)) == 2, "another node is another word"
        await asyncio.sleep(WINDOW_S)
        await land(5, forged(9000, 5))
        assert len(broker.committed(VERDICTS, 0)) == 3
        for seq in range(6, 6 + 3 * MOST_PUBLISHED):
            follower.unpublished.append(Unpublished(seq, forged(seq, 1, f"node n{seq}"), b""))
        follower.wake()
        await asyncio.sleep(5)
        assert len(broker.committed(VERDICTS, 0)) <= 3 + MOST_PUBLISHED, "names are made up for nothing"
        running.cancel()

    run_virtually(tale())
