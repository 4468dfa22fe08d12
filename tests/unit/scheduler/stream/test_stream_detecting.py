"""The detector's shell on an in-memory log: verdicts where they belong, once, and none for what it could not see."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.detector_world import Gang
from tests.support.fakes.journal_fakes import FakeBroker, FakeLog, LoopClock, run_virtually
from trainhouse.events import DeadLetter, Event, NodeHeartbeat, NodeKeyed, PolicyApplied, PoolCreated, SchedulingPolicy, encode, envelope_of
from trainhouse.events.wire.codec import HEADERS
from trainhouse.events.wire.topics import CONTROL, DEAD_LETTERS, HEARTBEATS, NODE_KEYS, POLICIES, POOLS, VERDICTS
from trainhouse.scheduler.core.detector import DetectorMachine, DetectorState, IssuedVerdict
from trainhouse.scheduler.core.errors import LogUnavailableError
from trainhouse.scheduler.core.protocol.publication import Outgoing
from trainhouse.scheduler.stream.detection import detector_history, detector_shell
from trainhouse.scheduler.stream.detection.detector_history import LEAST_HEARTBEATS
from trainhouse.scheduler.stream.detection.detector_shell import Detecting
from trainhouse.scheduler.stream.interfaces import Entry

PARTITIONS = 4
POOL_PARTITION = 3


class Story:
    """A broker, one node whose heartbeats are in partition 1, and a detector that the group feeds."""

    def __init__(self) -> None:
        self.broker = FakeBroker(partitions=PARTITIONS)
        self.gang = Gang(ranks=2)
        self.away = False
        self.sending_s = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self.land(POOLS, PoolCreated(pool="p", partition=POOL_PARTITION))

    def land(self, topic: str, event: Event, key: bytes = b"n", partition: int = 0) -> Entry:
        value = encode(envelope_of(event, id=f"e{len(self.broker.logs[topic, partition])}", source="test", now_ms=1))
        return self.broker.land(topic, partition, key, value, HEADERS).entry

    def detector(self) -> Detecting:
        """A new one; what ran before is gone."""
        self.stop()

        async def reach(step: str) -> None:
            if self.away:
                raise LogUnavailableError("brokers away")
            if step == "publish":
                await asyncio.sleep(self.sending_s)

        self.detecting = Detecting(FakeLog(self.broker, hook=reach), LoopClock(), DetectorMachine())
        self.detecting.on_assigned({0, 1})
        self._tasks = [asyncio.create_task(self.detecting.run())]
        return self.detecting

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = []

    async def beats(self, seconds: int) -> None:
        """A heartbeat a second, handed to the detector as the group does; none while the brokers are away."""
        for _ in range(seconds):
            await asyncio.sleep(1.0)
            heartbeat = self.gang.beat()
            if not self.away:
                await self.give(heartbeat)

    async def give(self, heartbeat: NodeHeartbeat) -> None:
        entry = self.land(HEARTBEATS, heartbeat, partition=1)
        if self._tasks:
            await self.detecting.take({1: [entry]})

    def said(self, topic: str = VERDICTS, partition: int | None = None) -> list[Any]:
        """The types of what is on a topic."""
        partitions = range(PARTITIONS) if partition is None else (partition,)
        return [json.loads(e.value or b"")["type"].split(".", 1)[1] for p in partitions for e in self.broker.committed(topic, p)]


def told(tale: Callable[[Story], Awaitable[None]]) -> None:
    async def run() -> None:
        story = Story()
        await tale(story)
        story.stop()

    run_virtually(run())


def test_a_hang_goes_to_people_and_to_the_pools_scheduler_at_once() -> None:
    async def tale(story: Story) -> None:
        story.detector()
        await story.beats(10)
        story.gang.frozen = {1}
        story.gang.waiting = {0}
        await story.beats(5)
        assert story.said() == []
        await story.beats(1)
        await asyncio.sleep(0.05)
        assert story.said() == story.said(CONTROL, POOL_PARTITION) == ["gang.hung.v1"]
        await story.beats(100)
        assert len(story.said()) == 1 and story.said(CONTROL) == ["gang.hung.v1"]

    told(tale)


def test_a_lost_node_is_told_after_its_silence_and_lifted_for_people_alone() -> None:
    async def tale(story: Story) -> None:
        story.detector()
        await story.beats(10)
        await asyncio.sleep(20)
        assert story.said() == ["node.suspected.v1", "node.lost.v1"] and story.said(CONTROL, POOL_PARTITION) == ["node.lost.v1"]
        await story.beats(2)
        assert story.said()[2:] == ["verdict.lifted.v1"] * 2 and len(story.said(CONTROL)) == 1

    told(tale)


@pytest.mark.parametrize("restarted", [False, True])
def test_verdicts_go_where_the_pool_is_now(restarted: bool) -> None:
    async def tale(story: Story) -> None:
        story.detector()
        await story.beats(10)
        story.land(POOLS, PoolCreated(pool="p", partition=1), b"p")
        if restarted:
            story.detector()
        await story.beats(3)
        await asyncio.sleep(20)
        assert story.said() == ["node.suspected.v1", "node.lost.v1"]
        assert story.said(CONTROL) == story.said(CONTROL, 1) == ["node.lost.v1"]

    told(tale)


def test_limits_come_from_the_policy_that_was_applied_last() -> None:
    async def tale(story: Story) -> None:
        policy = SchedulingPolicy.model_validate({"name": "strict", "failures": {"detection": {"suspected_beats": 40, "lost_beats": 80}}})
        story.detector()
        await story.beats(10)
        story.land(POLICIES, PolicyApplied(pool="p", policy=policy, version=1, applied_at_ms=1), b"p")
        await asyncio.sleep(39)
        assert story.said() == []
        await asyncio.sleep(45)
        assert story.said() == ["node.suspected.v1", "node.lost.v1"]

    told(tale)


def test_what_is_read_back_is_judged_by_the_policy_of_its_pool() -> None:
    async def tale(story: Story) -> None:
        patient = {"live_floor_s": 600, "hang_floor_s": 600}
        policy = SchedulingPolicy.model_validate({"name": "patient", "failures": {"detection": patient}})
        story.land(POLICIES, PolicyApplied(pool="p", policy=policy, version=1, applied_at_ms=1), b"p")
        await story.beats(10)
        story.gang.waiting = {0, 1}
        await story.beats(100)
        story.detector()
        await story.beats(60)
        assert story.said() == []

    told(tale)


def test_a_hang_that_is_found_in_what_is_read_back_reaches_the_scheduler() -> None:
    async def tale(story: Story) -> None:
        await story.beats(10)
        story.gang.waiting = {0, 1}
        await story.beats(100)
        story.detector()
        await story.beats(2)
        assert story.said() == story.said(CONTROL, POOL_PARTITION) == ["gang.hung.v1"]

    told(tale)


def test_a_detector_begins_where_the_last_thing_said_ended_with_its_transaction() -> None:
    async def tale(story: Story) -> None:
        publisher = await FakeLog(story.broker).open_publisher("scheduler")
        value = encode(envelope_of(PoolCreated(pool="q", partition=2), id="q", source="test", now_ms=1))
        await publisher.send([Outgoing(topic, b"q", value, HEADERS, 0) for topic in (VERDICTS, POOLS)])
        await story.beats(3)
        story.detector()
        await asyncio.sleep(17)
        assert story.said(CONTROL, POOL_PARTITION) == ["node.lost.v1"]

    told(tale)


def test_a_detector_that_restarts_says_nothing_twice_and_lifts_what_the_one_before_said() -> None:
    async def tale(story: Story) -> None:
        story.detector()
        story.gang.every(work_time_ms=200.0, fastest_work_time_ms=100.0)
        await story.beats(40)
        assert story.said() == ["rank.straggler.v1"] * 2
        story.detector()
        await story.beats(60)
        assert story.said() == ["rank.straggler.v1"] * 2
        story.stop()
        story.gang.every(work_time_ms=100.0)
        await story.beats(60)
        story.detector()
        await story.beats(60)
        assert sorted(story.said()) == ["rank.straggler.v1"] * 2 + ["verdict.lifted.v1"] * 2

    told(tale)


def test_a_node_that_died_while_no_detector_ran_is_lost() -> None:
    async def tale(story: Story) -> None:
        await story.beats(10)
        await asyncio.sleep(600)
        story.detector()
        await asyncio.sleep(14)
        assert "node.lost.v1" not in story.said()
        await asyncio.sleep(3)
        assert story.said(CONTROL, POOL_PARTITION) == ["node.lost.v1"]

    told(tale)


def others(story: Story, count: int, over_s: float = 0.0) -> None:
    """Heartbeats of another node, the same again and again, in the same partition."""
    gang = Gang(ranks=1)
    gang.more = {"node_id": "alive"}
    heartbeat = gang.beat()
    for number in range(count):
        stored = story.land(HEARTBEATS, heartbeat, b"alive", partition=1)
        log = story.broker.logs[HEARTBEATS, 1]
        log[-1].entry = replace(stored, timestamp_ms=stored.timestamp_ms + int(1000 * over_s * number / count))


def lost(story: Story) -> list[tuple[str, int]]:
    found = [json.loads(e.value or b"") for e in story.broker.committed(CONTROL, POOL_PARTITION)]
    return [(v["data"]["node_id"], v["data"]["sequence"]) for v in found if "node.lost" in v["type"]]


def test_a_node_that_fell_silent_before_many_heartbeats_of_others_is_lost() -> None:
    async def tale(story: Story) -> None:
        await story.beats(3)
        others(story, 3 * LEAST_HEARTBEATS, over_s=15)
        story.detector()
        await asyncio.sleep(17)
        assert ("n", 3) in lost(story)

    told(tale)


def test_time_in_which_no_heartbeats_came_is_no_reason_to_stop_reading_back() -> None:
    entries = [Entry(1, n, 1000 * n + (600_000 if n > 50 else 0), b"n", b"") for n in range(100)]
    assert detector_history._span_ms(entries) == 98_000 + detector_history.LONGEST_PAUSE_MS


def test_a_node_that_died_long_before_is_lost_too_where_the_group_goes_on() -> None:
    async def tale(story: Story) -> None:
        await story.beats(3)
        others(story, LEAST_HEARTBEATS, over_s=900)
        story.detector()
        await asyncio.sleep(1)
        await story.detecting.take({1: story.broker.committed(HEARTBEATS, 1)})
        await asyncio.sleep(17)
        assert ("n", 3) in lost(story)

    told(tale)


def test_a_heartbeat_that_cannot_be_judged_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = DetectorMachine.on_heartbeat

    def fails(self: DetectorMachine, state: DetectorState, beat: NodeHeartbeat, now_ms: int) -> list[IssuedVerdict]:
        if beat.node_id == "odd":
            raise ZeroDivisionError
        return heard(self, state, beat, now_ms)

    async def tale(story: Story) -> None:
        story.detector()
        await story.beats(3)
        odd = Gang(ranks=1)
        odd.more = {"node_id": "odd"}
        await story.give(odd.beat())
        await story.beats(3)
        await asyncio.sleep(17)
        assert ("n", 6) in lost(story)

    monkeypatch.setattr(DetectorMachine, "on_heartbeat", fails)
    told(tale)


def test_verdicts_that_come_while_others_are_sent_are_sent_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tale(story: Story) -> None:
        story.gang.devices = [{"device_id": "d0", "ecc_uncorrected": 0}]
        story.detector()
        await story.beats(10)
        story.sending_s = 1.5
        story.gang.frozen, story.gang.waiting = {1}, {0}
        await story.beats(5)
        story.gang.devices = [{"device_id": "d0", "ecc_uncorrected": 1}]
        await story.beats(4)
        assert story.said() == story.said(CONTROL, POOL_PARTITION) == ["gang.hung.v1", "device.degraded.v1"]

    monkeypatch.setattr(detector_shell, "MAX_WAITING_VERDICTS", 2)
    told(tale)


def test_brokers_away_for_ten_minutes_condemn_nobody_and_verdicts_wait_for_them() -> None:
    async def tale(story: Story) -> None:
        story.detector()
        await story.beats(10)
        story.away = True
        await story.beats(600)
        story.away = False
        await story.beats(60)
        assert story.said() == []
        story.gang.frozen = {0, 1}
        await story.beats(4)
        story.away = True
        await story.detecting.take({1: [story.land(HEARTBEATS, story.gang.beat(), partition=1) for _ in range(3)]})
        await asyncio.sleep(5)
        assert story.said() == []
        story.away = False
        await asyncio.sleep(3)
        assert story.said() == ["gang.hung.v1"]

    told(tale)


def test_heartbeats_that_come_before_the_past_was_read_are_kept_and_what_nobody_can_read_is_passed_over() -> None:
    async def tale(story: Story) -> None:
        await story.beats(3)
        story.broker.land(HEARTBEATS, 1, b"n", b"no heartbeat")
        story.detector()
        await story.give(story.gang.beat())
        await asyncio.sleep(17)
        assert story.said() == ["node.suspected.v1", "node.lost.v1"]
        lost = [json.loads(e.value or b"") for p in range(PARTITIONS) for e in story.broker.committed(VERDICTS, p)][-1]
        assert lost["id"] == "trainhouse.node.lost.v1:n:i1:4" and lost["data"]["sequence"] == 4

    told(tale)


JUNK = (b"", b"\x80torn", b"[]", b'{"specversion":"1.0","id":"k","source":"s","type":"trainhouse.node.keyed.v1","data":{"node_id":"n"')


@pytest.mark.parametrize("topic", [NODE_KEYS, POLICIES, POOLS])
def test_a_record_that_nobody_can_read_stops_nothing_and_is_answered(topic: str) -> None:
    async def tale(story: Story) -> None:
        for junk in JUNK[:2]:
            story.broker.land(topic, 0, b"p/n", junk)
        story.broker.land(topic, 0, b"p/gone", None)
        story.detector()
        await story.beats(5)
        for junk in JUNK[2:]:
            story.broker.land(topic, 0, b"p/n", junk)
        story.land(POLICIES, PolicyApplied(pool="p", policy=SchedulingPolicy(name="q"), version=1, applied_at_ms=1), b"p")
        story.land(NODE_KEYS, NodeKeyed.model_validate({"node_id": "other", "pool": "p", "public_key": "", "at_ms": 1}), b"p/other")
        await story.beats(5)
        letters = [e for p in range(PARTITIONS) for e in story.broker.committed(DEAD_LETTERS, p)]
        assert sorted(e.value or b"" for e in letters) == sorted(JUNK), "of each one, and of no tombstone"
        named = [DeadLetter.of_headers(list(e.headers)) for e in letters]
        assert all((t.topic, t.partition) == (topic, 0) and t.reason for t in named) and len({t.offset for t in named}) == len(JUNK)
        await asyncio.sleep(20)
        assert story.said(CONTROL, POOL_PARTITION) == ["node.lost.v1"]

    told(tale)


def test_what_was_noted_of_a_pool_and_cannot_count_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: DetectorMachine, pool: str, detection: object) -> None:
        raise OverflowError("limits of nobody")

    async def tale(story: Story) -> None:
        story.land(POLICIES, PolicyApplied(pool="p", policy=SchedulingPolicy(name="q"), version=1, applied_at_ms=1), b"p")
        story.detector()
        await story.beats(5)
        await asyncio.sleep(20)
        assert story.said(CONTROL, POOL_PARTITION) == ["node.lost.v1"]
        (letter,) = [e for p in range(PARTITIONS) for e in story.broker.committed(DEAD_LETTERS, p)]
        assert "limits of nobody" in DeadLetter.of_headers(list(letter.headers)).reason

    monkeypatch.setattr(DetectorMachine, "apply", fails)
    told(tale)
