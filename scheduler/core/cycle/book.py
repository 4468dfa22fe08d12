"""The book of one partition: who waits, who runs, what is free. What a cycle reads, and what its actions change.

Holds: the named methods are the only changes of its tables; the book after them is what it would be if it were built anew from its
records, in any order. A fork shares frozen records and nothing that changes. Devices are taken and given at `cluster` (claims at `hold`).
Never: decides; knows events.

This is the joint between the machine of the journal (which keeps a book beside its records), the simulator (which has nothing else),
and the cycle.
"""

from dataclasses import replace

from trainhouse.events.model.policy import SchedulingPolicy
from trainhouse.scheduler.core.cluster.cluster import Cluster
from trainhouse.scheduler.core.cluster.node_slots import NodeSlots
from trainhouse.scheduler.core.cluster.shape import WHOLE, Placement, Shape, ranks_of
from trainhouse.scheduler.core.cycle.dirty_pools import Marks
from trainhouse.scheduler.core.cycle.release_forecast import Ends
from trainhouse.scheduler.core.queue.entries import Claim, Reservation, Running, Waiting
from trainhouse.scheduler.core.queue.estimates import Estimates
from trainhouse.scheduler.core.queue.lanes import Lanes
from trainhouse.scheduler.core.queue.pool_usage import CPUS, MEMORY
from trainhouse.scheduler.core.queue.project_bounds import Bound, ProjectBounds
from trainhouse.scheduler.core.queue.resources import Amounts, amounts_placed
from trainhouse.scheduler.core.queue.usage import Usage

DEFAULT_POLICY = SchedulingPolicy()
MAX_KEPT = 20_000
HOUR_MS = 3_600_000


