"""Laws of the scheduler's machine, under any history of jobs, policies, failures, losses, repeats and delays that Hypothesis thinks of.

No device in two gangs; no part of a gang; no team beyond its limit; nothing new on a closed node; folding any prefix of the journal gives
the snapshot of it, and a loaded snapshot decides as the state that was folded; the bounds of batches change nothing; and once the faults
stop, every job ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.core_fleet import SimAgent
from tests.support.core_world import Driver, admitted, degraded, diverged, ending_with_a_tick, hung, policy_changed, token
from tests.support.profiles import examples
from trainhouse.events import (
    CancelJob,
    CordonNode,
    DrainNode,
    Event,
    GangAllocated,
    JobStatus,
    NodeRegistered,
    QuarantineNode,
    Restriction,
    UncordonNode,
    event_class,
)
from trainhouse.events.model.phases import PartEnd
from trainhouse.events.wire import topics
from trainhouse.events.wire.journal import ClockTicked
from trainhouse.scheduler.core.protocol.machine import Input

NODES = {"a": 2, "b": 2, "c": 3}
TEAMS = ("default", "lm", "vision")
POLICIES: list[dict[str, Any]] = [
    {},
    {"blocking": "strict", "order": "submit"},
    {"blocking": "skip", "order": "fair", "run_times": "limits"},
    {"preemption": {"enabled": True, "min_run_s": 5, "margin": 5}, "elastic": {"enabled": True, "grow_after_s": 1}},
    {
        "preemption": {"enabled": True, "min_run_s": 0, "checkpoint_deadline_s": 0},
        "teams": [{"name": "lm", "guaranteed": {"any": 4}, "limit": {"any": 6}}, {"name": "vision", "limit": {"any": 6}}],
    },
    {"defragmentation": {"enabled": True, "min_gain": 1}, "preemption": {"enabled": True, "min_run_s": 0}},
]
SEEN: Counter[str] = Counter()
pick = st.integers(0, 10**6)


class Fleet(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver()
        self.agents = {name: SimAgent(name, slots) for name, slots in NODES.items()}
        self.jobs = 0
        self.said: list[Event] = []
        self.dumps: list[bytes] = []
        self.given_up: dict[str, set[str]] = {}
        self.fresh: list[GangAllocated] = []

    def feed(self, *events: Any) -> None:
        """A batch must decide as its inputs one by one do."""
        d, m = self.driver, self.driver.machine
        single = m.load(m.dump(d.state))
        one_by_one: list[Event] = []
        for event in ending_with_a_tick(events):
            inputs: list[Input] = [d._input(event)]
            decisions = m.decide(single, d.now_ms, inputs)
            single = m.fold(single, d.now_ms, inputs, decisions)
            one_by_one += decisions
        assert d.feed(*events) == one_by_one
        self.fresh = [x for x in one_by_one if isinstance(x, GangAllocated)]
        self.one_attempt_at_a_time(self.fresh)
        closed = {n.node_id for n in d.state.nodes.values() if n.restriction is not Restriction.NONE}
        assert not closed & {p.node_id for g in self.fresh for p in g.placements}, "a closed node got a gang"
        given = {device for g in self.fresh for p in g.placements for device in p.devices}
        bad = {device for n in d.state.nodes.values() for device in n.trust.closed_devices}
        assert not given & bad, "a bad device got a rank"
        self.dumps.append(m.dump(d.state))
        assert m.dump(single) == self.dumps[-1]

    def one_attempt_at_a_time(self, gangs: list[GangAllocated]) -> None:
        """A job gets its next gang when no rank of an older one is alive, but on a node that was given up."""
        for gang in gangs:
            alive = {a.name for a in self.agents.values() if any(k[0] == gang.job_id for k in a.running)}
            assert alive <= self.given_up.get(gang.job_id, set()), f"{gang.job_id} still runs on {alive}"

    @property
    def orders(self) -> list[Event]:
        return [e.event for e in self.driver.effects if e.topic == topics.ALLOCATIONS]

    def agent(self, n: int) -> SimAgent:
        return self.agents[sorted(self.agents)[n % len(self.agents)]]

    @initialize()
    def begin(self) -> None:
        for agent in self.agents.values():
            agent.register()
            self.say(agent, 1)

    def say(self, agent: SimAgent, count: int) -> None:
        reports, agent.outbox = agent.outbox[:count], agent.outbox[count:]
        self.said += [r for r in reports if not isinstance(r, NodeRegistered)]
        if reports:
            self.feed(*reports)

    @rule(ranks=st.integers(1, 8), priority=st.sampled_from([0, 50]), restarts=st.integers(0, 2), run_time_s=st.sampled_from([None, 20]))
    @precondition(lambda self: self.jobs < 12)
    def submit(self, ranks: int, priority: int, restarts: int, run_time_s: float | None) -> None:
        self.jobs += 1
        limits = {"restarts": restarts, "run_time_s": run_time_s}
        self.feed(token(admitted(f"j{self.jobs}", ranks=ranks, priority=priority, limits=limits), seq=self.jobs))

    @rule(
        gang=st.sampled_from([{"ranks": 6, "min_ranks": 2}, {"ranks": 4, "group_ranks": 2}, {"ranks": 2, "require": "node"}, {"ranks": 1}]),
        priority=st.sampled_from([0, 50, 90]),
        team=st.sampled_from(TEAMS),
    )
    @precondition(lambda self: self.jobs < 12)
    def submit_another_kind(self, gang: dict[str, Any], priority: int, team: str) -> None:
        self.jobs += 1
        resources = {"device_share": 300} if gang["ranks"] == 1 else {}
        more = {"gang": gang, "priority": priority, "team": team, "resources": resources, "limits": {"run_time_s": 500.0}}
        self.feed(token(admitted(f"j{self.jobs}", **more), seq=self.jobs))

    @rule(policy=st.sampled_from(POLICIES))
    def change_policy(self, policy: dict[str, Any]) -> None:
        self.feed(policy_changed(**policy))

    @rule(n=pick, kind=st.sampled_from([CordonNode, DrainNode, QuarantineNode, UncordonNode, UncordonNode]))
    def restrict(self, n: int, kind: type[Event]) -> None:
        self.feed(kind.model_validate({"pool": "default", "node_id": self.agent(n).name}))

    @rule(n=pick, m=pick, step=st.integers(1, 9))
    def train(self, n: int, m: int, step: int) -> None:
        agent = self.agent(n)
        if agent.running:
            agent.train(sorted(agent.running)[m % len(agent.running)], step)

    @rule(n=pick, count=st.integers(1, 5))
    def read(self, n: int, count: int) -> None:
        agent = self.agent(n)
        orders = self.orders[agent.position : agent.position + count]
        agent.position += len(orders)
        for order in orders:
            agent.obey(order)

    @rule(n=pick, count=st.integers(1, 6))
    def speak(self, n: int, count: int) -> None:
        self.say(self.agent(n), count)

    @rule(n=pick, m=pick)
    def speak_out_of_order(self, n: int, m: int) -> None:
        """Reports overtake each other, but never a registration."""
        outbox = self.agent(n).outbox
        free = next((i for i, r in enumerate(outbox) if isinstance(r, NodeRegistered)), len(outbox))
        if free:
            outbox.insert(0, outbox.pop(m % free))
            self.say(self.agent(n), 1)

    @rule(n=pick)
    @precondition(lambda self: self.said)
    def repeat(self, n: int) -> None:
        self.feed(self.said[n % len(self.said)])

    @rule(n=pick, m=pick, code=st.sampled_from([0, 0, 1]))
    def rank_exits(self, n: int, m: int, code: int) -> None:
        ranks = list(self.agent(n).ranks())
        if ranks:
            self.agent(n).exit(*ranks[m % len(ranks)], code)

    @rule(n=pick)
    def agent_restarts(self, n: int) -> None:
        self.agent(n).restart()

    @rule(n=pick)
    def node_reboots(self, n: int) -> None:
        self.agent(n).reboot()

    @rule(n=pick)
    def node_is_given_up(self, n: int) -> None:
        agent = self.agent(n)
        if not any(isinstance(r, NodeRegistered) for r in agent.outbox):
            for hold in self.driver.state.nodes[agent.name].holds:
                self.given_up.setdefault(hold.job_id, set()).add(agent.name)
            self.feed(agent.verdict())
            agent.restart()

    @rule(n=pick, seconds=st.sampled_from([0, 5, 60]))
    def node_goes_away(self, n: int, seconds: int) -> None:
        self.agent(n).notice(self.driver.now_ms + 1000 * seconds)

    @rule(n=pick, m=pick)
    def device_degrades(self, n: int, m: int) -> None:
        agent = self.agent(n)
        self.feed(degraded(f"{agent.name}-{m % agent.slots}", since_ms=self.driver.now_ms, boot_id=f"boot-{agent.boot}"))

    @rule(n=pick, loss=st.booleans())
    def gang_hangs_or_diverges(self, n: int, loss: bool) -> None:
        gangs = [g for a in self.agents.values() for g in a.running.values()]
        if gangs:
            gang = gangs[n % len(gangs)]
            self.feed(diverged(gang) if loss else hung(gang))

    @rule(n=pick)
    @precondition(lambda self: self.jobs)
    def cancel(self, n: int) -> None:
        self.feed(CancelJob.model_validate({"job_id": f"j{n % self.jobs + 1}"}))

    @rule(wait_ms=st.sampled_from([100, 1_000, 20_000]))
    def time_goes_by(self, wait_ms: int) -> None:
        self.driver.now_ms += wait_ms
        self.feed(ClockTicked())

    @invariant()
    def no_device_has_two_gangs(self) -> None:
        for node in self.driver.state.nodes.values():
            held: Counter[str] = Counter()
            for hold in node.holds:
                held.update(dict.fromkeys(hold.devices, hold.device_share))
            assert all(milli <= 1000 for milli in held.values())

    @invariant()
    def what_is_promised_is_kept_for_jobs_that_wait_or_make_way(self) -> None:
        state = self.driver.state
        assert set(state.claims) == set(state.book.claims) and set(state.reservations) == set(state.book.reservations)
        claimed = [(p.node_id, d) for c in state.claims.values() for p in c.parts for d in p.devices]
        assert len(claimed) == len(set(claimed)), "a device is claimed twice"
        assert set(state.claims) | set(state.reservations) <= set(state.jobs)

    @invariant()
    def no_team_is_given_more_than_its_limit(self) -> None:
        policy = self.driver.state.book.policy("default")
        for gang in self.fresh:
            limit = next((t.limit.get("any") for t in policy.teams if t.name == gang.spec.team), None)
            running = [r for r in self.driver.state.book.running.values() if r.job.team == gang.spec.team]
            assert limit is None or sum(p.ranks * p.milli for r in running for p in r.placement) <= 1000 * limit

    @invariant()
    def every_live_part_holds_its_devices(self) -> None:
        for job in self.driver.state.jobs.values():
            if job.allotment is not None:
                ended = {e.node_id for e in job.allotment.ended}
                for part in job.allotment.placements:
                    hold = self.driver.state.nodes[part.node_id].hold_of(job.job_id, job.epoch)
                    stopped = any(e.node_id == part.node_id and e.how is PartEnd.STOPPED for e in job.allotment.ended)
                    assert not (stopped and hold), "a node still holds what it said is gone"
                    assert part.node_id in ended or (hold is not None and hold.devices == part.devices)

    def teardown(self) -> None:
        for gang in self.driver.all(GangAllocated):
            devices = [d for p in gang.placements for d in p.devices]
            asked = gang.spec.gang
            assert asked.least_ranks <= len(devices) == len(set(devices)) <= asked.ranks
        self._faults_stop_and_every_job_ends()
        self._any_prefix_folds_to_its_snapshot()

    def _faults_stop_and_every_job_ends(self) -> None:
        for agent in self.agents.values():
            agent.restart()
        for name in NODES:
            self.feed(UncordonNode.model_validate({"pool": "default", "node_id": name}))
        for _ in range(80):
            for agent in self.agents.values():
                self.read_all(agent)
                for key, rank in list(agent.ranks()):
                    agent.exit(key, rank, 0)
                self.say(agent, len(agent.outbox))
            self.time_goes_by(5_000)
            if not self.driver.state.jobs and not any(a.outbox for a in self.agents.values()):
                break
        assert not self.driver.state.jobs, {j.job_id: (j.phase, j.allotment) for j in self.driver.state.jobs.values()}
        for n in range(1, self.jobs + 1):
            statuses = self.driver.all(JobStatus, job_id=f"j{n}")
            assert [s.public_seq for s in statuses] == [1, *(s.status_seq + 1 for s in statuses[:-1])]
            assert [s.state.final for s in statuses] == [False] * (len(statuses) - 1) + [True]
        assert all(not n.holds for n in self.driver.state.nodes.values())

    def read_all(self, agent: SimAgent) -> None:
        orders = self.orders
        for order in orders[agent.position :]:
            agent.obey(order)
        agent.position = len(orders)

    def _any_prefix_folds_to_its_snapshot(self) -> None:
        m = self.driver.machine
        state = m.initial(0)
        for (now_ms, decisions), dump in zip(self.driver.records, self.dumps, strict=True):
            state = m.fold(state, now_ms, [], [_by_wire(x) for x in decisions])
            assert m.dump(state) == dump


def _by_wire(decision: Event) -> Event:
    """As a reader of the journal gets it."""
    return event_class(decision.event_type).model_validate(orjson.loads(decision.model_dump_json()), extra="ignore")


TestFleet = Fleet.TestCase
TestFleet.settings = settings(max_examples=examples(25), stateful_step_count=30, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("seed", range(12))
def test_long_histories_from_a_seed(seed: int) -> None:
    """Hypothesis finds small histories; these are long ones, in which most steps are ordinary and some are faults."""
    dice, fleet = Random(seed), Fleet()
    fleet.begin()
    for _ in range(250):
        one_step(fleet, dice)
        fleet.no_device_has_two_gangs()
        fleet.every_live_part_holds_its_devices()
        fleet.what_is_promised_is_kept_for_jobs_that_wait_or_make_way()
        fleet.no_team_is_given_more_than_its_limit()
    SEEN.update(type(x).__name__ for x in fleet.driver.decisions)
    SEEN.update(f"{s.state} {s.attempt > 0}" for s in fleet.driver.all(JobStatus))
    fleet.teardown()


def test_the_long_histories_were_not_too_tame_to_prove_anything() -> None:
    wanted = {"StartReserved", "StartUnreserved", "DevicesClaimed", "ClaimDropped", "NodeRestricted", "PolicyApplied", "NodeGivenUp"}
    assert not SEEN or wanted | {"RUNNING True", "PREEMPTED False", "CHECKPOINTING False"} <= set(SEEN)


def one_step(fleet: Fleet, dice: Random) -> None:
    """Draws one step."""
    n, m = dice.randrange(10**6), dice.randrange(10**6)
    ordinary: list[Callable[[], Any]] = [
        lambda: fleet.read(n, dice.randint(1, 5)),
        lambda: fleet.speak(n, dice.randint(1, 6)),
        lambda: fleet.speak_out_of_order(n, m),
        lambda: fleet.rank_exits(n, m, dice.choice([0, 0, 0, 1])),
        lambda: fleet.time_goes_by(dice.choice([100, 1_000, 5_000])),
        lambda: fleet.train(n, m, dice.randint(1, 9)),
    ]
    rare: list[Callable[[], Any]] = [
        lambda: fleet.agent_restarts(n),
        lambda: fleet.node_reboots(n),
        lambda: fleet.node_is_given_up(n),
        lambda: fleet.node_goes_away(n, dice.choice([0, 5, 60])),
        lambda: fleet.device_degrades(n, m),
        lambda: fleet.gang_hangs_or_diverges(n, dice.random() < 0.3),
        lambda: fleet.cancel(n) if fleet.jobs else None,
        lambda: fleet.repeat(n) if fleet.said else None,
        lambda: fleet.change_policy(dice.choice(POLICIES)),
        lambda: fleet.restrict(n, dice.choice([CordonNode, DrainNode, QuarantineNode])),
        lambda: fleet.restrict(n, UncordonNode),
        lambda: fleet.restrict(m, UncordonNode),
        lambda: fleet.restrict(m + 1, UncordonNode),
        lambda: fleet.restrict(m + 2, UncordonNode),
    ]
    if dice.random() < 0.1 and fleet.jobs < 12:
        if dice.random() < 0.5:
            fleet.submit(dice.randint(1, 7), dice.choice([0, 50]), dice.randint(0, 2), dice.choice([None, None, 30.0]))
        else:
            gang = dice.choice([{"ranks": 6, "min_ranks": 2}, {"ranks": 4, "group_ranks": 2}, {"ranks": 1}])
            fleet.submit_another_kind(gang, dice.choice([0, 50, 90]), dice.choice(TEAMS))
    else:
        dice.choice(rare if dice.random() < 0.12 else ordinary)()
