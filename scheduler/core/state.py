"""The scheduler's state over one partition: jobs, nodes, pools, and the indexes that make decisions cheap.

Holds: records are frozen and replaced through `put_*`, which alone keep the indexes; a fork shares records, and nothing that changes.
Never: decides.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from trainhouse.events import DeviceId, PoolName
from trainhouse.events.phases import Pending
from trainhouse.scheduler.core.errors import BrokenInvariant
from trainhouse.scheduler.core.records import Job, Node

Queue = list[tuple[int, int, str]]


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool on this partition. `grown_at_ms` is when it last got a device that it never had before, None before the first."""

    name: PoolName
    created: bool = False
    grown_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Freeze:
    """Placement raised: it waits for other code, for a person's change, or for its next try."""

    reason: str
    decide_version: int
    at_ms: int


@dataclass(slots=True)
class ScheduleState:
    """All of it. Read the fields; change them through the methods only."""

    partition: int
    pools: dict[str, Pool] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    tokens: dict[int, tuple[int, int]] = field(default_factory=dict)
    next_number: int = 0
    frozen: Freeze | None = None
    # Indexes, rebuilt from the above by load.
    queues: dict[tuple[str, str], Queue] = field(default_factory=dict)
    active: set[str] = field(default_factory=set)
    nodes_of_pool: dict[str, tuple[str, ...]] = field(default_factory=dict)
    free_of_node: dict[str, dict[str, tuple[DeviceId, ...]]] = field(default_factory=dict)
    free_count: dict[tuple[str, str], int] = field(default_factory=dict)

    def fork(self) -> "ScheduleState":
        """A copy to decide on: changing one leaves the other as it was. Cost: one shallow copy of each table."""
        return ScheduleState(
            self.partition,
            dict(self.pools),
            dict(self.jobs),
            dict(self.nodes),
            dict(self.tokens),
            self.next_number,
            self.frozen,
            {k: list(q) for k, q in self.queues.items()},
            set(self.active),
            dict(self.nodes_of_pool),
            dict(self.free_of_node),
            dict(self.free_count),
        )

    def job(self, job_id: str) -> Job:
        """A job that must be known. Raises BrokenInvariant."""
        found = self.jobs.get(job_id)
        if found is None:
            raise BrokenInvariant(f"job {job_id} is not in the state of partition {self.partition}; the journal speaks of it")
        return found

    def node(self, node_id: str) -> Node:
        """A node that must be known. Raises BrokenInvariant."""
        found = self.nodes.get(node_id)
        if found is None:
            raise BrokenInvariant(f"node {node_id} is not in the state of partition {self.partition}; the journal speaks of it")
        return found

    def put_job(self, job: Job) -> None:
        """Adds or replaces a job."""
        self._unindex_job(self.jobs.get(job.job_id))
        self.jobs[job.job_id] = job
        if isinstance(job.phase, Pending):
            insort(self.queues.setdefault(job.queue, []), job.place_in_queue)
        if job.allotment is not None:
            self.active.add(job.job_id)

    def drop_job(self, job_id: str) -> None:
        """Forgets a job."""
        self._unindex_job(self.jobs.pop(job_id, None))

    def _unindex_job(self, job: Job | None) -> None:
        if job is None:
            return
        self.active.discard(job.job_id)
        if not isinstance(job.phase, Pending):
            return
        queue = self.queues[job.queue]
        del queue[bisect_left(queue, job.place_in_queue)]
        if not queue:
            del self.queues[job.queue]

    def put_node(self, node: Node) -> None:
        """Adds or replaces a node."""
        old = self.nodes.get(node.node_id)
        if old is not None:
            self._count(old.pool, self.free_of_node[old.node_id], -1)
        if old is None or old.pool != node.pool:
            self._index_pool(old, node)
        self.nodes[node.node_id] = node
        self.free_of_node[node.node_id] = node.free()
        self._count(node.pool, self.free_of_node[node.node_id], +1)

    def _index_pool(self, old: Node | None, node: Node) -> None:
        if old is not None:
            self.nodes_of_pool[old.pool] = tuple(n for n in self.nodes_of_pool[old.pool] if n != node.node_id)
        self.nodes_of_pool[node.pool] = tuple(sorted((*self.nodes_of_pool.get(node.pool, ()), node.node_id)))

    def _count(self, pool: str, free: dict[str, tuple[DeviceId, ...]], sign: int) -> None:
        for device_type, ids in free.items():
            key = (pool, device_type)
            self.free_count[key] = self.free_count.get(key, 0) + sign * len(ids)

    def in_pool(self, pool: str) -> Iterator[Node]:
        """The nodes of a pool, in order of their ids, lost ones included."""
        return (self.nodes[n] for n in self.nodes_of_pool.get(pool, ()))
