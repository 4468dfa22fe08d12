"""Defragmentation: running gangs move aside, so that a waiting gang finds its devices together.

A move is a checkpoint and a restart elsewhere. For each waiting gang that did not fit though enough devices are free, the cheapest gangs in
its way are looked for; all of them, and the waiting gang, must have their places at once on the trial. It is done if the wait saved (until
the start it is expected to have otherwise), times its ranks, is at least `min_gain` times what the moves lose.

Holds: who moves has its new devices claimed before it leaves; at most `max_moves_per_h` moves in any hour; a gang whose expected start is
not known causes no move. A plan that fails changes nothing.
Never: stops a gang for good.
"""

from collections.abc import Iterable, Sequence

from trainhouse.scheduler.core.cluster.shape import Placement
from trainhouse.scheduler.core.cycle.backfill import earliest
from trainhouse.scheduler.core.cycle.book import HOUR_MS, Book
from trainhouse.scheduler.core.cycle.preemption.plans import carry_out, claim_for, no_promise
from trainhouse.scheduler.core.cycle.preemption.victim_index import Holdings
from trainhouse.scheduler.core.cycle.preemption.victim_search import Found, Seeker
from trainhouse.scheduler.core.cycle.preemption.victims import Victim, milliseconds, victims_of
from trainhouse.scheduler.core.cycle.what_if_cluster import Trial, kept_for_others, pledged
from trainhouse.scheduler.core.queue.entries import Action, Evict, Eviction, Hold, Running, Waiting
from trainhouse.scheduler.core.queue.resources import Amounts, amounts_least

MAX_RETRIES = 4
"""How often another set of gangs is looked for, when one of those found cannot be placed again."""

MAX_SEARCHES = 4
"""Gangs for which moves are looked for in one cycle at most: each look goes through the expected ends of all that runs."""

Moves = list[tuple[Victim, Placement]]


def plan_moves(book: Book, pool: str, candidates: Iterable[Waiting], now_ms: int) -> list[Action]:
    """Moves for waiting gangs that did not fit, in order; the book is left as if they were applied."""
    rules, looked_ms = book.policy(pool).defragmentation, book.marks.looked_ms(pool)
    every_ms = rules.look_every_s * 1000
    if not rules.enabled or (looked_ms is not None and looked_ms // every_ms == now_ms // every_ms):
        return []
    actions: list[Action] = []
    failed: set[tuple[object, ...]] = set()
    searches = 0
    for job in candidates:
        left = rules.max_moves_per_h - sum(1 for at in book.moves_ms if at > now_ms - HOUR_MS)
        if left <= 0 or searches >= MAX_SEARCHES:
            break
        key = (job.team, job.shape, job.run_ms)
        if job.job_id in book.claims or job.not_before_ms > now_ms or key in failed or book.full(job) or not _room(book, job):
            continue
        searches += 1
        found = _Mover(book, pool, job, left, now_ms).find()
        if found is None:
            failed.add(key)
        else:
            actions.extend(carry_out(book, found, now_ms))
    return actions


def _room(book: Book, job: Waiting) -> bool:
    """Whether enough devices are free, and all that is wrong is where they are."""
    types = {need.device_type for block in book.cluster.layout.plan(job.shape).needs for need in block}
    return sum(book.cluster.free(job.shape.pool, t) for t in sorted(types)) >= job.shape.least_ranks


class _Mover:
    """The search for one waiting gang."""

    def __init__(self, book: Book, pool: str, job: Waiting, most: int, now_ms: int) -> None:
        self._book, self._pool, self._job, self._most, self._now_ms = book, pool, job, most, now_ms
        self._policy = book.policy(pool)
        self._begins_ms = now_ms + milliseconds(self._policy.preemption.checkpoint_deadline_s)

    def find(self) -> list[Action] | None:
        """The moves as actions, claims first; None: they are not possible, or not worth it."""
        gain = self._gain()
        if gain <= 0 or self._over_quota():
            return None
        trial = Trial(self._book, self._pool, later=False)
        here = [self._book.running[i] for i in sorted(self._book.running) if self._book.running[i].job.shape.pool == self._pool]
        victims = [v for v in victims_of(here, self._policy.preemption, self._now_ms) if v.job_id not in self._book.claims]
        avoid, _ = kept_for_others(self._book, self._job, self._now_ms, self._begins_ms)
        for job_id in sorted(self._book.reservations):
            avoid |= self._book.reservations[job_id].nodes if job_id != self._job.job_id else 0
        eligible = set(range(len(victims)))
        holdings = Holdings(victims)
        for _ in range(MAX_RETRIES):
            found = Seeker(trial, holdings, self._job, eligible, avoid, self._most).find()
            if found is None or not found.victims or not self._pays(gain, found.victims):
                return None
            moves, stuck = self._again(trial, found, avoid)
            if stuck is None:
                return self._actions(found, moves)
            eligible.discard(holdings.ordinal(stuck.job_id))
        return None

    def _gain(self) -> int:
        """Device-milliseconds of waiting that a start now saves; 0: none, or it is not known when the gang would start."""
        promise = self._book.reservations.get(self._job.job_id)
        if promise is None:
            promise = earliest(self._book, self._job, self._policy.packing, [], self._now_ms)
        if promise is None:
            return 0
        return max(0, promise.start_ms - self._begins_ms) * self._job.shape.least_ranks

    def _pays(self, gain: int, victims: Sequence[Victim]) -> bool:
        return gain * 1000 >= round(self._policy.defragmentation.min_gain * 1000) * sum(v.lost for v in victims)

    def _over_quota(self) -> bool:
        quotas = pledged(self._book, self._pool)
        return bool(quotas.tree.types) and quotas.may_start(self._job.team, self._asked()) is not None

    def _asked(self) -> Amounts:
        return amounts_least(self._job.shape)

    def _again(self, trial: Trial, found: Found, avoid: int) -> tuple[Moves, Victim | None]:
        """New places for those who move, the largest first, beside the waiting gang's; and who found none. The trial is as before then."""
        for victim in found.victims:
            trial.gone(victim.running)
        trial.cluster.take(found.placement, self._job.shape)
        moves: Moves = []
        stuck: Victim | None = None
        for victim in sorted(found.victims, key=lambda v: (-v.running.ranks, v.running.job.number, v.job_id)):
            shape = victim.running.job.shape
            placement = trial.place(shape, victim.running.ranks, avoid)
            if placement is None:
                stuck = victim
                break
            trial.cluster.take(placement, shape)
            moves.append((victim, placement))
        for victim, placement in moves:
            trial.cluster.give(placement, victim.running.job.shape)
        trial.cluster.give(found.placement, self._job.shape)
        for victim in found.victims:
            trial.back(victim.running)
        return moves, stuck

    def _actions(self, found: Found, moves: Moves) -> list[Action]:
        job, now_ms = self._job, self._now_ms
        going: list[Running] = [v.running for v in found.victims]
        out = no_promise(self._book, [job.job_id])
        out.append(Hold(claim_for(job.job_id, found.placement, going, now_ms)))
        out.extend(Hold(claim_for(v.job_id, placement, going, now_ms)) for v, placement in moves)
        for victim, _ in moves:
            reason = f"moves aside for {job.job_id} ({job.shape.ranks} ranks); {victim.lost // 1000} device-seconds are lost"
            out.append(Evict(victim.job_id, Eviction.MOVED, self._begins_ms, job.job_id, victim.running.ranks, reason))
        return out
