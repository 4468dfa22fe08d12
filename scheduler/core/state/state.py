"""The scheduler's state over one partition: jobs, nodes, pools, promises, and the book that decisions are made from.

Holds: records are frozen and replaced through the methods, which alone keep the book; a fork shares records, and nothing that changes.
The book after any history is what `snapshot` makes of the records of it.
Never: decides.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from trainhouse.events import PoolName, SchedulingPolicy
from trainhouse.events.model.phases import Allotment, Pending, UnderReview
from trainhouse.events.model.policy import Isolation
from trainhouse.events.model.pool import DevicesClaimed, StartReserved
from trainhouse.scheduler.core.cluster.node_filters import ISOLATED_LABEL
from trainhouse.scheduler.core.cluster.shape import Placement
from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.errors import BrokenInvariant
from trainhouse.scheduler.core.queue.entries import Running, Waiting
from trainhouse.scheduler.core.state.book_entries import claim_of, placement_of, reservation_of, running_of, waiting_of
from trainhouse.scheduler.core.state.deadlines import due_ms
from trainhouse.scheduler.core.state.demand import shape_of
from trainhouse.scheduler.core.state.key_bindings import KeptKeys
from trainhouse.scheduler.core.state.pool_records import PoolReader
from trainhouse.scheduler.core.state.records import Job, Node, NodeHealth
from trainhouse.scheduler.core.state.supply import free_of, is_of_same_registration, is_open, positions, shut_of, slots_of


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool on this partition. `grown_at_ms` is when it last got a device that it never had before, None before the first.

    `policy_version` counts policies; 0: the default one. `judged`: no job that waits can be impossible for all that is known.
    """

    name: PoolName
    created: bool = False
    grown_at_ms: int | None = None
    policy_version: int = 0
    judged: bool = True


@dataclass(frozen=True, slots=True)
class Freeze:
    """Placement raised: it waits for other code, for a person's change (`again`: one came), or for its next try."""

    reason: str
    decide_version: int
    at_ms: int
    again: bool = False


@dataclass(frozen=True, slots=True)
class MovedPool:
    """A pool that left this partition for `to_partition`, by the request `move`.

    `jobs`, `keys`, `public_keys`: which jobs, with the nodes that speak for them, and which nodes' keys went with it, for inputs that were
    sent here before; empty once the hand-over is closed. `returned`: the pool is here again, and what arrives here about it still goes the
    long way round, behind what went before it; `redirected`: something did since the last fence was sent.
    """

    to_partition: int
    move: str
    at_ms: int
    jobs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    keys: KeptKeys = field(default_factory=KeptKeys)
    public_keys: frozenset[str] = frozenset()
    closed: bool = False
    returned: bool = False
    redirected: bool = False


