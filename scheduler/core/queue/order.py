"""One pass over a pool's waiting jobs in the order of its policy.

    turn = in_order(lanes, usage, pool, policy, now_ms)
    while (job := turn.head()) is not None:
        turn.started()      its devices are taken, it left the lanes, its team's use counts it
        turn.skip()         it stays; the next job of its lane may come
        turn.drop_lane()    nothing of its lane in this pass
        turn.drop_shape()   nothing with its shape in this pass, of whatever team
        turn.bound_shape(run_ms)   the same, but for jobs that are known to end within `run_ms`

Exactly one of them follows each head. Before any head, `turn.narrow(most, freely, run_ms)` leaves out what cannot start: gangs of more
than `most` devices, and of more than `freely` unless they are known to end within `run_ms`. `turn.fewer(most)` says later that only so
many devices are left.

Keys, least first: SUBMIT (number); SHORTEST and REMAINING (expected run time, number), unknown ones last; FAIR (share / fair share of the
team, priority, number); SCORE (-score, number). A start counts at once: its team is ranked anew.

Holds: a job that left the lanes meanwhile does not come. Within a lane, jobs come in the lane's order; equal keys in order of submission.
A pass costs lanes + calls x log lanes.
Never: changes lanes or use.
"""

from abc import ABC, abstractmethod
from heapq import heapify, heappop, heapreplace

from trainhouse.events.model.policy import Order, SchedulingPolicy
from trainhouse.scheduler.core.cluster.shape import WHOLE, Shape
from trainhouse.scheduler.core.queue.entries import Waiting
from trainhouse.scheduler.core.queue.lanes import Lanes
from trainhouse.scheduler.core.queue.pool_lanes import Head, LaneKey, PoolLanes, grade_ms
from trainhouse.scheduler.core.queue.pool_usage import PoolUsage
from trainhouse.scheduler.core.queue.score import POINT, WaitRule, over_share_penalty
from trainhouse.scheduler.core.queue.usage import Usage

NO_BOUND = 1 << 62


def in_order(lanes: Lanes, usage: Usage, pool: str, policy: SchedulingPolicy, now_ms: int) -> "Turn":
    """A pass over the jobs that may start now. Wakes those whose rest is over."""
    waiting = lanes.of(pool)
    waiting.wake(now_ms)
    if policy.order in (Order.FAIR, Order.SCORE):
        return RankedTurn(waiting, usage.of(pool), policy, now_ms)
    return MergedTurn(waiting)


class _Bounds:
    """Bounds on the jobs that may still come in a pass: by shape, the longest run time (-1: none); and by `narrow`, for large gangs.

    A bound goes with its class of run times: lanes of longer ones need no look.
    """

    __slots__ = ("_freely", "_most", "_of_shapes", "_window")

    def __init__(self) -> None:
        self._of_shapes: dict[Shape, tuple[int, int]] = {}
        self._most = self._freely = NO_BOUND
        self._window = (NO_BOUND, NO_BOUND)

    def set(self, shape: Shape, run_ms: int) -> None:
        bound = (run_ms, grade_ms(run_ms))
        self._of_shapes[shape] = min(bound, self._of_shapes.get(shape, bound))

    def narrow(self, most: int, freely: int, run_ms: int) -> None:
        self._most, self._freely, self._window = most, freely, (run_ms, grade_ms(run_ms))

    def fewer(self, most: int) -> None:
        self._most = min(self._most, most)

    def of(self, key: LaneKey) -> int | None:
        """Up to which run time jobs of a lane may come; -1: none of them; None: all."""
        shape = key.shape
        ranks, whole = shape.least_ranks, shape.milli >= WHOLE
        if whole and ranks > self._most:
            return -1
        found = self._of_shapes.get(shape) if self._of_shapes else None
        if whole and ranks > self._freely:
            found = self._window if found is None else min(found, self._window)
        if found is None:
            return None
        return found[0] if key.grade_ms <= found[1] else -1

    def left(self, lanes: PoolLanes, head: Head) -> Head | None:
        """Returns the part of a lane that `narrow` leaves, if its next job is this: the same, a later job of it, or nothing."""
        key = head[3]
        shape = key.shape
        ranks = shape.least_ranks
        if ranks <= self._freely or shape.milli < WHOLE:
            return head
        run_ms, grade = self._window
        if ranks > self._most or run_ms <= 0 or key.grade_ms > grade:
            return None
        if 0 < key.grade_ms < grade:
            return head
        job = lanes.get(head[2])
        if job is not None and job.run_ms is not None and job.run_ms <= run_ms:
            return head
        entry = lanes.after(key, head[:3], run_ms)
        return None if entry is None else (entry[0], entry[1], entry[2], key)


