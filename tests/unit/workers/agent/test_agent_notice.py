"""A node that goes away: the machine tells it, has its ranks save in time, and lets nothing outlive the deadline."""

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.workers.agent.test_agent_core import Node, gang, release
from trainhouse.events import AttemptStopped, CheckpointRequested, NodeLost, NodeNoticed, NodeProbeAsked
from trainhouse.workers.agent.core import (
    AskCheckpoint,
    AttemptKey,
    KillTree,
    Noticed,
    NoticeWithdrawn,
    Probe,
    Register,
    Report,
    SessionSeen,
    ShutdownAsked,
    Terminate,
    Tick,
    next_due_ms,
    notice_reports,
)
from trainhouse.workers.agent.core.termination_notice import PATIENCE_MS, Notice

KEY = AttemptKey("j", 0)


def training(talks: bool = True) -> Node:
    """A node with one running gang."""
    node = Node()
    node.command(gang())
    node.launch_ends()
    if talks:
        node.give(SessionSeen(KEY))
    node.actions.clear()
    return node


def asked(then_stop: bool = True) -> CheckpointRequested:
    return CheckpointRequested(
        job_id="j", attempt=0, epoch=0, pool="default", node_ids=("n1",), reason="notice", deadline_ms=99_000, then_stop=then_stop
    )


def test_a_notice_is_told_once_and_again_only_if_the_node_goes_earlier() -> None:
    node = Node(now_ms=1_000)
    for deadline_ms in (60_000, 60_000, 70_000, 20_000, 30_000):
        node.give(Noticed("file", "spot", deadline_ms))
    told = node.of(NodeNoticed)
    assert [(e.deadline_ms, e.at_ms, e.source, e.reason) for e in told] == [
        (60_000, 1_000, "file", "spot"),
        (20_000, 1_000, "file", "spot"),
    ]
    assert (told[0].node_id, told[0].boot_id, told[0].incarnation, told[0].pool) == ("n1", "boot-1", "inc-1", "default")
    assert len({a.event_id for a in node.actions if isinstance(a, Report)}) == 2


def test_the_scheduler_asks_first_and_then_the_agent_does_not() -> None:
    node = training()
    node.give(Noticed("file", "", 60_000))
    assert node.command(asked()) == [AskCheckpoint(KEY, asked())]
    node.now_ms = PATIENCE_MS
    assert node.give(Tick()) == []
    node.now_ms = 57_000
    assert node.give(Tick()) == [Terminate(KEY)]
    node.now_ms = 59_000
    assert node.give(Tick()) == [KillTree(KEY)]


def test_without_an_answer_the_agent_asks_its_ranks_once_to_save_and_stop() -> None:
    node = training()
    node.command(asked(then_stop=False))  # a save that was asked for is no leaving
    node.give(Noticed("signal", "", 12_000))
    node.now_ms = 5_999
    assert node.give(Tick()) == []
    node.now_ms = 6_000
    (ask,) = node.give(Tick())
    assert isinstance(ask, AskCheckpoint) and (ask.request.then_stop, ask.request.deadline_ms) == (True, 12_000)
    assert "signal" in ask.request.reason
    assert node.give(Tick()) == []


def test_ranks_without_a_session_get_a_sigterm_in_time() -> None:
    node = training(talks=False)
    node.give(Noticed("file", "", 60_000))
    assert node.give(Tick()) == []
    node.now_ms = PATIENCE_MS
    assert node.give(Tick()) == [Terminate(KEY)]
    node.now_ms = 59_000
    assert node.give(Tick()) == [KillTree(KEY)]


def test_a_shutdown_is_a_notice_that_ends_who_cannot_save_at_once() -> None:
    node = training(talks=False)
    assert node.give(ShutdownAsked(10_000))[1:] == [Terminate(KEY)]
    node = training()
    (report,) = node.give(ShutdownAsked(10_000))
    assert isinstance(report, Report) and isinstance(report.event, NodeNoticed)
    assert (report.event.source, report.event.deadline_ms) == ("sigterm", 10_000)
    node.now_ms = 5_000
    assert [type(a) for a in node.give(Tick())] == [AskCheckpoint]
    node.settle()
    assert not node.state.attempts and len(node.of(AttemptStopped)) == 1


