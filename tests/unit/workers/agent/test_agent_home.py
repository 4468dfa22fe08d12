"""An agent whose pool moves to another partition: nothing is lost, and nothing overtakes, whatever restarts when."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.detector_world import beat
from tests.support.fleet_stage import PARTITION, Stage, stage
from tests.unit.workers.agent.test_agent_reports import ME, Brokers, report
from trainhouse.events import (
    AttemptStarted,
    AttemptStopped,
    CheckpointCompleted,
    Event,
    NodeDesiredState,
    NodeRegistered,
    Order,
    PoolCreated,
    RankExited,
)
from trainhouse.events.wire.topics import CONTROL, HEARTBEATS, PROGRESS
from trainhouse.workers.agent.core import AgentState, Identity
from trainhouse.workers.agent.core.home import (
    MOVE_PATIENCE_MS,
    START_PATIENCE_MS,
    Home,
    answered,
    located,
    moved,
    passed,
    quiet,
    waiting_text,
)
from trainhouse.workers.agent.core.home import Stage as Of
from trainhouse.workers.agent.launch.attempt_dirs import StateFile
from trainhouse.workers.agent.ship.reports import Reports
from trainhouse.workers.fleet.faults import FaultPlan

OLD, NEW = PARTITION, PARTITION + 1


def test_a_pool_that_stays_is_written_to_at_once() -> None:
    assert located(None, 2, 0) == located(2, 2, 0) == Home(2, 2)
    home = Home(2, 2)
    assert home.open and moved(home, 2) == quiet(home) == answered(home, 2) == passed(home, 10**9) == home


def test_each_step_of_a_move_waits_for_the_one_before() -> None:
    leaving = moved(Home(2, 2), 3)
    assert (leaving.at, leaving.to, leaving.open) == (2, 3, False)
    assert answered(leaving, 3) == leaving, "the answer to an earlier registration"
    asked = quiet(leaving)
    assert not asked.open and answered(asked, 2) == answered(asked, 4) == asked and passed(asked, 10**9) == asked
    assert answered(asked, 3) == Home(3, 3)


def test_a_second_move_asks_again_whatever_was_asked_before() -> None:
    asked = quiet(moved(Home(2, 2), 3))
    for to in (4, 2):
        again = moved(asked, to)
        assert (again.at, again.to, again.stage) == (2, to, Of.LEAVING) and answered(again, to) == again
        assert answered(quiet(again), to) == Home(to, to)


def test_a_start_begins_where_the_one_before_wrote_and_does_not_wait_for_ever() -> None:
    home = located(2, 3, 1_000)
    assert (home.at, home.to, home.stage) == (2, 3, Of.ASKED)
    assert answered(home, 3) == Home(3, 3)
    assert passed(home, 999 + START_PATIENCE_MS) == home and passed(home, 1_000 + START_PATIENCE_MS) == Home(3, 3)
    again = quiet(moved(home, 4))
    assert passed(again, 10**9) == again, "it moved while the start waited: what waits now is a move, in order"


def test_a_move_that_takes_long_says_what_to_do_and_goes_on_waiting() -> None:
    leaving = moved(Home(2, 2), 3)
    for home, way_out in ((leaving, "the brokers answer this node"), (quiet(leaving), "partition 2 of the scheduler's journal is halted")):
        assert way_out not in waiting_text(home, MOVE_PATIENCE_MS - 1)
        late = waiting_text(home, MOVE_PATIENCE_MS)
        assert way_out in late and "60 s" in late and "`trainhouse ps`" in late
        assert passed(home, 10**9) == home


def test_the_partition_that_was_written_to_outlives_the_agent_for_its_pool_alone(tmp_path: Path) -> None:
    me = Identity("n", "b", "i", "p")
    StateFile(tmp_path).save(AgentState(me, control=5, cluster="brokers-a"))
    assert (StateFile(tmp_path).load(me).control, StateFile(tmp_path).load(me).cluster) == (5, "brokers-a")
    assert StateFile(tmp_path).load(Identity("n", "b", "i", "other")).control is None
    (tmp_path / "state.json").write_bytes(b'{"fences":[],"order":[]}')
    assert StateFile(tmp_path).load(me).control is None, "an agent of before wrote none"


def test_what_is_reported_while_the_pool_changes_its_partition_waits_and_a_registration_under_way_is_given_up() -> None:
    brokers, waited = Brokers(), []  # type: tuple[Brokers, list[str]]
    reports = Reports(brokers, None, ME, lambda key: None, lambda: 1, lambda r: waited.append(r.event_id))  # type: ignore[arg-type]
    reports.register(2, beat(1), report("given up"))
    reports.hold()
    reports.report(report("first"))
    brokers.ack()
    reports.register(2, beat(2), report("last at 2"), opens=False)
    reports.progress(report("progress"))
    brokers.ack()
    reports.report(report("second"))
    assert [name for topic, name in brokers.taken if topic == CONTROL] == ["last at 2"] and waited == []
    reports.open(3)
    reports.report(report("third"))
    assert [name for topic, name in brokers.taken if topic == CONTROL] == ["last at 2", "first", "second", "third"]
    assert waited == ["first", "second"] and PROGRESS not in {topic for topic, _ in brokers.taken}
    assert [name for topic, name in brokers.taken if topic == HEARTBEATS] == ["n:i1:beat:1", "n:i1:beat:2"]


@dataclass
class Control:
    """Both partitions of control, as they are once the pool has moved: the old one passes on all that it gets, in order, in its own time.

    `came`: what the new one got: the event, and whether it came by the old one.
    """

    stage: Stage
    came: list[tuple[Event, bool]] = field(default_factory=list)
    _by_old: deque[Event] = field(default_factory=deque)
    _read: int = 0
    _seq: int = 0

    def take(self, pass_on: int) -> None:
        """What was sent since, and the next `pass_on` records of the old partition."""
        sent, at = self.stage.records.sent, self.stage.records.at
        for (topic, envelope), partition in zip(sent[self._read :], at[self._read :], strict=True):
            if topic == CONTROL and partition == NEW:
                self._came(envelope.event, False)
            elif topic == CONTROL:
                assert partition == OLD
                self._by_old.append(envelope.event)
        self._read = len(sent)
        for _ in range(min(pass_on, len(self._by_old))):
            self._came(self._by_old.popleft(), True)

    def _came(self, event: Event, by_old: bool) -> None:
        self.came.append((event, by_old))
        if isinstance(event, NodeRegistered):
            self._seq += 1
            fields = {"node_id": event.node_id, "boot_id": event.boot_id, "incarnation": event.incarnation, "pool": event.pool}
            jobs = {str(r.job_id) for r in event.running}
            gangs = tuple(g for (job, _), g in self.stage.placed.items() if job in jobs)
            self.stage.hear(NodeDesiredState.model_validate(fields | {"allocations": gangs}), Order(NEW, self._seq, 0))

    def of(self, node_id: str) -> list[tuple[Event, bool]]:
        return [(e, by_old) for e, by_old in self.came if getattr(e, "node_id", "") == node_id]


def drained(story: Stage, control: Control) -> None:
    """Until everything has arrived."""
    for _ in range(20):
        story.run(1_000)
        control.take(10_000)


@pytest.mark.parametrize("seed", range(30))
def test_the_new_partition_gets_all_that_agents_say_in_their_order(seed: int) -> None:
    draw = random.Random(seed)
    story = stage(nodes=3, gpus=2, durations="4", faults=FaultPlan(slow_share=0.5, slow_s=1.0))
    control = Control(story)
    for node in range(3):
        story.answer(node)
    for node in range(3):
        story.allocate(f"j{node}", {node: [0, 1]})
    story.run(2_500)
    assert len(story.told(AttemptStarted)) == 3
    story.run(draw.randrange(0, 4_000))
    story.fleet.on_event(PoolCreated.model_validate({"pool": "p", "partition": NEW}), None, story.now_ms)
    down: set[int] = set()
    for _ in range(40):
        story.run(draw.randrange(0, 400), acks=draw.random() < 0.7)
        control.take(draw.choice((0, 0, 1, 3)))
        node = draw.randrange(3)
        if node in down:
            story.fleet._by_index[node].start_agent(story.now_ms)
            down.discard(node)
        elif draw.random() < 0.15:
            story.fleet._by_index[node].stop_agent()
            down.add(node)
    for node in down:
        story.fleet._by_index[node].start_agent(story.now_ms)
    drained(story, control)
    for index, name in enumerate(story.fleet.nodes):
        came = control.of(name)
        ways = [by_old for _, by_old in came]
        assert ways == sorted(ways, reverse=True), f"{name}: what came by the old partition was overtaken"
        starts = [int(e.incarnation.rsplit("-", 1)[1]) for e, _ in came if isinstance(e, NodeRegistered)]
        assert starts == sorted(starts), f"{name}: a registration of an earlier start came after a later one's"
        told = [type(e) for e, _ in came if getattr(e, "job_id", "") == f"j{index}"]
        for earlier, later in ((AttemptStarted, RankExited), (RankExited, AttemptStopped)):
            assert told.index(earlier) < told.index(later), told
        ranks = {e.rank for e, _ in came if isinstance(e, RankExited)}
        assert ranks == {0, 1}
        assert AttemptStopped in told and story.agent(index).state.control == NEW
    assert story.fleet.empty()


def test_a_node_whose_network_is_down_while_its_pool_moves_follows_it_afterwards() -> None:
    story = stage(nodes=2, durations="5")
    control = Control(story)
    story.allocate("j", {0: [0]})
    story.run(1_000)
    story.strike(0, "silent", 20)
    story.fleet.on_event(PoolCreated.model_validate({"pool": "p", "partition": NEW}), None, story.now_ms)
    story.run(10_000)
    control.take(100)
    assert not [e for e, _ in control.of("p-00000") if isinstance(e, RankExited)] and story.agent(1).state.control == NEW
    story.run(15_000)
    drained(story, control)
    kinds = [type(e) for e, _ in control.of("p-00000")]
    assert kinds[-1] is not NodeRegistered or AttemptStopped in kinds
    assert {RankExited, AttemptStopped} <= set(kinds) and story.agent(0).state.control == NEW


def test_what_a_rank_saved_is_told_before_its_end_that_had_to_wait() -> None:
    story = stage(nodes=1, durations="4")
    control = Control(story)
    story.allocate("j", {0: [0]}, checkpoint={"every_s": 1})
    story.run(1_000)
    story.fleet.on_event(PoolCreated.model_validate({"pool": "p", "partition": NEW}), None, story.now_ms)
    story.run(500)
    story.ask_checkpoint("j")
    story.run(10_000)
    assert not story.told(RankExited), "nothing is sent before the new partition has answered"
    drained(story, control)
    kinds = [type(e) for e, _ in control.of("p-00000") if isinstance(e, RankExited)] and [type(e) for e, _ in control.came]
    assert kinds.index(CheckpointCompleted) < kinds.index(RankExited) < kinds.index(AttemptStopped)


def test_an_agent_of_other_brokers_or_behind_a_halted_partition_begins_at_its_pools() -> None:
    story = stage(nodes=1)
    node = story.fleet._by_index[0]
    node.stop_agent()
    node.disk.control = OLD
    story.fleet.partition = NEW
    node.start_agent(story.now_ms)
    assert story.records.at[-1] == OLD
    story.run(START_PATIENCE_MS - 1)
    assert story.records.at[-1] == OLD
    story.run(2)
    assert story.records.at[-1] == NEW and isinstance(story.records.sent[-1][1].event, NodeRegistered)
