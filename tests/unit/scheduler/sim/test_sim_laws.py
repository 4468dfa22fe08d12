"""Laws of whole simulations over random traces, each judged by readers of the outcome alone."""

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support import sim_checks
from tests.support.profiles import examples
from trainhouse.events.model.policy import Backfill, Blocking, Elastic, Order, Packing, Preemption, RunTimes, SchedulingPolicy
from trainhouse.scheduler.core.cycle import cycle as cycle_module
from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.queue.entries import Action, Reserve
from trainhouse.scheduler.sim import loop
from trainhouse.scheduler.sim.loop import simulate
from trainhouse.scheduler.sim.types import Fault, Options, SimNode, TraceJob

NODES = [SimNode(f"n{i}", 4, rack=f"r{i // 2}") for i in range(4)]


@st.composite
def traces(draw: Any, elastic: bool = False) -> list[TraceJob]:
    """Up to 40 gangs of 1..16 devices on a fleet of 16."""
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, 300), st.integers(0, 200), st.sampled_from((1, 1, 1, 2, 3, 4, 6, 8, 12, 16)), st.sampled_from("abc")),
            min_size=1,
            max_size=40,
        )
    )
    return [
        TraceJob(f"j{i:02}", team, submit, duration, gpus, min_gpus=max(1, gpus // 2) if elastic and gpus > 2 else 0)
        for i, (submit, duration, gpus, team) in enumerate(rows)
    ]


POLICIES = st.builds(
    SchedulingPolicy,
    order=st.sampled_from(Order),
    blocking=st.sampled_from(Blocking),
    run_times=st.sampled_from((RunTimes.TRUE, RunTimes.HISTORY)),
    packing=st.sampled_from((Packing.TOPOLOGY, Packing.STRICT_CONSOLIDATE, Packing.BEST_FIT)),
    backfill=st.builds(Backfill, reservations=st.integers(1, 4)),
    elastic=st.just(Elastic(enabled=False)),
)


def judge(jobs: list[TraceJob], policy: SchedulingPolicy, **more: Any) -> None:
    result = simulate(jobs, NODES, policy, **more)
    sim_checks.no_device_twice(result)
    sim_checks.no_partial_gang(result, jobs)
    sim_checks.within_capacity(result, NODES)
    sim_checks.all_end(result)
    assert result.busy_gpu_s == sum(s.devices.bit_count() * (s.to_s - s.from_s) for s in result.segments)
    preempted, failed = (any(getattr(row, what) for row in result.rows) for what in ("preemptions", "faults"))
    assert 0 <= result.lost_to_faults_gpu_s <= result.lost_gpu_s
    assert failed or not result.lost_to_faults_gpu_s
    assert preempted or result.lost_to_faults_gpu_s == result.lost_gpu_s


@settings(max_examples=examples(150))
@given(traces(), POLICIES)
def test_every_gang_runs_whole_and_alone_on_its_devices_and_ends(jobs: list[TraceJob], policy: SchedulingPolicy) -> None:
    judge(jobs, policy)


@settings(max_examples=examples(60))
@given(traces(), POLICIES, st.lists(st.tuples(st.integers(0, 400), st.integers(0, 3), st.integers(1, 100)), max_size=6))
def test_faults_lose_work_and_no_job(jobs: list[TraceJob], policy: SchedulingPolicy, faults: list[tuple[int, int, int]]) -> None:
    judge(
        jobs,
        policy,
        faults=[Fault(at, f"n{node}", "xid", at + length) for at, node, length in faults],
        options=Options(checkpoint_s=30, restart_s=5),
    )


@settings(max_examples=examples(60))
@given(traces(), st.sampled_from((Order.REMAINING, Order.SCORE, Order.FAIR)))
def test_preemption_leaves_nobody_behind(jobs: list[TraceJob], order: Order) -> None:
    policy = SchedulingPolicy(order=order, run_times=RunTimes.TRUE, preemption=Preemption(enabled=True, min_run_s=20, margin=5))
    judge(jobs, policy, options=Options(restart_s=5, checkpoint_s=30))


@settings(max_examples=examples(60))
@given(traces(elastic=True))
def test_elastic_gangs_stay_within_their_sizes_and_end(jobs: list[TraceJob]) -> None:
    policy = SchedulingPolicy(order=Order.SUBMIT, run_times=RunTimes.TRUE, elastic=Elastic(enabled=True, grow_after_s=30))
    judge(jobs, policy, options=Options(restart_s=5))


@settings(max_examples=examples(150))
@given(traces(), st.integers(1, 4), st.sampled_from((Packing.TOPOLOGY, Packing.STRICT_CONSOLIDATE)))
def test_backfill_never_pushes_a_promised_start_back(jobs: list[TraceJob], reservations: int, packing: Packing) -> None:
    keeper = sim_checks.PromiseKeeper()

    def watched(book: Book, now_ms: int) -> list[Action]:
        actions = cycle_module.run_cycle(book, now_ms)
        keeper.see(actions, book, now_ms)
        return actions

    policy = SchedulingPolicy(
        order=Order.SUBMIT,
        run_times=RunTimes.TRUE,
        packing=packing,
        backfill=Backfill(reservations=reservations),
        elastic=Elastic(enabled=False),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "run_cycle", watched)
        simulate(jobs, NODES, policy)
    assert not keeper.promised


ESTIMATED = SchedulingPolicy(
    order=Order.SUBMIT, run_times=RunTimes.HISTORY, backfill=Backfill(reservations=2), elastic=Elastic(enabled=False)
)
BY_ESTIMATED_REST = SchedulingPolicy(
    order=Order.REMAINING,
    run_times=RunTimes.HISTORY,
    packing=Packing.BEST_FIT,
    backfill=Backfill(reservations=4),
    elastic=Elastic(enabled=False),
)
A_PROMISE_FALLS = [
    (0, 28, 1, "a"),
    (0, 102, 1, "b"),
    (1, 100, 4, "c"),
    (26, 139, 12, "a"),
    (27, 0, 1, "a"),
    (27, 2, 6, "a"),
    (180, 169, 3, "c"),
]
AN_ESTIMATE_IS_OUTRUN = [(0, 8, 1, "a"), (19, 129, 6, "b"), (27, 28, 12, "c"), (139, 62, 4, "a"), (117, 90, 1, "a"), (178, 62, 16, "c")]
A_PROMISE_IS_NOT_KEPT = [(0, 0, 1, "a"), (0, 101, 1, "a"), (0, 0, 16, "a"), (3, 18, 16, "c"), (100, 200, 1, "a")]


def rows(*jobs: tuple[int, int, int, str]) -> list[TraceJob]:
    return [TraceJob(f"j{i:02}", team, submit, duration, gpus) for i, (submit, duration, gpus, team) in enumerate(jobs)]


@pytest.mark.parametrize("jobs", [A_PROMISE_FALLS, A_PROMISE_IS_NOT_KEPT], ids=["falls", "is not kept"])
def test_a_promise_that_goes_frees_its_nodes_in_the_same_look(jobs: list[tuple[int, int, int, str]]) -> None:
    look_twice(rows(*jobs), ESTIMATED, may_move=False)


@settings(max_examples=examples(60))
@example(rows(*AN_ESTIMATE_IS_OUTRUN), BY_ESTIMATED_REST)
@given(traces(), POLICIES)
def test_a_second_look_at_the_same_time_finds_nothing(jobs: list[TraceJob], policy: SchedulingPolicy) -> None:
    """Where starts move shares, and shares the order, a next look may find more, and so it may after one that moved a promise, because
    a job outran its estimate; but each such look starts or promises somebody new."""
    look_twice(jobs, policy, may_move=policy.run_times is RunTimes.HISTORY)


def look_twice(jobs: list[TraceJob], policy: SchedulingPolicy, *, may_move: bool) -> None:
    """Simulates with a second look wherever the first did something."""
    by_shares = policy.order in (Order.FAIR, Order.SCORE)

    def again(book: Book, now_ms: int) -> list[Action]:
        actions = cycle_module.run_cycle(book, now_ms)
        found, looks = actions, 0
        while found:
            moved = may_move and any(isinstance(action, Reserve) for action in found)
            for pool in book.pools():
                book.marks.change(pool)
            found, looks = cycle_module.run_cycle(book, now_ms), looks + 1
            assert not found or ((by_shares or moved) and looks <= len(jobs)), found
            actions = actions + found
        return actions

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "run_cycle", again)
        simulate(jobs, NODES, policy)


@settings(max_examples=examples(40))
@given(traces(), POLICIES)
def test_the_same_trace_gives_the_same_outcome(jobs: list[TraceJob], policy: SchedulingPolicy) -> None:
    one, other = simulate(jobs, NODES, policy), simulate(jobs, NODES, policy)
    assert (one.rows, one.segments, one.timeline) == (other.rows, other.segments, other.timeline)