def test_a_shutdown_after_a_notice_keeps_the_earlier_end() -> None:
    node = training()
    node.give(Noticed("file", "", 4_000))
    node.give(ShutdownAsked(10_000))
    assert len(node.of(NodeNoticed)) == 1
    node.now_ms = 4_000
    assert KillTree(KEY) in node.give(Tick())


def test_a_release_with_a_longer_grace_does_not_outlive_the_node() -> None:
    node = training()
    node.give(Noticed("file", "", 5_000))
    node.command(release(grace_s=60.0))
    node.now_ms = 5_000
    assert KillTree(KEY) in node.give(Tick())


def test_a_withdrawn_notice_lets_the_node_register_anew() -> None:
    node = training()
    node.give(Noticed("azure", "", 60_000))
    assert node.give(NoticeWithdrawn("file")) == []
    (again,) = node.give(NoticeWithdrawn("azure"))
    assert isinstance(again, Register) and node.state.notice is None
    node.now_ms = 60_000
    assert node.give(Tick()) == []
    node.give(ShutdownAsked(1_000))
    assert node.give(NoticeWithdrawn("sigterm")) == []


def test_a_notice_that_is_withdrawn_leaves_what_another_source_says() -> None:
    node = Node()
    node.give(Noticed("file", "the rack is moved", 60_000))
    node.give(Noticed("gcp", "TERMINATE_ON_HOST_MAINTENANCE", 20_000))
    assert any(isinstance(a, Register) for a in node.give(NoticeWithdrawn("gcp")))
    assert [(r.event.source, r.event.deadline_ms) for r in notice_reports(node.state)] == [("file", 60_000)]  # type: ignore[attr-defined]
    node.give(Noticed("gcp", "", 70_000))
    assert node.give(NoticeWithdrawn("gcp")) == [], "the node goes when the other one says"
    assert any(isinstance(a, Register) for a in node.give(NoticeWithdrawn("file"))) and node.state.notice is None


def test_a_notice_is_told_after_each_registration() -> None:
    node = Node()
    assert notice_reports(node.state) == []
    node.give(Noticed("file", "x", 60_000))
    lost = NodeLost(node_id="n1", boot_id="boot-1", incarnation="inc-1", pool="default", silent_s=9, evidence="", at_ms=0)
    assert any(isinstance(a, Register) for a in node.command(lost))
    assert [r.event.deadline_ms for r in notice_reports(node.state)] == [60_000]  # type: ignore[attr-defined]


def test_a_self_test_is_for_this_node_and_this_boot() -> None:
    request = NodeProbeAsked(node_id="n1", boot_id="boot-1", pool="default", probe=1, at_ms=5)
    assert Node().command(request) == [Probe(request)]
    assert Node().command(request.model_copy(update={"boot_id": "boot-0"})) == []
    assert Node().command(request.model_copy(update={"node_id": "n2"})) == []


@given(st.integers(0, 10**6), st.integers(-(10**5), 10**6))
def test_the_moments_of_a_notice_are_in_order(at_ms: int, left_ms: int) -> None:
    notice = Notice("file", "", at_ms, at_ms + left_ms)
    assert at_ms <= notice.ask_ms <= notice.stop_ms <= notice.kill_ms <= max(at_ms, notice.deadline_ms)
    assert left_ms <= 0 or notice.stop_ms - notice.ask_ms >= left_ms / 4 - 2


@given(st.integers(1, 100_000), st.booleans(), st.booleans(), st.lists(st.integers(1, 5_000), max_size=30))
def test_no_rank_outlives_the_deadline_and_the_machine_asks_for_each_tick_that_it_needs(
    left_ms: int, talks: bool, leaving: bool, waits: list[int]
) -> None:
    node = training(talks)
    node.give(ShutdownAsked(left_ms) if leaving else Noticed("file", "", left_ms))
    while (due_ms := next_due_ms(node.state, node.now_ms)) is not None and due_ms <= left_ms:
        node.now_ms = min(due_ms, node.now_ms + (waits.pop() if waits else due_ms))
        node.give(Tick())
        if node.killed:
            break
    assert node.killed == [KEY] and node.now_ms <= left_ms
    asks = [a for a in node.actions if isinstance(a, AskCheckpoint)]
    assert len(asks) == (1 if talks else 0)
