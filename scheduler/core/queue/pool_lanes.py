"""The waiting jobs of one pool, in lanes.

A lane holds the waiting jobs of one team, project, priority and shape (and, where the policy ranks by them, of about equal run times), in
the order in which they are served. So what cannot be placed leaves a cycle as a whole lane, and a cycle costs lanes and placements, not
jobs.

Holds: what it says depends on the jobs in it only, not on how they came; `heads` has the first job of each lane, in order.
A fork shares lanes until one side writes to one.
Never: decides who is next across teams (order does).
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

from trainhouse.events.model.policy import Order, SchedulingPolicy
from trainhouse.scheduler.core.cluster.shape import Shape
from trainhouse.scheduler.core.queue.entries import Waiting

UNKNOWN_RUN_MS = 1 << 62
"""Where a job without an expected run time sorts: behind all others."""


class Arrangement(StrEnum):
    """Order of the jobs within a lane."""

    BY_NUMBER = "by-number"
    BY_RUN_TIME = "by-run-time"
    GRADED = "graded"


def arrangement(policy: SchedulingPolicy) -> Arrangement:
    """Returns the arrangement for a policy: by run time, by submission in lanes of like run times, or by submission."""
    if policy.order in (Order.SHORTEST, Order.REMAINING):
        return Arrangement.BY_RUN_TIME
    if policy.order is Order.SCORE and policy.score.wait_in_run_times:
        return Arrangement.GRADED
    return Arrangement.BY_NUMBER


class LaneKey(NamedTuple):
    """Key that the jobs of a lane share. `grade_ms`: the top of their class of run times; 0 without classes."""

    team: str
    priority: int
    shape: Shape
    grade_ms: int = 0
    project: str = ""


Entry = tuple[int, int, str, Waiting]
"""(run time or 0, number, job id, job): compares without ever reaching the job."""

Head = tuple[int, int, str, LaneKey]


def grade_ms(run_ms: int | None) -> int:
    """The top of the class of a run time, in milliseconds: four classes to a doubling, so at most a quarter too much."""
    if run_ms is None:
        return UNKNOWN_RUN_MS
    if run_ms < 8:
        return 8
    step = 1 << (run_ms.bit_length() - 3)
    return -(-run_ms // step) * step


class PoolLanes:
    """The lanes of one pool. `put` and `drop` cost microseconds; so does a fork for each few hundred lanes."""

    __slots__ = ("_jobs", "_owned", "_owns_jobs", "_resting", "arranged", "heads", "lanes", "projects", "teams")

    def __init__(self, arranged: Arrangement = Arrangement.BY_NUMBER) -> None:
        self.arranged = arranged
        self.lanes: dict[LaneKey, list[Entry]] = {}
        self.heads: list[Head] = []
        self.teams: dict[str, int] = {}
        self.projects: dict[str, int] = {}
        self._jobs: dict[str, Waiting] = {}
        self._resting: list[tuple[int, int, str, Waiting]] = []
        self._owned: dict[LaneKey, list[Entry]] = {}
        self._owns_jobs = True

    def __len__(self) -> int:
        return len(self._jobs)

    def get(self, job_id: str) -> Waiting | None:
        return self._jobs.get(job_id)

    def jobs(self) -> list[Waiting]:
        """All waiting jobs, those that rest until a later time included, in the order of submission."""
        return sorted(self._jobs.values(), key=lambda w: (w.number, w.job_id))

    def put(self, job: Waiting) -> None:
        """Adds a job, or replaces it. With `not_before_ms` it rests until `wake`."""
        if job.job_id in self._jobs:
            self.drop(job.job_id)
        self._own_jobs()[job.job_id] = job
        self.teams[job.team] = self.teams.get(job.team, 0) + 1
        self.projects[job.project] = self.projects.get(job.project, 0) + 1
        if job.not_before_ms > 0:
            insort(self._resting, (job.not_before_ms, job.number, job.job_id, job))
        else:
            self._enter(job)

    def drop(self, job_id: str) -> Waiting | None:
        """Removes a job; None if it does not wait here."""
        job = self._jobs.get(job_id)
        if job is None:
            return None
        del self._own_jobs()[job_id]
        self.teams[job.team] -= 1
        if not self.teams[job.team]:
            del self.teams[job.team]
        self.projects[job.project] -= 1
        if not self.projects[job.project]:
            del self.projects[job.project]
        if not self._resting or not self._rests_no_more(job):
            self._leave(job)
        return job

    def _rests_no_more(self, job: Waiting) -> bool:
        """Takes it from those that rest, if it is one of them."""
        probe = (job.not_before_ms, job.number, job.job_id)
        at = bisect_left(self._resting, probe)
        if at == len(self._resting) or self._resting[at][:3] != probe:
            return False
        del self._resting[at]
        return True

    def wake(self, now_ms: int) -> None:
        """Lets the jobs into their lanes whose time has come. Cheap when there is none."""
        while self._resting and self._resting[0][0] <= now_ms:
            self._enter(self._resting.pop(0)[3])

    def next_wake_ms(self) -> int | None:
        """Returns the time at which the next resting job may start; None: none rests."""
        return self._resting[0][0] if self._resting else None

    def after(self, key: LaneKey, last: tuple[int, int, str], bound_ms: int | None = None) -> Entry | None:
        """The first entry of a lane behind `last`, whatever has left or joined the lane since.

        With `bound_ms`: the first whose expected run time is known and at most that.
        """
        entries = self.lanes.get(key)
        if entries is None or (bound_ms is not None and bound_ms < 0):
            return None
        at = bisect_left(entries, last)
        if at < len(entries) and entries[at][2] == last[2]:
            at += 1
        if bound_ms is None:
            return entries[at] if at < len(entries) else None
        for entry in islice(entries, at, None):
            run_ms = entry[3].run_ms
            if run_ms is not None and run_ms <= bound_ms:
                return entry
            if self.arranged is Arrangement.BY_RUN_TIME:
                return None
        return None

    def walk(self, key: LaneKey) -> Iterator[Waiting]:
        """The jobs of a lane in order."""
        return (entry[3] for entry in self.lanes.get(key, ()))

    def key_of(self, job: Waiting) -> LaneKey:
        """The lane of a job."""
        grade = grade_ms(job.run_ms) if self.arranged is Arrangement.GRADED else 0
        return LaneKey(job.team, job.priority, job.shape, grade, job.project)

    def fork(self) -> "PoolLanes":
        """A copy that shares no change."""
        twin = PoolLanes(self.arranged)
        twin.lanes, twin.heads, twin.teams = self.lanes.copy(), self.heads.copy(), self.teams.copy()
        twin.projects = self.projects.copy()
        twin._jobs, twin._resting = self._jobs, self._resting.copy()
        twin._owns_jobs = self._owns_jobs = False
        self._owned = {}
        return twin

    def _entry(self, job: Waiting) -> Entry:
        if self.arranged is Arrangement.BY_RUN_TIME:
            return (UNKNOWN_RUN_MS if job.run_ms is None else job.run_ms, job.number, job.job_id, job)
        return (0, job.number, job.job_id, job)

    def _own_jobs(self) -> dict[str, Waiting]:
        if not self._owns_jobs:
            self._jobs, self._owns_jobs = self._jobs.copy(), True
        return self._jobs

    def _own_lane(self, key: LaneKey) -> list[Entry]:
        lane = self._owned.get(key)
        if lane is None:
            lane = self._owned[key] = self.lanes[key] = self.lanes.get(key, []).copy()
        return lane

    def _enter(self, job: Waiting) -> None:
        key, entry = self.key_of(job), self._entry(job)
        lane = self._own_lane(key)
        if not lane or entry < lane[0]:
            if lane:
                self._unhead(lane[0])
            insort(self.heads, (entry[0], entry[1], entry[2], key))
        insort(lane, entry)

    def _leave(self, job: Waiting) -> None:
        key, entry = self.key_of(job), self._entry(job)
        lane = self._own_lane(key)
        at = bisect_left(lane, entry[:3])
        del lane[at]
        if at == 0:
            self._unhead(entry)
            if lane:
                insort(self.heads, (lane[0][0], lane[0][1], lane[0][2], key))
            else:
                del self.lanes[key]
                del self._owned[key]

    def _unhead(self, entry: Entry) -> None:
        del self.heads[bisect_left(self.heads, entry[:3])]
