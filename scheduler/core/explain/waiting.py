"""Explanations for each waiting job of a pool, in the order in which the policy serves them.

Holds: every waiting job gets an answer; jobs of one team and shape share the checks, so that thousands of jobs cost hundreds of checks;
the same book and time give the same answers.
Never: changes the book.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from trainhouse.events import JobId, PoolName
from trainhouse.events.model.explanation import JobExplained, Obstacle, Refusal, ScoreTerms
from trainhouse.events.model.policy import Blocking, Order
from trainhouse.scheduler.core.cluster.describe import devices, needs, span
from trainhouse.scheduler.core.cluster.shape import Shape
from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.cycle.release_forecast import likely_end_ms
from trainhouse.scheduler.core.explain.answer import Answer
from trainhouse.scheduler.core.explain.diagnosis import Diagnosis, by_nodes, by_project, by_quota, by_unlisted, fits, quota_refusal
from trainhouse.scheduler.core.queue.entries import Waiting
from trainhouse.scheduler.core.queue.order import in_order
from trainhouse.scheduler.core.queue.quotas import QuotaRefusal
from trainhouse.scheduler.core.queue.score import POINT, score

REFRESH_MS = 120_000
"""An answer's numbers are published anew after this, although its obstacle is the same."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Queue position of a job, from 1, and the ranks and device-milliseconds before it (None: not known)."""

    place: int
    ranks_before: int
    work_before_ms: int | None


def explain_pool(book: Book, pool: str, now_ms: int, frozen: str = "") -> Iterator[Answer]:
    """An answer for each waiting job of a pool. `frozen`: why placement is frozen, if it is."""
    looked = _Look(book, pool, now_ms, frozen)
    before, work = 0, 0
    known = True
    for at, job in enumerate(looked.order, 1):
        place = _Place(at, before, work if known else None)
        yield looked.answer(job, place)
        before += job.shape.ranks
        known = known and job.run_ms is not None
        work += job.shape.ranks * (job.run_ms or 0)


class Outlook:
    """The devices of one pool that come free, by time: when a waiting job may start, where no start time is held for it.

    An estimate, not a promise: devices that come free are counted, wherever they are; jobs before it take theirs first.
    Later places never get an earlier time; there is none where run times are not known.
    """

    def __init__(self, book: Book, pool: str, now_ms: int) -> None:
        running = [r for r in book.running.values() if r.job.shape.pool == pool]
        ends = sorted((likely_end_ms(r, now_ms), r.ranks) for r in running if r.ends_ms is not None or r.leaving_ms is not None)
        self._now_ms = now_ms
        self._free = book.cluster.free(pool)
        self._total = book.cluster.total(pool)
        self._times: list[int] = []
        self._freed: list[int] = []
        for end, ranks in ends:
            self._times.append(end)
            self._freed.append(ranks + (self._freed[-1] if self._freed else 0))
        self._busy_ms = sum(ranks * (end - now_ms) for end, ranks in ends)
        self._known = len(ends) == len(running)

    def eta_ms(self, ranks: int, ranks_before: int, work_before_ms: int | None) -> tuple[int | None, str]:
        """The time, and what it rests on. `work_before_ms`: device-milliseconds of those before, None where not known."""
        missing = ranks + ranks_before - self._free
        if missing <= 0:
            return self._now_ms, "enough devices are free in all, though not where it needs them"
        at = bisect_left(self._freed, missing)
        if at < len(self._times):
            return self._times[at], f"the expected ends of {at + 1} running jobs, after {ranks_before} devices for the jobs before it"
        if not self._known or work_before_ms is None or not self._total:
            return None, "run times of jobs before it, or of running ones, are not known"
        return self._now_ms + (self._busy_ms + work_before_ms) // self._total, "the expected work before it, on all devices of the pool"


