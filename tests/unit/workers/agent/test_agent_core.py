"""The agent's machine, driven by hypothesis: any order of commands, reports and time keeps its promises."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.profiles import examples
from trainhouse.events import (
    AttemptStarted,
    AttemptStopped,
    CheckpointRequested,
    Event,
    GangAllocated,
    GangReleased,
    JobSpec,
    LaunchFailed,
    NodeDesiredState,
    NodeLost,
    NodeOrders,
    NodePlacement,
    Order,
    RankExited,
    Resources,
)
from trainhouse.events.model.node import AttemptRef
from trainhouse.workers.agent.core import (
    Action,
    AgentInput,
    AgentState,
    AskCheckpoint,
    AttemptAdopted,
    AttemptKey,
    Command,
    Drain,
    Drained,
    Finish,
    Identity,
    KillTree,
    Launch,
    LaunchDone,
    LaunchRefused,
    RankGone,
    Register,
    Report,
    ShutdownAsked,
    StacksTaken,
    StopAcked,
    Sweep,
    Swept,
    TakeStacks,
    Terminate,
    Tick,
    next_due_ms,
    step,
)
from trainhouse.workers.agent.core.agent_state import MAX_FENCES, Draining, Running, Waiting

ME = Identity("n1", "boot-1", "inc-1", "default")
SPEC = JobSpec.model_validate({"runtime": {"command": ["python", "x.py"]}})


def gang(job: str = "j", epoch: int = 0, devices: tuple[str, ...] = ("d0", "d1"), node: str = "n1", boot: str = "boot-1") -> GangAllocated:
    place = NodePlacement(node_id=node, boot_id=boot, address="127.0.0.1", first_rank=0, devices=devices)
    return GangAllocated(
        job_id=job,
        attempt=epoch,
        epoch=epoch,
        pool="default",
        spec=SPEC,
        spec_sha256="0" * 64,
        placements=(place,),
        master_address="127.0.0.1",
        master_port=1234,
    )


def release(job: str = "j", epoch: int = 0, grace_s: float = 1.0, nodes: tuple[str, ...] = ("n1",)) -> GangReleased:
    return GangReleased(job_id=job, attempt=epoch, epoch=epoch, pool="default", node_ids=nodes, reason="cancelled", grace_s=grace_s)


def desired(*gangs: GangAllocated, incarnation: str = "inc-1") -> NodeDesiredState:
    return NodeDesiredState(node_id="n1", boot_id="boot-1", incarnation=incarnation, pool="default", allocations=gangs)


@dataclass
class Node:
    """A scripted node around the machine: it carries out actions in the simplest way, and holds the machine to its promises."""

    state: AgentState = field(default_factory=lambda: AgentState(ME))
    now_ms: int = 0
    alive: dict[AttemptKey, set[int]] = field(default_factory=dict)
    launching: list[AttemptKey] = field(default_factory=list)
    sweeping: set[AttemptKey] = field(default_factory=set)
    draining: set[AttemptKey] = field(default_factory=set)
    unacked: list[AttemptKey] = field(default_factory=list)
    reports: list[Event] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    launched: list[AttemptKey] = field(default_factory=list)
    killed: list[AttemptKey] = field(default_factory=list)

    def give(self, happened: AgentInput) -> list[Action]:
        self.state, actions = step(self.state, self.now_ms, happened)
        for action in actions:
            self._do(action)
        self.actions += actions
        return actions

    def command(self, event: Event, order: Order | None = None) -> list[Action]:
        return self.give(Command(event, order))

    def _do(self, action: Action) -> None:
        match action:
            case Launch(placement=placement):
                key = action.key
                busy = {*self.alive, *self.launching, *self.sweeping}
                assert not any(k.job_id == key.job_id for k in busy), f"{key} launched over {busy}"
                shares = self.state.attempts[key].allocation.spec.shares_device
                others = [self.state.attempts[k] for k in busy if not (shares and self.state.attempts[k].allocation.spec.shares_device)]
                used = {d for a in others for d in a.placement.devices}
                assert not used & set(placement.devices), "a device has two attempts"
                assert key not in self.launched, "launched twice"
                assert all(k.epoch < key.epoch for k in self.launched if k.job_id == key.job_id), "an old epoch after a newer one"
                self.launching.append(key)
                self.launched.append(key)
            case KillTree(key=key):
                self.killed.append(key)
            case Sweep(key=key):
                self.sweeping.add(key)
            case Drain(key=key):
                assert key not in self.alive
                self.draining.add(key)
            case Report(event=event, stops=stops):
                self.reports.append(event)
                if stops is not None:
                    assert stops not in self.alive and stops not in self.sweeping
                    self.unacked.append(stops)

    def launch_ends(self, well: bool = True) -> None:
        key = self.launching.pop(0)
        if well:
            self.alive[key] = set(self.state.attempts[key].placement.ranks)
            self.give(LaunchDone(key, warm=True))
        else:
            self.give(LaunchRefused(key, "no such script", retryable=False))

    def rank_ends(self, key: AttemptKey, rank: int, code: int | None = 0) -> None:
        self.alive[key].discard(rank)
        if not self.alive[key]:
            del self.alive[key]
        self.give(RankGone(key, rank, code, None if code is not None else 9, "", self.now_ms))

    def settle(self) -> None:
        """Everything that the world owes the machine, and time enough for every grace."""
        for _ in range(50):
            while self.launching:
                self.launch_ends()
            for key in self.killed:
                for rank in sorted(self.alive.get(key, ())):
                    self.rank_ends(key, rank, None)
            self.killed.clear()
            for key in sorted(self.sweeping):
                self.sweeping.discard(key)
                self.give(Swept(key))
            for key in sorted(self.draining):
                self.draining.discard(key)
                self.give(Drained(key))
            while self.unacked:
                self.give(StopAcked(self.unacked.pop()))
            self.now_ms += 100_000
            self.give(Tick())

    def of(self, kind: type[Event]) -> list[Any]:
        return [e for e in self.reports if isinstance(e, kind)]


def test_an_attempt_lives_and_ends() -> None:
    node = Node()
    node.command(gang())
    node.launch_ends()
    assert len(node.of(AttemptStarted)) == 1
    key = AttemptKey("j", 0)
    node.rank_ends(key, 0, 0)
    assert not node.of(AttemptStopped)
    node.rank_ends(key, 1, 3)
    assert [e.exit_code for e in node.of(RankExited)] == [0, 3]
    node.settle()
    assert len(node.of(AttemptStopped)) == 1 and Finish(key) in node.actions
    assert not node.state.attempts


def test_a_newer_epoch_kills_the_older_before_it_starts() -> None:
    node = Node()
    node.command(gang(epoch=0))
    node.launch_ends()
    actions = node.command(gang(epoch=1))
    assert KillTree(AttemptKey("j", 0)) in actions and not any(isinstance(a, Launch) for a in actions)
    node.settle()
    assert node.launched == [AttemptKey("j", 0), AttemptKey("j", 1)]


def test_shares_of_a_device_run_beside_each_other_and_a_whole_one_waits_for_both() -> None:
    node = Node()
    share = SPEC.model_copy(update={"resources": Resources(device_share=300)})
    for job in ("s1", "s2"):
        node.command(gang(job, devices=("d0",)).model_copy(update={"spec": share}))
    node.command(gang("whole", devices=("d0",)))
    assert [k.job_id for k in node.launched] == ["s1", "s2"]
    node.launch_ends()
    node.launch_ends()
    for job in ("s1", "s2"):
        assert [k.job_id for k in node.launched] == ["s1", "s2"]
        node.command(release(job, grace_s=0))
        node.settle()
    assert [k.job_id for k in node.launched] == ["s1", "s2", "whole"]


def test_a_newer_epoch_elsewhere_kills_the_older_here() -> None:
    node = Node()
    node.command(gang(epoch=0))
    node.launch_ends()
    assert KillTree(AttemptKey("j", 0)) in node.command(gang(epoch=1, node="n2"))
    node.settle()
    node.command(gang(epoch=0))
    assert node.launched == [AttemptKey("j", 0)]


def test_a_command_that_is_not_newer_is_dropped() -> None:
    node = Node()
    node.command(gang("a"), Order(0, 5, 1))
    assert node.command(gang("b", devices=("d5",)), Order(0, 5, 1)) == []
    assert node.command(gang("b", devices=("d5",)), Order(0, 4, 9)) == []
    assert node.command(gang("b", devices=("d5",)), Order(1, 1, 0)) != []  # another partition counts for itself
    assert node.command(gang("c", devices=("d6",)), Order(0, 5, 2)) != []


def test_a_release_before_its_allocation_wins() -> None:
    node = Node()
    node.command(release(epoch=3))
    assert [e.epoch for e in node.of(AttemptStopped)] == [3]
    node.command(gang(epoch=3))
    assert not node.launched


def hung_release(grace_s: float = 0.5) -> GangReleased:
    return release(grace_s=grace_s).model_copy(update={"stacks": True})


def test_stacks_of_a_hung_attempt_are_taken_before_its_ranks_are_told_to_end() -> None:
    node = Node()
    node.command(gang())
    node.launch_ends()
    key = AttemptKey("j", 0)
    assert node.command(hung_release()) == [TakeStacks(key, (0, 1), 2_400)]
    assert node.command(hung_release()) == [], "a repeat changes nothing"
    node.now_ms = 700
    assert node.give(Tick()) == []
    assert node.give(StacksTaken(key)) == [Terminate(key)]
    assert node.give(StacksTaken(key)) == []
    node.now_ms = 1_199
    assert node.give(Tick()) == []
    node.now_ms = 1_200
    assert node.give(Tick()) == [KillTree(key)]


def test_stacks_that_do_not_come_delay_the_end_for_a_bounded_time() -> None:
    node = Node()
    node.command(gang())
    node.launch_ends()
    key = AttemptKey("j", 0)
    node.command(hung_release())
    assert next_due_ms(node.state, 0) == 3_000
    node.now_ms = 3_000
    assert node.give(Tick()) == [Terminate(key)]
    node.now_ms = 3_500
    assert node.give(Tick()) == [KillTree(key)]
    assert node.give(StacksTaken(key)) == []


def test_who_hurries_an_end_waits_for_no_stacks() -> None:
    node = Node()
    node.command(gang())
    node.launch_ends()
    node.command(hung_release())
    assert KillTree(AttemptKey("j", 0)) in node.command(gang(epoch=1))
    assert node.give(StacksTaken(AttemptKey("j", 0))) == []


def test_a_release_for_other_nodes_is_not_ours() -> None:
    node = Node()
    node.command(gang())
    node.launch_ends()
    assert node.command(release(nodes=("n2",))) == []


def test_sigterm_then_sigkill_after_the_grace_and_again_while_it_lasts() -> None:
    node = Node()
    node.command(gang())
    node.launch_ends()
    key = AttemptKey("j", 0)
    assert node.command(release(grace_s=2.0)) == [Terminate(key)]
    node.now_ms = 1_999
    assert node.give(Tick()) == []
    node.now_ms = 2_000
    assert node.give(Tick()) == [KillTree(key)]
    node.now_ms = 2_001
    assert node.give(Tick()) == []
    node.now_ms = 60_000
    assert node.give(Tick()) == [KillTree(key)]


def test_a_release_while_it_launches_ends_it_after_the_launch() -> None:
    node = Node()
    node.command(gang())
    assert node.command(release(grace_s=0)) == []
    node.launch_ends()
    assert KillTree(AttemptKey("j", 0)) in node.actions
    node.settle()
    assert len(node.of(AttemptStopped)) == 1


def test_a_release_while_it_waits_never_launches_it() -> None:
    node = Node()
    node.command(gang("a"))
    node.launch_ends()
    node.command(gang("b"))  # the same devices
    node.command(release("b"))
    node.command(release("a"))
    node.settle()
    assert node.launched == [AttemptKey("a", 0)]
    assert {e.job_id for e in node.of(AttemptStopped)} == {"a", "b"}


def test_a_launch_that_fails_is_told_and_ends() -> None:
    node = Node()
    node.command(gang())
    node.launch_ends(well=False)
    node.settle()
    assert [e.retryable for e in node.of(LaunchFailed)] == [False]
    assert len(node.of(AttemptStopped)) == 1 and not node.of(AttemptStarted)


def test_a_placement_of_an_earlier_boot_is_refused() -> None:
    node = Node()
    node.command(gang(boot="boot-0"))
    assert not node.launched and len(node.of(LaunchFailed)) == 1 and len(node.of(AttemptStopped)) == 1


def test_attempts_that_a_desired_state_only_names_go_on_and_their_orders_start_what_is_missing() -> None:
    node = Node()
    node.command(gang("runs"))
    node.launch_ends()
    keeps = [AttemptRef(job_id=job, attempt=0, epoch=0) for job in ("runs", "new")]
    node.command(desired().model_copy(update={"keeps": tuple(keeps)}))
    assert {k.job_id for k in node.state.attempts} == {"runs"} and not node.killed
    orders = (gang("runs"), gang("new", devices=("d7",)))
    told = NodeOrders(node_id="n1", boot_id="boot-1", incarnation="inc-1", pool="default", allocations=orders)
    assert node.command(told.model_copy(update={"incarnation": "inc-0"})) == []
    node.command(told)
    assert {k.job_id for k in node.state.attempts} == {"runs", "new"}


def test_the_desired_state_stops_what_is_not_in_it_and_starts_what_is_missing() -> None:
    node = Node()
    node.command(gang("old"))
    node.launch_ends()
    node.command(desired(gang("new", devices=("d7",))))
    node.settle()
    assert node.launched == [AttemptKey("old", 0), AttemptKey("new", 0)]
    assert [e.job_id for e in node.of(AttemptStopped)] == ["old"]


def test_a_desired_state_for_an_earlier_start_is_nobodys() -> None:
    node = Node()
    node.command(gang())
    node.launch_ends()
    assert node.command(desired(incarnation="inc-0")) == []


def test_a_desired_attempt_that_ended_here_is_reported_again_not_run_again() -> None:
    node = Node()
    node.command(gang())
    node.launch_ends()
    for rank in (0, 1):
        node.rank_ends(AttemptKey("j", 0), rank)
    node.settle()
    node.reports.clear()
    node.command(desired(gang()))
    assert len(node.of(AttemptStopped)) == 1 and node.launched == [AttemptKey("j", 0)]


def test_adopted_attempts_go_on_and_cut_off_launches_are_told() -> None:
    node = Node()
    node.give(AttemptAdopted(gang("runs"), launched=True))
    node.give(AttemptAdopted(gang("cut", devices=("d4",)), launched=False))
    assert isinstance(node.state.attempts[AttemptKey("runs", 0)].phase, Running)
    assert [e.job_id for e in node.of(AttemptStarted)] == ["runs"] and [e.job_id for e in node.of(LaunchFailed)] == ["cut"]
    node.command(desired(gang("runs")))
    assert isinstance(node.state.attempts[AttemptKey("runs", 0)].phase, Running)


def test_a_checkpoint_is_asked_of_a_running_attempt_only() -> None:
    node = Node()
    asked = CheckpointRequested(job_id="j", attempt=0, epoch=0, pool="default", node_ids=("n1",), reason="drain", deadline_ms=9)
    assert node.command(asked) == []
    node.command(gang())
    node.launch_ends()
    assert node.command(asked) == [AskCheckpoint(AttemptKey("j", 0), asked)]


def test_a_node_given_up_registers_again() -> None:
    lost = NodeLost(node_id="n1", boot_id="boot-1", incarnation="inc-1", pool="default", silent_s=9, evidence="", at_ms=0)
    assert any(isinstance(a, Register) for a in Node().command(lost))
    assert Node().command(lost.model_copy(update={"incarnation": "inc-0"})) == []


def test_a_shutdown_stops_all_and_starts_nothing() -> None:
    node = Node()
    node.command(gang("a"))
    node.launch_ends()
    node.command(gang("b"))
    node.give(ShutdownAsked(1_000))
    node.command(gang("c", devices=("d9",)))
    node.settle()
    assert node.launched == [AttemptKey("a", 0)] and not node.state.attempts


def test_an_attempt_that_cannot_be_shipped_is_reported_after_a_bound() -> None:
    node = Node()
    node.command(gang(devices=("d0",)))
    node.launch_ends()
    node.rank_ends(AttemptKey("j", 0), 0)
    node.sweeping.clear()
    node.give(Swept(AttemptKey("j", 0)))
    assert isinstance(node.state.attempts[AttemptKey("j", 0)].phase, Draining)
    node.now_ms += 60_000
    node.give(Tick())
    assert len(node.of(AttemptStopped)) == 1


def test_fences_are_bounded_but_never_forget_what_is_here() -> None:
    state = AgentState(ME)
    state, _ = step(state, 0, Command(gang("kept")))
    for number in range(MAX_FENCES + 50):
        state = state.with_fence(f"j{number}", seen=1)
    assert len(state.fences) <= MAX_FENCES + 1 and state.fence("kept").seen == 0 and state.fence(f"j{MAX_FENCES + 49}").seen == 1


JOBS, EPOCHS = ("a", "b"), st.integers(0, 4)
moves = st.one_of(
    st.tuples(st.just("allocate"), st.sampled_from(JOBS), EPOCHS, st.sampled_from([("d0",), ("d1",), ("d0", "d1")])),
    st.tuples(st.just("elsewhere"), st.sampled_from(JOBS), EPOCHS, st.none()),
    st.tuples(st.just("release"), st.sampled_from(JOBS), EPOCHS, st.sampled_from([0.0, 1.0])),
    st.tuples(st.just("desire"), st.sampled_from(JOBS), EPOCHS, st.none()),
    st.tuples(st.just("launched"), st.booleans(), st.none(), st.none()),
    st.tuples(st.just("exit"), st.integers(0, 3), st.none(), st.none()),
    st.tuples(st.just("swept"), st.none(), st.none(), st.none()),
    st.tuples(st.just("drained"), st.none(), st.none(), st.none()),
    st.tuples(st.just("acked"), st.none(), st.none(), st.none()),
    st.tuples(st.just("time"), st.integers(1, 3_000), st.none(), st.none()),
)


@settings(max_examples=examples(200))
@given(st.lists(moves, max_size=40))
def test_never_two_epochs_of_a_job_nor_two_attempts_of_a_device(script: list[tuple[str, Any, Any, Any]]) -> None:
    """`Node` asserts at every launch and every stop; here any script is played, then the world settles."""
    node = Node()
    for kind, one, two, three in script:
        _play(node, kind, one, two, three)
    node.settle()
    held = {d for k in node.alive for d in node.state.attempts[k].placement.devices}
    for key, attempt in node.state.attempts.items():
        waits = isinstance(attempt.phase, Waiting) and held & set(attempt.placement.devices)
        assert key in node.alive or waits, f"{key} is stuck in {attempt.phase}"
    assert set(node.alive) <= set(node.state.attempts)
    for job in JOBS:
        assert len([k for k in node.alive if k.job_id == job]) <= 1
    stopped = {AttemptKey(e.job_id, int(e.epoch)) for e in node.of(AttemptStopped)}
    assert {k for k in node.launched if k not in node.alive} <= stopped, "an attempt ended and nobody was told"


def _play(node: Node, kind: str, one: Any, two: Any, three: Any) -> None:
    if kind == "allocate":
        node.command(gang(one, two, three))
    elif kind == "elsewhere":
        node.command(gang(one, two, node="n2"))
    elif kind == "release":
        node.command(release(one, two, three))
    elif kind == "desire":
        node.command(desired(gang(one, two)))
    elif kind == "launched" and node.launching:
        node.launch_ends(one)
    elif kind == "exit" and node.alive:
        key = sorted(node.alive)[one % len(node.alive)]
        node.rank_ends(key, min(node.alive[key]))
    elif kind == "swept" and node.sweeping:
        node.give(Swept(node.sweeping.pop()))
    elif kind == "drained" and node.draining:
        node.give(Drained(node.draining.pop()))
    elif kind == "acked" and node.unacked:
        node.give(StopAcked(node.unacked.pop()))
    elif kind == "time":
        node.now_ms += one
        node.give(Tick())