class Turn(ABC):
    """A pass; see the module. It looks at the head of its first lane, and goes on with that lane or without it."""

    __slots__ = ("_bounds", "_lanes")

    def __init__(self, lanes: PoolLanes) -> None:
        self._lanes = lanes
        self._bounds = _Bounds()

    @abstractmethod
    def _first(self) -> Head | None:
        """The head of the first lane; None: there is no more."""

    @abstractmethod
    def _go_on(self, bound_ms: int | None) -> None:
        """The first lane goes on behind its head with jobs of at most `bound_ms`, where there is a bound."""

    @abstractmethod
    def started(self) -> None:
        """The head has its devices."""

    @abstractmethod
    def drop_lane(self) -> None:
        """Nothing more of the head's lane."""

    @abstractmethod
    def narrow(self, most: int, freely: int, run_ms: int) -> None:
        """Leaves out what cannot start."""

    def head(self) -> Waiting | None:
        """The next job; None: there is no more."""
        while (first := self._first()) is not None:
            bound = self._bounds.of(first[3])
            if bound is not None and bound < 0:
                self.drop_lane()
                continue
            job = self._lanes.get(first[2])
            if job is not None and (bound is None or (job.run_ms is not None and job.run_ms <= bound)):
                return job
            self._go_on(bound)
        return None

    def skip(self) -> None:
        """The head stays; its lane goes on behind it."""
        self._go_on(self._bounds.of(self._key()))

    def drop_shape(self) -> None:
        """Nothing more with the head's shape."""
        self.bound_shape(-1)

    def bound_shape(self, run_ms: int) -> None:
        """With the head's shape only jobs that are known to run at most `run_ms`."""
        self._bounds.set(self._key().shape, run_ms)
        self.skip()

    def fewer(self, most: int) -> None:
        """Leaves out gangs of more than `most` devices from now on."""
        self._bounds.fewer(most)

    def _key(self) -> LaneKey:
        first = self._first()
        assert first is not None, "a head was there before"
        return first[3]


class MergedTurn(Turn):
    """Lanes merged by what their jobs are sorted by: a sorted list of heads is a heap already."""

    __slots__ = ("_heap",)

    def __init__(self, lanes: PoolLanes) -> None:
        super().__init__(lanes)
        self._heap = lanes.heads.copy()

    def _first(self) -> Head | None:
        return self._heap[0] if self._heap else None

    def started(self) -> None:
        """The head has its devices."""
        self.skip()

    def _go_on(self, bound_ms: int | None) -> None:
        place, number, job_id, key = self._heap[0]
        entry = self._lanes.after(key, (place, number, job_id), bound_ms)
        if entry is None:
            heappop(self._heap)
        else:
            heapreplace(self._heap, (entry[0], entry[1], entry[2], key))

    def drop_lane(self) -> None:
        """Nothing more of the head's lane."""
        heappop(self._heap)

    def narrow(self, most: int, freely: int, run_ms: int) -> None:
        """Leaves out what cannot start."""
        self._bounds.narrow(most, freely, run_ms)
        self._heap = [left for head in self._heap if (left := self._bounds.left(self._lanes, head)) is not None]
        heapify(self._heap)