class _Look:
    """One look at a pool; checks are made once for jobs that share them."""

    def __init__(self, book: Book, pool: str, now_ms: int, frozen: str) -> None:
        self._book, self._pool, self._now_ms, self._frozen = book, pool, now_ms, frozen
        self._policy = book.policy(pool)
        self.order = _ordered(book, pool, now_ms)
        self._outlook = Outlook(book, pool, now_ms)
        self._fair = book.usage.of(pool).fair_shares(sorted({j.team for j in self.order}))
        self._quota: dict[tuple[str, Shape], QuotaRefusal | None] = {}
        self._fits: dict[tuple[Shape, int], bool] = {}
        self._nodes: dict[Shape, Diagnosis] = {}

    def answer(self, job: Waiting, place: _Place) -> Answer:
        """Cheap: only the key is worked out now."""
        obstacle, by = self._obstacle(job, place)
        held = self._book.reservations.get(job.job_id)
        stagger_ms = job.shape.ranks * 7919 % REFRESH_MS
        key = (obstacle, by, held.start_ms if held else None, (self._now_ms + stagger_ms) // REFRESH_MS)
        return Answer(job.job_id, key, lambda: self._explained(job, place, obstacle, by))

    def _obstacle(self, job: Waiting, place: _Place) -> tuple[Obstacle, str]:
        """The first thing that keeps it from starting, checked as a cycle does."""
        if self._frozen:
            return Obstacle.FROZEN, ""
        if job.not_before_ms > self._now_ms:
            return Obstacle.BACKOFF, ""
        if job.job_id in self._book.claims:
            return Obstacle.COMING, ""
        if self._book.full(job):
            return Obstacle.QUOTA, f"project {job.project}"
        refusal = self._quota_of(job)
        if refusal is not None:
            return Obstacle.QUOTA, refusal.at
        if not self._fit(job.shape, 0):
            return Obstacle.NO_ROOM, ""
        first = self._next if self._policy.blocking is Blocking.STRICT else None
        if first is not None and first is not job:
            return Obstacle.ORDER, first.job_id
        holder = self._kept_for(job)
        if holder:
            return Obstacle.RESERVATION, holder
        return Obstacle.NEXT_CYCLE, ""

    @cached_property
    def _next(self) -> Waiting | None:
        """The first of the order that a cycle tries to place: no limit of its project or team, no pause and no claim keeps it out."""
        now_ms, claims = self._now_ms, self._book.claims
        tried = (j for j in self.order if j.not_before_ms <= now_ms and j.job_id not in claims)
        return next((j for j in tried if not self._book.full(j) and self._quota_of(j) is None), None)

    def _quota_of(self, job: Waiting) -> QuotaRefusal | None:
        key = (job.team, job.shape)
        if key not in self._quota:
            self._quota[key] = quota_refusal(self._book, job.shape, job.team)
        return self._quota[key]

    def _fit(self, shape: Shape, avoid: int) -> bool:
        if (shape, avoid) not in self._fits:
            self._fits[shape, avoid] = fits(self._book, shape, avoid)
        return self._fits[shape, avoid]

    def _kept_for(self, job: Waiting) -> str:
        """The job whose held start this one would push back; empty: none."""
        mask, holder = 0, ""
        for job_id, held in sorted(self._book.reservations.items()):
            late = job.run_ms is None or self._now_ms + job.run_ms > held.start_ms
            if job_id != job.job_id and late:
                mask, holder = mask | held.nodes, holder or job_id
        return holder if mask and not self._fit(job.shape, mask) else ""

    # ---- the whole event

    def _explained(self, job: Waiting, place: _Place, obstacle: Obstacle, by: str) -> JobExplained:
        found = self._diagnosis(job, obstacle, by)
        held = self._book.reservations.get(job.job_id)
        eta_ms, eta_from = self._eta(job, place, obstacle)
        refusals = [*found.refusals, *self._older(job, place)]
        return JobExplained(
            job_id=JobId(job.job_id),
            pool=PoolName(self._pool),
            team=job.team,
            at_ms=self._now_ms,
            waiting_since_ms=job.since_ms,
            place=place.place,
            waiting=len(self.order),
            needs=needs(job.shape),
            obstacle=found.obstacle,
            text=found.text,
            refusals=tuple(refusals),
            unblock=tuple(found.unblock),
            score=self._score(job),
            reserved_start_ms=held.start_ms if held else None,
            eta_ms=eta_ms,
            eta_from=eta_from,
        )

    def _diagnosis(self, job: Waiting, obstacle: Obstacle, by: str) -> Diagnosis:
        if obstacle is Obstacle.QUOTA and self._book.full(job):
            return by_project(self._book, job)
        if obstacle is Obstacle.QUOTA and self._book.usage.quotas(job.shape.pool).tree.refuses(job.team):
            return by_unlisted(job.team, job.shape.pool)
        if obstacle is Obstacle.QUOTA:
            refusal = self._quota_of(job)
            assert refusal is not None
            return by_quota(refusal)
        if obstacle is Obstacle.NO_ROOM:
            if job.shape not in self._nodes:
                self._nodes[job.shape] = by_nodes(self._book, job.shape)
            return self._nodes[job.shape]
        return self._simple(job, obstacle, by)

    def _simple(self, job: Waiting, obstacle: Obstacle, by: str) -> Diagnosis:
        match obstacle:
            case Obstacle.FROZEN:
                return Diagnosis(obstacle, f"placement is frozen: {self._frozen}", [], ["another program version, or a person's change"])
            case Obstacle.BACKOFF:
                left = span(job.not_before_ms - self._now_ms)
                return Diagnosis(obstacle, f"its last attempt failed early: it is tried again in {left}")
            case Obstacle.COMING:
                victims = self._book.claims[job.job_id].victims
                text = f"its devices are kept for it, and come free when {', '.join(victims) or 'those who hold them'} left"
                return Diagnosis(obstacle, text)
            case Obstacle.ORDER:
                text = f"devices are free, but job {by} comes first and does not fit yet; policy {self._policy.name} lets nobody past it"
                asked = self._next.shape.ranks if self._next is not None else 0
                refusal = Refusal(obstacle=obstacle, by=by, asked=asked, text=text)
                return Diagnosis(obstacle, text, [refusal], [f"the start of job {by}", "a policy with backfill", "a higher priority"])
            case Obstacle.RESERVATION:
                return self._behind(job, by)
        return Diagnosis(obstacle, "it fits, and starts with the next cycle")

    def _behind(self, job: Waiting, by: str) -> Diagnosis:
        held = self._book.reservations[by]
        window = span(held.start_ms - self._now_ms)
        runs = "its run time is not known" if job.run_ms is None else f"it is expected to run {span(job.run_ms)}"
        text = f"the free devices are kept for job {by}, which is to start in {window}; {runs}, and would push that start back"
        refusal = Refusal(obstacle=Obstacle.RESERVATION, by=by, text=text)
        return Diagnosis(Obstacle.RESERVATION, text, [refusal], [f"limits.run_time_s of at most {window}", f"the start of job {by}"])

    def _older(self, job: Waiting, place: _Place) -> list[Refusal]:
        """Returns the refusal by the jobs before it in the order; it names the first of them."""
        if place.place == 1:
            return []
        first, count = self.order[0], place.place - 1
        text = f"{count} job{'' if count == 1 else 's'} before it ask{'s' if count == 1 else ''} for {devices(place.ranks_before)}"
        return [Refusal(obstacle=Obstacle.ORDER, by=first.job_id, count=count, asked=place.ranks_before, text=text)]

    def _score(self, job: Waiting) -> ScoreTerms | None:
        if self._policy.order is not Order.SCORE:
            return None
        found = score(job, self._policy, self._book.usage.of(self._pool), self._fair[job.team], self._now_ms)
        return ScoreTerms(
            priority=found.priority_term / POINT,
            wait_bonus=found.wait_bonus / POINT,
            over_share_penalty=found.over_share_penalty / POINT,
            total=found.total / POINT,
        )

    def _eta(self, job: Waiting, place: _Place, obstacle: Obstacle) -> tuple[int | None, str]:
        held = self._book.reservations.get(job.job_id)
        if held is not None:
            return held.start_ms, "the start time that is held for it"
        if obstacle is Obstacle.BACKOFF:
            return job.not_before_ms, "the end of its pause"
        if obstacle is Obstacle.COMING:
            leaving = [r.leaving_ms for i in self._book.claims[job.job_id].victims if (r := self._book.running.get(i)) is not None]
            return max((t for t in leaving if t is not None), default=self._now_ms), "the deadline of those who leave for it"
        if obstacle is Obstacle.FROZEN:
            return None, "nothing starts while placement is frozen"
        if self._book.full(job):
            return None, "the end of a job of its project"
        return self._outlook.eta_ms(job.shape.least_ranks, place.ranks_before, place.work_before_ms)


def _ordered(book: Book, pool: str, now_ms: int) -> list[Waiting]:
    """Returns the waiting jobs in the policy's order; those in backoff come last."""
    lanes = book.lanes.fork()
    turn = in_order(lanes, book.usage, pool, book.policy(pool), now_ms)
    found: list[Waiting] = []
    while (job := turn.head()) is not None:
        found.append(job)
        turn.skip()
    seen = {j.job_id for j in found}
    return [*found, *(j for j in lanes.jobs(pool) if j.job_id not in seen)]
