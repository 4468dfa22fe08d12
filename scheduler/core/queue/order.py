"""One pass over a pool's waiting jobs in the order of its policy.

    turn = in_order(lanes, usage, pool, policy, now_ms)
    while (job := turn.head()) is not None:
        turn.started()      its devices are taken, it left the lanes, its team's use counts it
        turn.skip()         it stays; the next job of its lane may come
        turn.drop_lane()    nothing of its lane in this pass
        turn.drop_shape()   nothing with its shape in this pass, of whatever team
        turn.bound_shape(run_ms)   the same, but for jobs that are known to end within `run_ms`

Exactly one of them follows each head. Before any head, `turn.narrow(most, freely, run_ms)` leaves out what cannot start: gangs of more
than `most` devices, and of more than `freely` unless they are known to end within `run_ms`.

Keys, least first: SUBMIT (number); SHORTEST and REMAINING (expected run time, number), unknown ones last; FAIR (share / fair share of the
team, priority, number); SCORE (-score, number). A start counts at once: its team is ranked anew.

Holds: a job that left the lanes meanwhile does not come. Within a lane, jobs come in the lane's order; equal keys in order of submission.
A pass costs lanes + calls x log lanes.
Never: changes lanes or use.
"""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from typing import Protocol

from trainhouse.events.policy import Order, SchedulingPolicy
from trainhouse.scheduler.core.cluster.shape import WHOLE, Shape
from trainhouse.scheduler.core.cycle.entries import Waiting
from trainhouse.scheduler.core.queue.lanes import Lanes
from trainhouse.scheduler.core.queue.pool_lanes import Head, LaneKey, PoolLanes
from trainhouse.scheduler.core.queue.pool_usage import PoolUsage
from trainhouse.scheduler.core.queue.score import POINT, WaitRule, over_share_penalty
from trainhouse.scheduler.core.queue.usage import Usage


class Turn(Protocol):
    """A pass; see the module."""

    def head(self) -> Waiting | None: ...
    def started(self) -> None: ...
    def skip(self) -> None: ...
    def drop_lane(self) -> None: ...
    def drop_shape(self) -> None: ...
    def bound_shape(self, run_ms: int) -> None: ...
    def narrow(self, most: int, freely: int, run_ms: int) -> None: ...


def in_order(lanes: Lanes, usage: Usage, pool: str, policy: SchedulingPolicy, now_ms: int) -> "MergedTurn | RankedTurn":
    """A pass over the jobs that may start now. Wakes those whose rest is over."""
    waiting = lanes.of(pool)
    waiting.wake(now_ms)
    if policy.order in (Order.FAIR, Order.SCORE):
        return RankedTurn(waiting, usage.of(pool), policy, now_ms)
    return MergedTurn(waiting)


class _Bounds:
    """What a pass has learned about shapes: up to which run time their jobs may still come; -1: none may."""

    __slots__ = ("_bounds",)

    def __init__(self) -> None:
        self._bounds: dict[Shape, int] = {}

    def set(self, shape: Shape, run_ms: int) -> None:
        self._bounds[shape] = min(run_ms, self._bounds.get(shape, run_ms))

    def of(self, shape: Shape) -> int | None:
        return self._bounds.get(shape) if self._bounds else None

    def allow(self, job: Waiting) -> bool:
        bound = self._bounds.get(job.shape) if self._bounds else None
        return bound is None or (job.run_ms is not None and job.run_ms <= bound)


def _narrowed(
    lanes: PoolLanes, bounds: _Bounds, heads: Iterable[tuple[int, int, str, LaneKey]], most: int, freely: int, run_ms: int
) -> Iterator[Head]:
    """Those of the lanes' next jobs that `narrow` leaves in, or their successors."""
    for head in heads:
        shape = head[3].shape
        ranks = shape.least_ranks
        if ranks <= freely or shape.milli < WHOLE:
            yield head
        elif ranks <= most and run_ms > 0:
            bounds.set(shape, run_ms)
            job = lanes.get(head[2])
            if job is not None and job.run_ms is not None and job.run_ms <= run_ms:
                yield head
            elif (entry := lanes.after(head[3], head[:3], run_ms)) is not None:
                yield (entry[0], entry[1], entry[2], head[3])


class MergedTurn:
    """Lanes merged by what their jobs are sorted by: a sorted list of heads is a heap already."""

    __slots__ = ("_bounds", "_heap", "_lanes")

    def __init__(self, lanes: PoolLanes) -> None:
        self._lanes = lanes
        self._heap = lanes.heads.copy()
        self._bounds = _Bounds()

    def head(self) -> Waiting | None:
        """The next job; None: there is no more."""
        while self._heap:
            job = self._lanes.get(self._heap[0][2])
            if job is not None and self._bounds.allow(job):
                return job
            self.skip()
        return None

    def started(self) -> None:
        """The head has its devices."""
        self.skip()

    def skip(self) -> None:
        """The head stays; its lane goes on behind it."""
        place, number, job_id, key = self._heap[0]
        entry = self._lanes.after(key, (place, number, job_id), self._bounds.of(key.shape))
        if entry is None:
            heappop(self._heap)
        else:
            heapreplace(self._heap, (entry[0], entry[1], entry[2], key))

    def drop_lane(self) -> None:
        """Nothing more of the head's lane."""
        heappop(self._heap)

    def drop_shape(self) -> None:
        """Nothing more with the head's shape."""
        self.bound_shape(-1)

    def bound_shape(self, run_ms: int) -> None:
        """With the head's shape only jobs that are known to run at most `run_ms`."""
        self._bounds.set(self._heap[0][3].shape, run_ms)
        self.skip()

    def narrow(self, most: int, freely: int, run_ms: int) -> None:
        """Leaves out what cannot start."""
        self._heap = list(_narrowed(self._lanes, self._bounds, self._heap, most, freely, run_ms))
        heapify(self._heap)