_Ranked = tuple[int, int, int, Head]
"""(rank before the team's share, priority or 0, number, next job): one lane of a team."""


class RankedTurn(Turn):
    """Lanes merged within each team, teams merged by their shares: a start moves one team only."""

    __slots__ = ("_by_share", "_fair", "_now_ms", "_policy", "_teams", "_top", "_usage", "_wait")

    def __init__(self, lanes: PoolLanes, usage: PoolUsage, policy: SchedulingPolicy, now_ms: int) -> None:
        super().__init__(lanes)
        self._usage, self._policy, self._now_ms = usage, policy, now_ms
        self._wait = WaitRule(policy.score) if policy.order is Order.SCORE else None
        self._fair = usage.fair_shares(lanes.teams)
        self._by_share: dict[str, float] = {}
        """What a team's share makes of its rank."""
        self._teams: dict[str, list[_Ranked]] = {}
        self._top: list[tuple[float, int, int, str, str]] = []
        ranked = self._ranked
        for head in lanes.heads:
            team = head[3].team
            if team not in self._teams:
                self._teams[team] = []
            self._teams[team].append(ranked(head))
        self._merge()

    def _merge(self) -> None:
        for team, heap in self._teams.items():
            heapify(heap)
            if team not in self._by_share:
                self._by_share[team] = self._of_share(team)
        self._top = [self._rank(team, heap) for team, heap in self._teams.items()]
        heapify(self._top)

    def _first(self) -> Head | None:
        return self._teams[self._top[0][4]][0][3] if self._top else None

    def started(self) -> None:
        """The head has its devices, and its team's use says so."""
        team = self._top[0][4]
        self._by_share[team] = self._of_share(team)
        self.skip()

    def _go_on(self, bound_ms: int | None) -> None:
        heap = self._teams[self._top[0][4]]
        place, number, job_id, key = heap[0][3]
        entry = self._lanes.after(key, (place, number, job_id), bound_ms)
        if entry is None:
            heappop(heap)
        else:
            heapreplace(heap, self._ranked((entry[0], entry[1], entry[2], key)))
        self._settle(heap)

    def drop_lane(self) -> None:
        """Nothing more of the head's lane."""
        heap = self._teams[self._top[0][4]]
        heappop(heap)
        self._settle(heap)

    def narrow(self, most: int, freely: int, run_ms: int) -> None:
        """Leaves out what cannot start."""
        bounds, lanes = self._bounds, self._lanes
        bounds.narrow(most, freely, run_ms)
        teams: dict[str, list[_Ranked]] = {}
        for team, heap in self._teams.items():
            kept = []
            for entry in heap:
                left = bounds.left(lanes, entry[3])
                if left is not None:
                    kept.append(entry if left is entry[3] else self._ranked(left))
            if kept:
                teams[team] = kept
        self._teams = teams
        self._merge()

    def _settle(self, heap: list[_Ranked]) -> None:
        """The first team's best lane changed."""
        if heap:
            heapreplace(self._top, self._rank(self._top[0][-1], heap))
        else:
            heappop(self._top)

    def _ranked(self, head: Head) -> _Ranked:
        _, number, job_id, key = head
        if self._wait is None:
            return (0, key.priority, number, head)
        job = self._lanes.get(job_id)
        assert job is not None, f"{job_id} is in a lane and not among the waiting jobs"
        before_share = (100 - key.priority) * POINT + self._wait.bonus_in(key.grade_ms, job, self._now_ms)
        return (-before_share, 0, number, head)

    def _of_share(self, team: str) -> float:
        share, fair = self._usage.share(team, self._now_ms), self._fair[team]
        return share / fair if self._wait is None else over_share_penalty(share, fair, self._policy.score)

    def _rank(self, team: str, heap: list[_Ranked]) -> tuple[float, int, int, str, str]:
        before_share, priority, number, head = heap[0]
        return (before_share + self._by_share[team], priority, number, head[2], team)
