"""Lanes: built in any order they are the same; forks share no change; a pass gives the policy's order."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.support.queue_world import POOL, job, jobs, lanes_of, policies, the_order, turn_of, usage_of
from trainhouse.events.model.policy import Order, SchedulingPolicy
from trainhouse.scheduler.core.queue.entries import Waiting
from trainhouse.scheduler.core.queue.lanes import Lanes
from trainhouse.scheduler.core.queue.resources import amounts_asked

NOW_MS = 10_000_000
BOUND_MS = 60_500


@given(jobs(), policies(), st.randoms(use_true_random=False))
def test_lanes_built_in_any_order_are_the_same(waiting: list[Waiting], policy: SchedulingPolicy, random: Random) -> None:
    shuffled = sorted(waiting, key=lambda w: random.random())
    one, other = lanes_of(waiting, policy), lanes_of(shuffled, policy)
    assert one == other
    assert one.of(POOL).heads == other.of(POOL).heads
    assert list(one.lanes(POOL)) == list(other.lanes(POOL))


@given(jobs(), policies(), st.lists(st.integers(0, 30), max_size=30))
def test_lanes_after_drops_are_the_lanes_of_what_is_left(waiting: list[Waiting], policy: SchedulingPolicy, drops: list[int]) -> None:
    lanes = lanes_of(waiting, policy)
    gone = {f"j{n}" for n in drops}
    for job_id in sorted(gone):
        lanes.drop(job_id)
    left = [w for w in waiting if w.job_id not in gone]
    assert list(lanes.lanes(POOL)) == list(lanes_of(left, policy).lanes(POOL))
    assert lanes.of(POOL).heads == lanes_of(left, policy).of(POOL).heads
    assert lanes.of(POOL).teams == lanes_of(left, policy).of(POOL).teams


@given(jobs(), policies(), st.lists(st.integers(0, 30), max_size=30))
def test_a_fork_shares_no_change(waiting: list[Waiting], policy: SchedulingPolicy, drops: list[int]) -> None:
    lanes = lanes_of(waiting, policy)
    before = list(lanes.lanes(POOL))
    fork = lanes.fork()
    for n in drops:
        fork.drop(f"j{n}")
    assert list(lanes.lanes(POOL)) == before
    other = lanes.fork()
    for n in drops:
        lanes.drop(f"j{n}")
    assert list(other.lanes(POOL)) == before
    assert fork == lanes


@given(jobs(), policies())
def test_a_change_of_policy_rearranges_the_lanes(waiting: list[Waiting], policy: SchedulingPolicy) -> None:
    lanes = lanes_of(waiting, SchedulingPolicy(order=Order.SUBMIT))
    lanes.set_policy(POOL, policy)
    assert list(lanes.lanes(POOL)) == list(lanes_of(waiting, policy).lanes(POOL))


@given(jobs(), policies())
def test_a_pass_that_skips_all_is_sorted_by_the_full_key(waiting: list[Waiting], policy: SchedulingPolicy) -> None:
    usage = usage_of(policy, NOW_MS)
    turn, seen = turn_of(lanes_of(waiting, policy), usage, policy, NOW_MS), []
    while (job := turn.head()) is not None:
        seen.append(job.job_id)
        turn.skip()
    assert seen == the_order(waiting, usage, policy, NOW_MS)


@given(jobs(), policies(), st.lists(st.sampled_from(["started", "skip", "drop_lane", "drop_shape", "bound_shape"]), max_size=60))
def test_a_pass_equals_a_new_sort_after_every_step(waiting: list[Waiting], policy: SchedulingPolicy, steps: list[str]) -> None:
    usage, lanes = usage_of(policy, NOW_MS), lanes_of(waiting, policy)
    turn, left = turn_of(lanes, usage, policy, NOW_MS), list(waiting)
    teams = sorted({w.team for w in waiting})
    for step in steps:
        expected = the_order(left, usage, policy, NOW_MS, teams)
        head = turn.head()
        assert (head.job_id if head else None) == (expected[0] if expected else None)
        if head is None:
            return
        if step == "started":
            lanes.drop(head.job_id)
            usage.start(POOL, head.team, amounts_asked(head.shape), NOW_MS)
        getattr(turn, step)(*((BOUND_MS,) if step == "bound_shape" else ()))
        left = [w for w in left if w.job_id != head.job_id and not dropped(w, head, step, lanes)]


def dropped(one: Waiting, head: Waiting, step: str, lanes: Lanes) -> bool:
    if step == "drop_lane":
        return lanes.of(POOL).key_of(one) == lanes.of(POOL).key_of(head)
    if step == "bound_shape" and one.run_ms is not None and one.run_ms <= BOUND_MS:
        return False
    return step in ("drop_shape", "bound_shape") and one.shape == head.shape


WINDOW_MS = st.sampled_from([0, 1, 60_000, 60_500, 3_600_000, 5_000_000])


@given(
    jobs(),
    policies(),
    st.sampled_from([0, 1, 3, 4]),
    st.sampled_from([0, 1, 4, 8]),
    WINDOW_MS,
    st.integers(0, 30),
    st.sampled_from([0, 1, 4]),
)
def test_a_narrowed_pass_leaves_out_what_cannot_start(
    waiting: list[Waiting], policy: SchedulingPolicy, freely: int, more: int, run_ms: int, when: int, fewer: int
) -> None:
    now_ms, most = 4_000_000, freely + more
    usage = usage_of(policy, now_ms)
    turn = turn_of(lanes_of(waiting, policy), usage, policy, now_ms)
    turn.narrow(most, freely, run_ms)
    known = {w.job_id: w for w in waiting}

    def left_in(job_id: str) -> bool:
        one = known[job_id]
        short = run_ms > 0 and one.run_ms is not None and one.run_ms <= run_ms
        return one.shape.ranks <= freely or (one.shape.ranks <= most and short)

    wanted = [i for i in the_order(waiting, usage, policy, now_ms) if left_in(i)]
    found = []
    while (head := turn.head()) is not None:
        found.append(head.job_id)
        if len(found) == when:
            turn.fewer(fewer)
        turn.skip()
    first, later = wanted[:when] if when else wanted, wanted[when:] if when else []
    assert found == [*first, *(i for i in later if known[i].shape.ranks <= fewer)]


def test_a_resting_job_comes_when_its_time_has_come() -> None:
    policy = SchedulingPolicy(order=Order.SUBMIT)
    lanes = lanes_of([job(1, not_before_ms=500), job(2)], policy)
    usage = usage_of(policy, 0)
    first = turn_of(lanes, usage, policy, 499).head()
    assert first is not None and first.number == 2
    assert lanes.of(POOL).next_wake_ms() == 500
    later = turn_of(lanes, usage, policy, 500).head()
    assert later is not None and later.number == 1
    assert lanes.drop("j1") is not None and "j1" not in lanes


def test_a_job_that_left_meanwhile_does_not_come() -> None:
    for order in (Order.SUBMIT, Order.SCORE):
        policy = SchedulingPolicy(order=order)
        lanes = lanes_of([job(1), job(2), job(3, team="b")], policy)
        turn = turn_of(lanes, usage_of(policy, 0), policy, 0)
        lanes.drop("j1")
        found = turn.head()
        assert found is not None and found.number in (2, 3)