class Book:
    """All that a cycle knows. `marks` says which pools changed since they were last looked at."""

    __slots__ = (
        "_capacity",
        "_ends",
        "_held",
        "_one_type",
        "bounds",
        "claims",
        "cluster",
        "elastic",
        "estimates",
        "lanes",
        "marks",
        "moves_ms",
        "policies",
        "priorities",
        "reservations",
        "running",
        "usage",
    )

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.lanes = Lanes()
        self.running: dict[str, Running] = {}
        self.reservations: dict[str, Reservation] = {}
        self.claims: dict[str, Claim] = {}
        self.usage = Usage()
        self.estimates = Estimates()
        self.policies: dict[str, SchedulingPolicy] = {}
        self.moves_ms: tuple[int, ...] = ()
        self.marks = Marks()
        self.bounds = ProjectBounds()
        self.elastic: dict[str, int] = {}
        """By pool: how many elastic gangs run."""
        self.priorities: dict[str, dict[int, int]] = {}
        """By pool: how many gangs of each priority run."""
        self._ends: dict[str, Ends] = {}
        self._held: dict[str, Amounts] = {}
        self._one_type: dict[tuple[Shape, int], Amounts] = {}
        self._capacity: dict[str, dict[str, int]] = {}

    def fork(self) -> "Book":
        """A book to try things on: equal now, apart from then on."""
        twin = Book.__new__(Book)
        twin.cluster, twin.lanes, twin.usage = self.cluster.fork(), self.lanes.fork(), self.usage.fork()
        twin.running, twin.reservations, twin.claims = self.running.copy(), self.reservations.copy(), self.claims.copy()
        twin.estimates, twin.policies = self.estimates.fork(), self.policies.copy()
        twin.moves_ms, twin.marks, twin._held = self.moves_ms, self.marks.fork(), self._held.copy()
        twin._capacity, twin.bounds = self._capacity.copy(), self.bounds.fork()
        twin.elastic, twin._one_type = self.elastic.copy(), self._one_type
        twin.priorities = {pool: counts.copy() for pool, counts in self.priorities.items()}
        twin._ends = {pool: ends.fork() for pool, ends in self._ends.items()}
        return twin

    # ---- policies and nodes

    def policy(self, pool: str) -> SchedulingPolicy:
        """The pool's own policy, or the default one."""
        return self.policies.get(pool, DEFAULT_POLICY)

    def set_policy(self, pool: str, policy: SchedulingPolicy, now_ms: int) -> None:
        """From now on this counts. Start times that were held under the old one stay until the next cycle judges them."""
        self.policies[pool] = policy
        self.lanes.set_policy(pool, policy)
        self.usage.set_policy(pool, policy)
        self.marks.change(pool)

    def bound(self, project: str, bound: Bound) -> None:
        """From now on so many jobs of a project may run and wait in each pool."""
        self.bounds.put(project, bound)
        for pool in self.pools():
            self.marks.change(pool)

    def full(self, job: Waiting) -> bool:
        """Whether a job's project has as many jobs in its pool as may run there. Who waits on a claim counts: it is sure to start."""
        bound = self.bounds.of(job.project) if self.bounds else None
        if bound is None or bound.running is None:
            return False
        return self.held_by_project(job) >= bound.running

    def held_by_project(self, job: Waiting) -> int:
        """Returns the number of other jobs of a job's project that have devices of its pool, or a claim on some."""
        pool, project = job.shape.pool, job.project
        waiting = (self.lanes.get(job_id) for job_id in self.claims if job_id != job.job_id and job_id not in self.running)
        claimed = sum(1 for other in waiting if other is not None and (other.shape.pool, other.project) == (pool, project))
        return self.bounds.running(pool, project) + claimed

    def put_node(self, slots: NodeSlots) -> None:
        """Adds a node, or replaces it (closes it, opens it): the cluster, and the capacity that shares are parts of."""
        known = self.cluster.layout.slots
        old = known[slots.index] if slots.index < len(known) else None
        if old == slots:
            return
        self.cluster.put_node(slots)
        if old is not None:
            self._count(old, -1)
        if old is None or old.types != slots.types:
            self._one_type = {}
        self._count(slots, 1)
        self.marks.change(slots.pool)

    def drop_node(self, index: int) -> None:
        """Removes a node of which nothing is taken; another may get its index."""
        old = self.cluster.layout.slots[index]
        if old is not None:
            self.cluster.drop_node(index)
            self._one_type = {}
            self._count(old, -1)
            self.marks.change(old.pool)

    def drop_pool(self, pool: str) -> None:
        """Removes what is left of a pool whose nodes and jobs are gone: its policy, past use and marks."""
        self.policies.pop(pool, None)
        for table in (self.elastic, self.priorities, self._ends, self._capacity):
            table.pop(pool, None)
        self.lanes.drop_pool(pool)
        self.usage.drop_pool(pool)
        self.marks.drop(pool)

    def _count(self, slots: NodeSlots, sign: int) -> None:
        """Capacity counts closed and lost nodes too: a share does not grow because a node is away."""
        capacity = self._capacity[slots.pool] = dict(self._capacity.get(slots.pool, {}))
        for device_type in slots.types:
            capacity[device_type] = capacity.get(device_type, 0) + sign * WHOLE
        capacity[CPUS] = capacity.get(CPUS, 0) + sign * round(slots.cpus * 1000)
        capacity[MEMORY] = capacity.get(MEMORY, 0) + sign * slots.memory
        devices = tuple(sorted((t, milli) for t, milli in capacity.items() if milli and t not in (CPUS, MEMORY)))
        self.usage.set_capacity(slots.pool, Amounts(devices, capacity[CPUS], capacity[MEMORY]))

    def settle(self, now_ms: int) -> None:
        """Notes that a cycle at `now_ms` saw all of this, its actions applied: there is nothing to look for until something changes."""
        for pool in self.pools():
            self.marks.settle(pool, now_ms)

    def pools(self) -> list[str]:
        """All pools that have nodes or jobs, sorted."""
        known = self.cluster.layout.pools
        return sorted([*known, *self.lanes.pools_beside(known)])

    def due(self, pool: str, now_ms: int) -> bool:
        """Whether a look at a pool could find anything: something changed, time alone may have, a retry may start, a held start came."""
        if self.marks.due(pool, now_ms):
            return True
        lanes = self.lanes.of(pool)
        wake_ms = lanes.next_wake_ms()
        if wake_ms is not None and wake_ms <= now_ms:
            return True
        return any(held.start_ms <= now_ms and lanes.get(job_id) is not None for job_id, held in self.reservations.items())

    # ---- jobs

    def put_waiting(self, job: Waiting) -> None:
        """A job waits, or waits with other needs. If it ran, `remove` comes first."""
        self.lanes.put(job)
        self.marks.change(job.shape.pool)

    def put_running(self, running: Running, now_ms: int) -> None:
        """A job runs (it waits no more), or what is known of a running one changed (its save, its leaving, its end)."""
        job = running.job
        old = self.running.get(job.job_id)
        self._track(old, running)
        self.running[job.job_id] = running
        if old is not None and old.placement == running.placement:
            self.marks.change(job.shape.pool)
            return
        if old is not None:
            self.usage.stop(old.job.shape.pool, old.job.team, self._held[job.job_id], now_ms)
        self.lanes.drop(job.job_id)
        held = self._held[job.job_id] = self.amounts(job.shape, running.placement)
        self.usage.start(job.shape.pool, job.team, held, now_ms)
        self.marks.change(job.shape.pool)

    def saved(self, job_id: str, saved_ms: int) -> None:
        """A running gang made a checkpoint. Stopping it costs less now; that alone is no reason to look again."""
        running = self.running.get(job_id)
        if running is not None:
            self.running[job_id] = replace(running, saved_ms=saved_ms)

    def restore_running(self, running: Running) -> None:
        """A job that runs already in the rows that `usage.restore` got: it is not counted twice."""
        self._track(self.running.get(running.job.job_id), running)
        self.running[running.job.job_id] = running
        self._held[running.job.job_id] = self.amounts(running.job.shape, running.placement)
        self.marks.change(running.job.shape.pool)

    def remove(self, job_id: str, now_ms: int) -> None:
        """A job waits and runs no more. Its claim and its held start, if any, go with the next cycle."""
        waiting = self.lanes.drop(job_id)
        if waiting is not None:
            self.marks.change(waiting.shape.pool)
        running = self.running.pop(job_id, None)
        if running is not None:
            pool = running.job.shape.pool
            self._track(running, None)
            self.usage.stop(pool, running.job.team, self._held.pop(job_id), now_ms)
            self.marks.change(pool)

    def _track(self, old: Running | None, new: Running | None) -> None:
        """Keeps expected ends in order, and counts elastic gangs and priorities."""
        if old is not None:
            self.ends_of(old.job.shape.pool).drop(old)
            self._count_running(old, -1)
        if new is not None:
            self.ends_of(new.job.shape.pool).put(new)
            self._count_running(new, 1)

    def _count_running(self, running: Running, sign: int) -> None:
        if running.done:
            return
        job = running.job
        pool, counts = job.shape.pool, self.priorities.setdefault(job.shape.pool, {})
        counts[job.priority] = counts.get(job.priority, 0) + sign
        if not counts[job.priority]:
            del counts[job.priority]
        self.bounds.count(pool, job.project, sign)
        if job.shape.min_ranks:
            self.elastic[pool] = self.elastic.get(pool, 0) + sign

    def ends_of(self, pool: str) -> Ends:
        """Returns the expected ends of a pool's running gangs."""
        found = self._ends.get(pool)
        if found is None:
            found = self._ends[pool] = Ends()
        return found

    def amounts(self, shape: Shape, placement: Placement) -> Amounts:
        """Returns the resources of a placed gang by device type; cached where the pool has one type, since equal gangs hold the same."""
        if len(self.cluster.layout.types(shape.pool)) != 1:
            return self._amounts(shape, placement)
        key = (shape, ranks_of(placement))
        known = self._one_type.get(key)
        if known is None:
            if len(self._one_type) >= MAX_KEPT:
                self._one_type = {}
            known = self._one_type[key] = self._amounts(shape, placement)
        return known

    def _amounts(self, shape: Shape, placement: Placement) -> Amounts:
        slots = self.cluster.layout.slots

        def types_of(node: int) -> tuple[str, ...]:
            found = slots[node] if node < len(slots) else None
            return found.types if found is not None else ()

        return amounts_placed(shape, placement, types_of)

    # ---- promises

    def reserve(self, reservation: Reservation) -> None:
        """A start time is held, or replaced."""
        self.reservations[reservation.job_id] = reservation

    def unreserve(self, job_id: str) -> None:
        """A start time is held no more."""
        self.reservations.pop(job_id, None)

    def hold(self, claim: Claim) -> None:
        """Devices are kept for a job: not free for others, also when those who use them leave."""
        if claim.job_id in self.claims:
            self.unhold(claim.job_id)
        self.claims[claim.job_id] = claim
        self.cluster.claim(claim.placement)

    def unhold(self, job_id: str) -> None:
        """A claim is over; what is free of its devices is free for all."""
        claim = self.claims.pop(job_id, None)
        if claim is not None:
            self.cluster.unclaim(claim.placement)
            self._mark(claim.placement)

    def _mark(self, placement: Placement) -> None:
        for part in placement:
            slots = self.cluster.layout.slots[part.node]
            if slots is not None:
                self.marks.change(slots.pool)

    def moved(self, now_ms: int) -> None:
        """Notes one move (defragmentation); those of the last hour are kept."""
        self.moves_ms = (*(m for m in self.moves_ms if m > now_ms - HOUR_MS), now_ms)