@dataclass(frozen=True, slots=True)
class Arriving:
    """The parts of a pool's state that have arrived, in their order."""

    move: str
    from_partition: int
    parts: tuple[str, ...]


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
    claims: dict[str, DevicesClaimed] = field(default_factory=dict)
    reservations: dict[str, StartReserved] = field(default_factory=dict)
    kept_keys: KeptKeys = field(default_factory=KeptKeys)  # of nodes that were forgotten
    book: Book = field(default_factory=Book)
    moved: dict[str, MovedPool] = field(default_factory=dict)
    arriving: dict[str, Arriving] = field(default_factory=dict)
    scheduler_tokens: dict[int, tuple[int, int]] = field(default_factory=dict)
    # Indexes, rebuilt from the above by load.
    active: dict[str, int] = field(default_factory=dict)  # jobs with devices, and when time next asks for something about them
    reviewed: dict[tuple[str, str], int] = field(default_factory=dict)  # how many jobs are under review, by pool and project
    nodes_of_pool: dict[str, tuple[str, ...]] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)  # by index; empty where a node was forgotten
    vacant: list[int] = field(default_factory=list)  # indexes without a node, sorted: the next new node gets the lowest
    forgetting: dict[str, int] = field(default_factory=dict)  # lost nodes that no person closed, and when they are forgotten
    probing: dict[str, int] = field(default_factory=dict)  # nodes whose self test is due, and when
    nodes_by_key: dict[str, frozenset[str]] = field(default_factory=dict)  # by public key
    ordering: dict[str, None] = field(default_factory=dict)  # nodes that wait for orders which their desired state only named
    pool_reader: PoolReader = field(default_factory=PoolReader, compare=False)  # shared by all forks

    def fork(self) -> "ScheduleState":
        """A copy to decide on: changing one leaves the other as it was. Cost: one shallow copy of each table."""
        return replace(
            self,
            pools=dict(self.pools),
            jobs=dict(self.jobs),
            nodes=dict(self.nodes),
            tokens=dict(self.tokens),
            claims=dict(self.claims),
            reservations=dict(self.reservations),
            book=self.book.fork(),
            active=dict(self.active),
            reviewed=dict(self.reviewed),
            nodes_of_pool=dict(self.nodes_of_pool),
            names=list(self.names),
            vacant=list(self.vacant),
            forgetting=dict(self.forgetting),
            kept_keys=self.kept_keys.fork(),
            probing=dict(self.probing),
            ordering=dict(self.ordering),
            moved=dict(self.moved),
            arriving=dict(self.arriving),
            scheduler_tokens=dict(self.scheduler_tokens),
            nodes_by_key=dict(self.nodes_by_key),
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

    def pool(self, name: str) -> Pool:
        """A pool, published or not."""
        return self.pools.get(name) or Pool(PoolName(name))

    # ---- jobs

    def put_job(self, job: Job, now_ms: int) -> None:
        """Adds or replaces a job."""
        self._count_review(self.jobs.get(job.job_id), -1)
        self._count_review(job, 1)
        self.jobs[job.job_id] = job
        if job.allotment is not None:
            self.active[job.job_id] = due_ms(job)
        else:
            self.active.pop(job.job_id, None)
        entry = self.entry_of(job)
        if entry is None:
            self.book.remove(job.job_id, now_ms)
        elif isinstance(entry, Running):
            if entry != self.book.running.get(job.job_id):
                self.book.put_running(entry, now_ms)
        elif entry != self.book.lanes.get(job.job_id):
            if job.job_id in self.book.running:
                self.book.remove(job.job_id, now_ms)
            self.book.put_waiting(entry)

    def restore_job(self, job: Job) -> None:
        """Takes a job in from a snapshot: what it uses is in the restored book already."""
        self._count_review(job, 1)
        self.jobs[job.job_id] = job
        entry = self.entry_of(job)
        if isinstance(entry, Running):
            self.active[job.job_id] = due_ms(job)
            self.book.restore_running(entry)
        elif entry is not None:
            self.book.put_waiting(entry)

    def _count_review(self, job: Job | None, sign: int) -> None:
        if job is None or not isinstance(job.phase, UnderReview):
            return
        key = (str(job.pool), str(job.spec.project))
        count = self.reviewed.pop(key, 0) + sign
        if count:
            self.reviewed[key] = count

    def entry_of(self, job: Job) -> Waiting | Running | None:
        """Returns the book's entry for a job; None of one that has ended."""
        known = self.book.running.get(job.job_id)
        entry = known.job if known is not None else self.book.lanes.get(job.job_id)
        policy = self.book.policy(job.pool)
        run_times, prefer = policy.run_times, policy.topology.prefer or ""
        isolated = policy.isolation is Isolation.REQUIRED
        same_needs = entry is not None and entry.shape.prefer == (job.spec.gang.prefer or prefer)
        same_needs = same_needs and entry is not None and isolated == (ISOLATED_LABEL in dict(entry.shape.labels))
        shape = entry.shape if entry is not None and same_needs else shape_of(job.spec, prefer, isolated)
        if job.allotment is not None:
            return running_of(job, job.allotment, shape, self._placement(job, job.allotment, known), run_times)
        if not isinstance(job.phase, Pending):
            return None
        return waiting_of(job, shape, run_times, self._mask(job.prefer_nodes), self._mask(job.avoid_nodes))

    def _mask(self, node_ids: tuple[str, ...]) -> int:
        mask = 0
        for node_id in node_ids:
            node = self.nodes.get(node_id)
            mask |= 1 << node.index if node is not None else 0
        return mask

    def _placement(self, job: Job, allotment: Allotment, known: Running | None) -> Placement:
        """Returns the placement that an attempt still has: a part that has ended has none, though others go on."""
        left = len(allotment.placements) - len(allotment.ended)
        if known is not None and known.started_ms == allotment.allocated_at_ms and len(known.placement) == left:
            return known.placement
        ended = {e.node_id for e in allotment.ended}
        return placement_of(job, [p for p in allotment.placements if p.node_id not in ended], self.nodes)

    def drop_job(self, job_id: str, now_ms: int) -> None:
        """Forgets a job, with what was promised to it."""
        self._count_review(self.jobs.pop(job_id, None), -1)
        self.active.pop(job_id, None)
        self.drop_claim(job_id)
        self.drop_reservation(job_id)
        self.book.remove(job_id, now_ms)

    # ---- promises

    def put_claim(self, claim: DevicesClaimed) -> None:
        """Devices are kept for a job."""
        self.claims[claim.job_id] = claim
        self.book.hold(claim_of(claim, self.nodes))

    def drop_claim(self, job_id: str) -> None:
        """A claim is over; a job without one has none to lose."""
        if self.claims.pop(job_id, None) is not None:
            self.book.unhold(job_id)

    def put_reservation(self, held: StartReserved) -> None:
        """A start time is held for a job."""
        self.reservations[held.job_id] = held
        self.book.reserve(reservation_of(held, self.nodes))

    def drop_reservation(self, job_id: str) -> None:
        """A start time is held no more."""
        if self.reservations.pop(job_id, None) is not None:
            self.book.unreserve(job_id)

    # ---- nodes and pools

    def put_policy(self, pool: str, policy: SchedulingPolicy, version: int, now_ms: int) -> None:
        """Another policy counts from now on."""
        self.pools[pool] = replace(self.pool(pool), policy_version=version, judged=False)
        before = self.book.policy(pool)
        self.book.set_policy(pool, policy, now_ms)
        if policy.failures.recovery != before.failures.recovery:
            self.index_forgetting()
        if (policy.run_times, policy.topology, policy.isolation) != (before.run_times, before.topology, before.isolation):
            for job_id in sorted(j for j, job in self.jobs.items() if job.pool == pool):
                self.put_job(self.jobs[job_id], now_ms)

    def put_node(self, node: Node, now_ms: int) -> None:
        """Adds or replaces a node; a new one's index must be vacant."""
        old = self.nodes.get(node.node_id)
        if old is None or old.pool != node.pool:
            self._index_pool(old, node)
        self._index_key(old.public_key if old is not None else "", node)
        self.nodes[node.node_id] = node
        if node.trust.probe is not None:
            self.probing[node.node_id] = node.trust.probe.due_ms
        else:
            self.probing.pop(node.node_id, None)
        if node.orders_due:
            self.ordering[node.node_id] = None
        else:
            self.ordering.pop(node.node_id, None)
        self._index_lost(node)
        if old is None:
            self._take_index(node)
        reregistered = old is None or not is_of_same_registration(old, node)
        if old is None or reregistered or is_open(old) != is_open(node):
            self.book.put_node(slots_of(node))
        if old is None or reregistered or old.trust is not node.trust:
            self.book.cluster.shut_devices(node.index, shut_of(node))
        self.book.cluster.set_free(node.index, *free_of(node))
        self.book.marks.change(str(node.pool))
        if old is not None and reregistered and positions(old) != positions(node):
            self._find_again(node, now_ms)

    def drop_node(self, node_id: str, now_ms: int) -> None:
        """Removes a node that nothing names; its index is vacant from then on."""
        self._remove_node(node_id)
        # A bit that a waiting job prefers, or avoids, would be that of another node.
        for job_id in sorted(j for j, job in self.jobs.items() if node_id in job.prefer_nodes or node_id in job.avoid_nodes):
            job = self.jobs[job_id]
            fields = {name: tuple(n for n in getattr(job, name) if n != node_id) for name in ("prefer_nodes", "avoid_nodes")}
            self.put_job(job.model_copy(update=fields), now_ms)

    def drop_pool(self, pool: str, now_ms: int) -> None:
        """Removes a pool with its jobs and nodes, its policy and its past use."""
        for job_id in sorted(j for j, job in self.jobs.items() if job.pool == pool):
            self.drop_job(job_id, now_ms)
        for node_id in self.nodes_of_pool.get(pool, ()):
            self._remove_node(node_id)
        self.pools.pop(pool, None)
        self.book.drop_pool(pool)

    def _remove_node(self, node_id: str) -> None:
        node = self.nodes[node_id]
        self._index_key(node.public_key, node.model_copy(update={"public_key": ""}))
        del self.nodes[node_id]
        self._leave_pool(node)
        for index in (self.probing, self.ordering, self.forgetting):
            index.pop(node_id, None)
        self.names[node.index] = ""
        insort(self.vacant, node.index)
        self.book.drop_node(node.index)

    def next_index(self) -> int:
        """The index of the next new node: the lowest that is vacant."""
        return self.vacant[0] if self.vacant else len(self.names)

    def _take_index(self, node: Node) -> None:
        while len(self.names) <= node.index:
            self.vacant.append(len(self.names))
            self.names.append("")
        self.vacant.remove(node.index)
        self.names[node.index] = node.node_id

    def index_forgetting(self) -> None:
        """Works out anew when lost nodes are forgotten: a policy says after how long."""
        for node in self.nodes.values():
            self._index_lost(node)

    def _index_lost(self, node: Node) -> None:
        if node.health is NodeHealth.LOST and node.lost_at_ms is not None and not node.closed_by_person:
            after_h = self.book.policy(node.pool).failures.recovery.forget_after_h
            self.forgetting[node.node_id] = node.lost_at_ms + round(after_h * 3_600_000)
        else:
            self.forgetting.pop(node.node_id, None)

    def _index_key(self, before: str, node: Node) -> None:
        if before == node.public_key:
            return
        if before and (others := self.nodes_by_key.get(before, frozenset()) - {node.node_id}):
            self.nodes_by_key[before] = others
        elif before:
            self.nodes_by_key.pop(before, None)
        if node.public_key:
            self.nodes_by_key[node.public_key] = self.nodes_by_key.get(node.public_key, frozenset()) | {node.node_id}

    def _index_pool(self, old: Node | None, node: Node) -> None:
        if old is not None:
            self._leave_pool(old)
        inside = self.nodes_of_pool.get(node.pool, ())
        at = bisect_left(inside, node.node_id)
        self.nodes_of_pool[node.pool] = (*inside[:at], node.node_id, *inside[at:])

    def _leave_pool(self, node: Node) -> None:
        inside = self.nodes_of_pool.pop(node.pool)
        at = bisect_left(inside, node.node_id)
        if len(inside) > 1:
            self.nodes_of_pool[node.pool] = inside[:at] + inside[at + 1 :]

    def _find_again(self, node: Node, now_ms: int) -> None:
        """A node reports its devices in another order, or other ones: what is placed there has other positions."""
        for job_id in sorted(self.active):
            job = self.jobs[job_id]
            if job.allotment is not None and any(p.node_id == node.node_id for p in job.allotment.placements):
                running = self.book.running[job_id]
                placement = self._placement(job, job.allotment, None)
                self.book.put_running(replace(running, placement=placement), now_ms)
        for job_id in sorted(self.claims):
            if any(p.node_id == node.node_id for p in self.claims[job_id].parts):
                self.book.hold(claim_of(self.claims[job_id], self.nodes))

    def in_pool(self, pool: str) -> Iterator[Node]:
        """The nodes of a pool, in order of their ids, lost ones included."""
        return (self.nodes[n] for n in self.nodes_of_pool.get(pool, ()))
