"""One pass over a pool's waiting gangs in the order of its policy: who starts now, and who gets a promised start.

Under `strict` the first gang that does not fit ends the pass. Under `skip` it blocks no other. Under `backfill` the first such gangs get a
promise each (a start time and nodes), and those behind them start only where no promise is touched: on other nodes, or if they end in time.

Holds: a promise is kept as it is until its gang starts, its time passes, its nodes close, or a new job comes ahead; a gang with a
promise that starts earlier touches no other promise. A team's quota stops that team only, a project's limit
that project only.
Never: stops a running gang.
"""

from trainhouse.events.model.policy import Blocking, RunTimes, SchedulingPolicy
from trainhouse.scheduler.core.cluster.free_index import count_in
from trainhouse.scheduler.core.cluster.place import place
from trainhouse.scheduler.core.cluster.shape import WHOLE, Placement, Shape, ranks_of
from trainhouse.scheduler.core.cycle.affinity import place_near
from trainhouse.scheduler.core.cycle.apply_actions import apply
from trainhouse.scheduler.core.cycle.backfill import earliest, nodes_of
from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.cycle.device_variants import variants
from trainhouse.scheduler.core.cycle.reservations import Promises
from trainhouse.scheduler.core.cycle.what_if_cluster import pledged
from trainhouse.scheduler.core.queue.entries import Action, Reservation, Reserve, Start, Unreserve, Waiting
from trainhouse.scheduler.core.queue.order import Turn, in_order
from trainhouse.scheduler.core.queue.pool_lanes import UNKNOWN_RUN_MS
from trainhouse.scheduler.core.queue.resources import amounts_asked

RENEW_MS = 300_000
"""A promise from estimates is looked at again after this: gangs may have ended earlier than was expected of them."""
MOST_PASSES = 8
"""Each pass after the first needs a promise that fell in the one before, so there are hardly ever two; this ends them in any case."""


def place_waiting(book: Book, pool: str, now_ms: int) -> list[Action]:
    """The pass, once more where a promise fell that held a job up; the book is left as if its actions were applied."""
    lanes = book.lanes.of(pool)
    lanes.wake(now_ms)
    if not lanes.heads and not book.reservations:
        return []
    actions: list[Action] = []
    for _ in range(MOST_PASSES):
        one = Pass(book, pool, now_ms)
        found = one.run()
        actions += found
        if not found or not one.unsettled:
            break
    return actions