_Ranked = tuple[int, int, int, str, LaneKey, int]
"""(rank before the team's share, priority or 0, number, job id, lane, place in the lane): one lane of a team."""


class RankedTurn:
    """Lanes merged within each team, teams merged by their shares: a start moves one team only."""

    __slots__ = ("_bounds", "_fair", "_lanes", "_now_ms", "_policy", "_teams", "_top", "_usage", "_wait")

    def __init__(self, lanes: PoolLanes, usage: PoolUsage, policy: SchedulingPolicy, now_ms: int) -> None:
        self._lanes, self._usage, self._policy, self._now_ms = lanes, usage, policy, now_ms
        self._wait = WaitRule(policy.score) if policy.order is Order.SCORE else None
        self._fair = usage.fair_shares(lanes.teams)
        self._bounds = _Bounds()
        self._teams: dict[str, list[_Ranked]] = {}
        self._top: list[tuple[float, int, int, str, str]] = []
        self._enter(lanes.heads)

    def _enter(self, heads: Iterable[Head]) -> None:
        """Ranks these lanes, and no others."""
        teams: dict[str, list[_Ranked]] = {}
        ranked = self._ranked
        for place, number, job_id, key in heads:
            entry = ranked(place, number, job_id, key)
            heap = teams.get(key[0])
            if heap is None:
                teams[key[0]] = [entry]
            else:
                heap.append(entry)
        self._teams = teams
        for heap in teams.values():
            if len(heap) > 1:
                heapify(heap)
        self._top = [self._rank(team, heap) for team, heap in self._teams.items()]
        heapify(self._top)

    def head(self) -> Waiting | None:
        """The next job; None: there is no more."""
        while self._top:
            job = self._lanes.get(self._top[0][3])
            if job is not None and self._bounds.allow(job):
                return job
            self.skip()
        return None

    def started(self) -> None:
        """The head has its devices, and its team's use says so."""
        self.skip()

    def skip(self) -> None:
        """The head stays; its lane goes on behind it."""
        heap = self._teams[self._top[0][4]]
        _, _, number, job_id, key, place = heap[0]
        entry = self._lanes.after(key, (place, number, job_id), self._bounds.of(key.shape))
        if entry is None:
            heappop(heap)
        else:
            heapreplace(heap, self._ranked(entry[0], entry[1], entry[2], key))
        self._settle(heap)

    def drop_lane(self) -> None:
        """Nothing more of the head's lane."""
        heap = self._teams[self._top[0][4]]
        heappop(heap)
        self._settle(heap)

    def drop_shape(self) -> None:
        """Nothing more with the head's shape."""
        self.bound_shape(-1)

    def bound_shape(self, run_ms: int) -> None:
        """With the head's shape only jobs that are known to run at most `run_ms`."""
        self._bounds.set(self._teams[self._top[0][4]][0][4].shape, run_ms)
        self.skip()

    def narrow(self, most: int, freely: int, run_ms: int) -> None:
        """Leaves out what cannot start."""
        heads = [(place, number, job_id, key) for heap in self._teams.values() for _, _, number, job_id, key, place in heap]
        self._enter(list(_narrowed(self._lanes, self._bounds, heads, most, freely, run_ms)))

    def _settle(self, heap: list[_Ranked]) -> None:
        """The first team's best lane changed."""
        if heap:
            heapreplace(self._top, self._rank(self._top[0][-1], heap))
        else:
            heappop(self._top)

    def _ranked(self, place: int, number: int, job_id: str, key: LaneKey) -> _Ranked:
        if self._wait is None:
            return (0, key.priority, number, job_id, key, place)
        job = self._lanes.get(job_id)
        assert job is not None, f"{job_id} is in a lane and not among the waiting jobs"
        before_share = (100 - key.priority) * POINT + self._wait.bonus_in(key.grade_ms, job, self._now_ms)
        return (-before_share, 0, number, job_id, key, place)

    def _rank(self, team: str, heap: list[_Ranked]) -> tuple[float, int, int, str, str]:
        share, fair = self._usage.share(team, self._now_ms), self._fair[team]
        first: float = share / fair
        if self._wait is not None:
            first = heap[0][0] + over_share_penalty(share, fair, self._policy.score)
        return (first, heap[0][1], heap[0][2], heap[0][3], team)
