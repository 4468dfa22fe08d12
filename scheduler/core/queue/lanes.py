"""All waiting jobs of a partition: the lanes of its pools, and where each job waits.

Holds: built from the same jobs and policies in any order, it says the same. A job id waits in one pool at most.
Never: drops a job by itself.
"""

from collections.abc import Container, Iterable, Iterator

from trainhouse.events.model.policy import SchedulingPolicy
from trainhouse.scheduler.core.queue.entries import Waiting
from trainhouse.scheduler.core.queue.pool_lanes import LaneKey, PoolLanes, arrangement


class Lanes:
    """The waiting jobs of all pools. `fork` is cheap: lanes are shared until one side writes."""

    __slots__ = ("_pools",)

    def __init__(self, jobs: Iterable[Waiting] = ()) -> None:
        self._pools: dict[str, PoolLanes] = {}
        for job in jobs:
            self.put(job)

    def __len__(self) -> int:
        return sum(len(p) for p in self._pools.values())

    def __contains__(self, job_id: object) -> bool:
        return isinstance(job_id, str) and self.get(job_id) is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lanes) and self._content() == other._content()

    __hash__ = None  # type: ignore[assignment]

    def set_policy(self, pool: str, policy: SchedulingPolicy) -> None:
        """Arranges a pool's lanes as its policy needs them; costs a rebuild only where that changes."""
        wanted, old = arrangement(policy), self.of(pool)
        if old.arranged is not wanted:
            self._pools[pool] = new = PoolLanes(wanted)
            for job in old.jobs():
                new.put(job)

    def drop_pool(self, pool: str) -> None:
        """Forgets a pool, its waiting jobs and how its lanes are arranged."""
        self._pools.pop(pool, None)

    def of(self, pool: str) -> PoolLanes:
        """The lanes of one pool; made empty when it has none yet."""
        found = self._pools.get(pool)
        if found is None:
            found = self._pools[pool] = PoolLanes()
        return found

    def put(self, job: Waiting) -> None:
        """Adds a job to its shape's pool, or replaces it."""
        pool = job.shape.pool
        for name, lanes in self._pools.items():
            if name != pool and lanes.get(job.job_id) is not None:
                lanes.drop(job.job_id)
        self.of(pool).put(job)

    def drop(self, job_id: str) -> Waiting | None:
        """Removes a job; None if it does not wait."""
        for lanes in self._pools.values():
            found = lanes.drop(job_id)
            if found is not None:
                return found
        return None

    def get(self, job_id: str) -> Waiting | None:
        for lanes in self._pools.values():
            found = lanes.get(job_id)
            if found is not None:
                return found
        return None

    def pools(self) -> list[str]:
        """The pools with waiting jobs, sorted."""
        return sorted([name for name, lanes in self._pools.items() if lanes])

    def pools_beside(self, known: Container[str]) -> list[str]:
        """The pools with waiting jobs that are not among the known ones, in no order."""
        return [name for name, lanes in self._pools.items() if name not in known and lanes]

    def jobs(self, pool: str) -> list[Waiting]:
        """A pool's waiting jobs in the order of submission."""
        return self.of(pool).jobs()

    def lanes(self, pool: str) -> Iterator[tuple[LaneKey, list[Waiting]]]:
        """A pool's lanes in the order of their heads, each with its jobs in order. Resting jobs are in none."""
        lanes = self.of(pool)
        for head in list(lanes.heads):
            yield head[3], list(lanes.walk(head[3]))

    def fork(self) -> "Lanes":
        """A copy that shares no change."""
        twin = Lanes()
        twin._pools = {name: lanes.fork() for name, lanes in self._pools.items()}
        return twin

    def _content(self) -> list[tuple[str, str, list[Waiting]]]:
        return [(name, self._pools[name].arranged.value, self._pools[name].jobs()) for name in self.pools()]