class Pass:
    """The state of one pass. `_failed`: (shape, ranks, nodes to avoid) that found no place; devices only get fewer within a pass.

    `unsettled`: a job may have been held up by a promise that ended in it, or was passed over in it.
    """

    __slots__ = (
        "_actions",
        "_bays",
        "_book",
        "_failed",
        "_left",
        "_narrowed",
        "_now_ms",
        "_pledged",
        "_policy",
        "_pool",
        "_promises",
        "_quotas",
        "_slots",
        "_stopped",
        "_turn",
        "unsettled",
    )

    def __init__(self, book: Book, pool: str, now_ms: int) -> None:
        self._book, self._pool, self._now_ms = book, pool, now_ms
        self._policy: SchedulingPolicy = book.policy(pool)
        self._turn: Turn = in_order(book.lanes, book.usage, pool, self._policy, now_ms)
        self._promises = Promises(book, pool, now_ms)
        self._slots = self._policy.backfill.reservations if self._policy.blocking is Blocking.BACKFILL else 0
        self._quotas = book.usage.quotas(pool)
        # A job with a claim will hold its devices: no other starts on that part of a quota meanwhile.
        self._pledged = pledged(book, pool) if book.claims and self._quotas.tree.types else None
        self._stopped = self._narrowed = self.unsettled = False
        self._bays = [bay for (of, _), bay in book.cluster.bays.items() if of == pool]
        self._failed: set[tuple[Shape, int, int]] = set()
        self._left: dict[int, int] = {}
        self._actions: list[Action] = []

    def run(self) -> list[Action]:
        """Goes through the gangs until nothing more can start."""
        strict = self._policy.blocking is Blocking.STRICT
        if not strict and not self._slots:
            self._narrow()
        while (job := self._turn.head()) is not None:
            if job.job_id in self._book.claims:
                self._turn.skip()
            elif self._barred(job):
                self._turn.drop_lane()
            elif self._slots > 0:
                self._first(job)
            elif self._start_behind(job):
                self._turn.started()
            elif self._stopped:
                self._turn.drop_lane()
            elif strict:
                break
            else:
                self._give_way(job)
            if self._slots <= 0 and not self._room():
                break
        if self._book.reservations:
            for job_id in self._promises.unkept():
                self._act(Unreserve(job_id))
        return self._actions

    def _narrow(self) -> None:
        """From here on only gangs matter that could start: by the number of free devices, and of those on nodes without a reservation."""
        kept = 0
        for promise in self._promises.ahead:
            kept |= promise.nodes
        self._turn.narrow(self._outside(0), self._outside(kept), self._promises.window_ms())
        self._narrowed = True

    def _outside(self, nodes: int) -> int:
        """Free devices of the pool on other nodes than these."""
        found = self._left.get(nodes)
        if found is None:
            found = 0
            for bay in self._bays:
                found += count_in(bay.by_free, ~nodes) if nodes else bay.free
            self._left[nodes] = found
        return found

    def _room(self) -> bool:
        """Whether anything at all is left to give."""
        for bay in self._bays:
            if bay.free:
                return True
        return bool(self._book.cluster.shares)

    # ---- the first gangs of the order: they start if they can, else they get a promise

    def _first(self, job: Waiting) -> None:
        promise = self._promises.of(job.job_id)
        patient = promise is None and self._promises.came_before(job, self._barred)
        if promise is not None:
            placement = self._as_promised(job, promise)
        else:
            placement = self._fit(job, careful=True) or (None if patient else self._fit(job, careful=False))
        if placement is not None:
            self._start(job, placement)
            self._turn.started()
            return
        if self._stopped:
            self._turn.drop_lane()
            return
        if patient:
            self._pass_over(job)
            return
        self._slots -= 1
        self._promise(job, promise)
        self._turn.skip()
        if not self._slots:
            self._promises.forget_rest()
            self._narrow()

    def _barred(self, job: Waiting) -> bool:
        """Whether its project or its team may start nothing like it now: so neither may those of its lane."""
        return self._book.full(job) or (bool(self._quotas.tree.types) and self._over_quota(job, job.shape.min_ranks or None))

    def _pass_over(self, job: Waiting) -> None:
        """It waited already when those with a promise got it, and shares moved it ahead of them since: the promise comes first."""
        self.unsettled = True
        if self._promises.any_like(job):
            self._turn.skip()
        else:
            self._turn.drop_lane()

    def _as_promised(self, job: Waiting, promise: Reservation) -> Placement | None:
        """Earlier where that touches no other promise; at its time on the nodes that were kept, or anywhere."""
        if promise.start_ms > self._now_ms:
            return self._fit(job, careful=True)
        return self._fit(job, careful=False, only=promise.nodes) or self._fit(job, careful=False)

    def _promise(self, job: Waiting, old: Reservation | None) -> None:
        """Keeps the old promise if it stands, else makes one if that is possible."""
        new = old
        if old is None or not self._stands(old):
            new = earliest(self._book, job, self._policy.packing, self._promises.ahead, self._now_ms)
            if old is not None and new is not None and self._promises.sound(old) and new.start_ms >= old.start_ms:
                new = Reservation(old.job_id, old.start_ms, old.nodes, self._now_ms)
        if new is None:
            return
        made = new is not old and new != old
        if made:
            self._act(Reserve(new))
        self._promises.keep(new, made=made)

    def _stands(self, promise: Reservation) -> bool:
        if not self._promises.sound(promise):
            return False
        return self._policy.run_times is RunTimes.TRUE or self._now_ms - promise.made_ms < RENEW_MS

    # ---- those behind

    def _start_behind(self, job: Waiting) -> bool:
        placement = self._fit(job, careful=True)
        if placement is not None:
            self._start(job, placement)
        return placement is not None

    def _give_way(self, job: Waiting) -> None:
        """It did not fit. With its shape, only those may that some promise stops no more because they are shorter: else none."""
        shape = job.shape
        if shape.milli == WHOLE and shape.least_ranks > self._outside(0):
            self._turn.drop_shape()
        elif shape.min_ranks and job.run_ms is not None and job.run_ms <= self._promises.window_ms():
            self._turn.skip()
        else:
            window_ms = self._promises.window_ms(job.run_ms if not shape.min_ranks else None)
            self._turn.bound_shape(window_ms if window_ms > 0 else -1)

    # ---- fitting

    def _fit(self, job: Waiting, *, careful: bool, only: int | None = None) -> Placement | None:
        """Devices for a gang; an elastic one takes what there is, down to its least size. `careful`: touches no promise.

        A gang of any type gets one that its team's quota allows; `_stopped` says that devices were there, and the quota alone refused.
        """
        shape, self._stopped = job.shape, False
        for ranks in _sizes(shape, self._book.cluster.free(self._pool) if shape.min_ranks else 0):
            run_ms = None if job.run_ms is None else max(1, -(-job.run_ms * shape.ranks // ranks))
            avoid = self._promises.kept_from(job.job_id, run_ms, careful)
            placement = self._place(job, shape, ranks, avoid, only)
            if placement is not None and self._quotas.tree.types and self._over_quota(job, ranks, placement):
                placement, self._stopped = self._of_another_type(job, ranks, avoid, only), True
            if placement is not None:
                self._stopped = False
                return placement
        return None

    def _of_another_type(self, job: Waiting, ranks: int, avoid: int, only: int | None) -> Placement | None:
        for variant in variants(self._book, job.shape):
            placement = self._place(job, variant, ranks, avoid, only)
            if placement is not None and not self._over_quota(job, ranks, placement):
                return placement
        return None

    def _place(self, job: Waiting, shape: Shape, ranks: int, avoid: int, only: int | None) -> Placement | None:
        key = (shape, ranks, avoid)
        if only is None and (key in self._failed or (shape.milli == WHOLE and ranks > self._outside(avoid))):
            return None
        if only is None and (job.prefer or job.shun):
            near = place_near(self._book.cluster, job, shape, self._policy.packing, ranks, avoid)
            if near is not None:
                return near
        placement = place(self._book.cluster, shape, self._policy.packing, ranks=ranks, avoid=avoid, only=only)
        if placement is None and only is None:
            self._failed.add(key)
        return placement

    def _over_quota(self, job: Waiting, ranks: int | None, placement: Placement | None = None) -> bool:
        """Whether its team may not hold so much: of the types that it asks for, or that it was given."""
        asked = amounts_asked(job.shape, ranks) if placement is None else self._book.amounts(job.shape, placement)
        if self._quotas.may_start(job.team, asked) is not None:
            return True
        return self._pledged is not None and self._pledged.may_start(job.team, asked) is not None

    def _start(self, job: Waiting, placement: Placement) -> None:
        if not self._promises.none:
            if self._promises.of(job.job_id) is not None:
                self._act(Unreserve(job.job_id))
            run_ms = UNKNOWN_RUN_MS if job.run_ms is None else job.run_ms * job.shape.ranks // ranks_of(placement)
            self._promises.started(job.job_id, nodes_of(placement), run_ms)
        self._act(Start(job.job_id, placement))
        if self._pledged is not None:
            self._pledged.add(job.team, self._book.amounts(job.shape, placement))

    def _act(self, action: Action) -> None:
        apply(self._book, action, self._now_ms)
        self._actions.append(action)
        if isinstance(action, Start):
            self._left = {}
            if self._narrowed:
                self._turn.fewer(self._outside(0))
        elif isinstance(action, Unreserve):
            self.unsettled = True


def _sizes(shape: Shape, free: int) -> tuple[int, ...]:
    """Numbers of ranks to try, the most first: whole groups and replicas of the model."""
    if not shape.elastic:
        return (shape.ranks,)
    between = shape.sizes(shape.min_ranks, min(shape.ranks, free))[-1:]
    return tuple(dict.fromkeys((shape.ranks, *between, shape.min_ranks)))
