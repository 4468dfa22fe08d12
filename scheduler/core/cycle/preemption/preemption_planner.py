"""Preemption planner for one cycle: computes victims, ranks and the trial state once for all gangs that ask.

Holds: the book is not changed, and the trial is as before after each plan, whether it came to something or not; `accept` follows what the
caller did to the book with one.
Never: emits actions.
"""

from collections.abc import Collection, Iterable, Sequence

from trainhouse.events.model.policy import Order
from trainhouse.scheduler.core.cluster.shape import WHOLE, Placement
from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.cycle.preemption.outranked import Reach
from trainhouse.scheduler.core.cycle.preemption.plans import Plan
from trainhouse.scheduler.core.cycle.preemption.preemption_order import PreemptionOrder
from trainhouse.scheduler.core.cycle.preemption.shrink import Resized, by_price, settle, squeeze, undo
from trainhouse.scheduler.core.cycle.preemption.victim_index import Holdings
from trainhouse.scheduler.core.cycle.preemption.victim_search import Found, Seeker
from trainhouse.scheduler.core.cycle.preemption.victims import Victim, milliseconds, victims_of
from trainhouse.scheduler.core.cycle.what_if_cluster import Trial, broken_by, kept_for_others, occupants, pledged
from trainhouse.scheduler.core.queue.entries import Claim, Eviction, Running, Waiting
from trainhouse.scheduler.core.queue.quotas import QuotaRule
from trainhouse.scheduler.core.queue.resources import amounts_least

MAX_SQUEEZED = 32
"""Elastic gangs that are shrunk at most for one gang, so that a plan stays cheap."""

Rights = dict[int, Eviction]
"""Whom a gang may stop: ordinal of the victim to the right by which."""


class PreemptionPlanner:
    """One pool, one state, one time. `idle`: there is nobody whom anybody could ask. `searches`: how often devices were looked for."""

    def __init__(self, book: Book, pool: str, now_ms: int) -> None:
        self._book, self._pool, self._now_ms = book, pool, now_ms
        policy = book.policy(pool)
        self._rules = policy.preemption
        here = [book.running[i] for i in sorted(book.running) if book.running[i].job.shape.pool == pool]
        self._victims = victims_of(here, self._rules, now_ms)
        self._shrinkable = by_price(self._victims) if policy.elastic.enabled else []
        self.idle = not self._victims or not (self._rules.enabled or self._shrinkable)
        self._asked: set[str] = set()
        self._known: dict[tuple[object, ...], tuple[Rights, list[Victim]]] = {}
        self.searches = 0
        self._ranks_by_time = policy.order is Order.REMAINING
        self._made_reach: Reach | None = None
        self._last_priority = max((v.running.job.priority for v in self._victims), default=0)
        self._standing: PreemptionOrder | None = None
        self._made_trial: Trial | None = None
        self._made_holdings: Holdings | None = None

    # ---- made when first needed: most looks end before

    @property
    def _stand(self) -> PreemptionOrder:
        self._standing = self._standing or PreemptionOrder(self._book, self._pool, self._now_ms)
        return self._standing

    @property
    def _trial(self) -> Trial:
        self._made_trial = self._made_trial or Trial(self._book, self._pool)
        return self._made_trial

    @property
    def _holdings(self) -> Holdings:
        self._made_holdings = self._made_holdings or Holdings(self._victims)
        return self._made_holdings

    @property
    def _reach(self) -> Reach:
        if self._made_reach is None:
            self._made_reach = self._stand.reach(self._victims)
            self._made_reach.drop(self._holdings.ordinal(job_id) for job_id in self._asked)
        return self._made_reach

    @property
    def leavers(self) -> list[Running]:
        """Gangs that leave already, on whose devices plans count."""
        return self._trial.leavers

    # ---- a plan

    def plan(self, job: Waiting) -> Plan | None:
        """Returns a plan that lets `job` start; None: no gang can be asked to leave, or it would not help."""
        rights, able = self._whom(job)
        if not rights and not able:
            return None
        self.searches += 1
        if not able and not self._many(job, rights):
            return None
        begins_ms = self._now_ms + milliseconds(self._rules.checkpoint_deadline_s)
        avoid, broken = kept_for_others(self._book, job, self._now_ms, begins_ms)
        squeezed: list[Resized] = []
        found = self._by_waiting(job, avoid) or self._by_shrinking(job, able, squeezed, avoid)
        found = found or self._by_stopping(job, rights, squeezed, avoid)
        if found is None:
            for each in reversed(squeezed):
                undo(self._trial, each)
            return None
        found = found if squeezed else self._larger(job, found, avoid)
        shrunk = self._settled(job, found, squeezed)
        stopped = tuple((v, rights[self._holdings.ordinal(v.job_id)]) for v in found.victims)
        if not self._allowed(job, found.placement, stopped, shrunk):
            return None
        return Plan(job, found.placement, stopped, tuple(shrunk), tuple(broken_by(self._book, broken, found.placement)))

    def _whom(self, job: Waiting) -> tuple[Rights, list[Victim]]:
        """Whom the gang may stop, and who can shrink for it, the cheapest first. Many that ask are alike: their answers are kept."""
        cover, within = self._stand.would_cover(job), self._limit(job)
        by_score = self._stand.by_score
        if by_score and not self._shrinkable and self._stand.by_rank_alone(job, cover, self._last_priority) and not self._enough(job):
            return {}, []
        key = (job.team, job.priority, cover, within, job.job_id if by_score else job.run_ms if self._ranks_by_time else None)
        known = self._known.get(key)
        if known is None:
            rights = {i: right for i, right in self._rights(job, cover).items() if self._helps(self._victims[i], within)}
            able = [v for v in self._shrinkable if self._helps(v, within) and self._stand.may_shrink(job, v.running, cover)]
            known = self._known[key] = (rights, able[: min(MAX_SQUEEZED, self._rules.max_victims)])
        return known

    def _enough(self, job: Waiting) -> bool:
        """Whether the devices that are free, or come free anyway, and those of gangs that are behind by rank are enough in number."""
        reachable = self._reach.milli(self._stand.bound(job))
        if job.shape.milli < WHOLE or not reachable:
            return reachable > 0
        return self._trial.cluster.free(self._pool) * WHOLE + reachable >= job.shape.least_ranks * WHOLE

    def _many(self, job: Waiting, rights: Rights) -> bool:
        """Whether the devices that are free, or come free anyway, and those of gangs that may be stopped are enough in number."""
        wanted = job.shape.least_ranks - self._trial.cluster.free(self._pool)
        return job.shape.milli < WHOLE or wanted <= len(rights) or wanted <= sum(self._victims[i].running.ranks for i in rights)

    def accept(self, plan: Plan, claims: Iterable[Claim]) -> None:
        """Takes over what a plan did to the book: those who were asked count as leavers, and what was claimed is gone."""
        asked = (*(v for v, _ in plan.stopped), *(each.victim for each in plan.shrunk))
        for victim in asked:
            self._asked.add(victim.job_id)
            self._trial.gone(victim.running)
            self._trial.leavers.append(victim.running)
        for claim in claims:
            self._trial.cluster.claim(claim.placement)
        self._shrinkable = [v for v in self._shrinkable if v.job_id not in self._asked]
        self.idle = not (self._rules.enabled and len(self._asked) < len(self._victims)) and not self._shrinkable
        if self._standing is not None:
            self._standing.renew()
        if self._made_reach is not None:
            self._made_reach.drop(self._holdings.ordinal(victim.job_id) for victim in asked)
        self._known = {}

    def _rights(self, job: Waiting, cover: frozenset[str]) -> Rights:
        if not self._rules.enabled:
            return {}
        asked = self._asked
        if self._stand.by_rank_alone(job, cover, self._last_priority):
            return dict.fromkeys(self._stand.led_by(job, self._victims, self._reach), Eviction.PREEMPTED)
        rights = ((i, self._stand.may_stop(job, v.running, cover)) for i, v in enumerate(self._victims) if v.job_id not in asked)
        return {i: right for i, right in rights if right is not None}

    def _limit(self, job: Waiting) -> str | None:
        """The team at whose limit the gang is now: only devices that gangs of it or below it leave are any use. None: at no limit."""
        if not self._book.usage.quotas(self._pool).tree.types:
            return None
        refusal = pledged(self._book, self._pool).may_start(job.team, amounts_least(job.shape))
        return refusal.at if refusal is not None and refusal.rule is QuotaRule.LIMIT else None

    def _helps(self, victim: Victim, within: str | None) -> bool:
        return within is None or within in self._book.usage.quotas(self._pool).tree.path(victim.running.job.team)

    def _by_waiting(self, job: Waiting, avoid: int) -> Found | None:
        """On devices that others are leaving already, and that no gang claims: then none need be asked."""
        if not self._trial.leavers:
            return None
        placement = self._trial.place(job.shape, job.shape.least_ranks, avoid)
        if placement is None or not occupants(placement, self._trial.leavers):
            return None
        return Found((), placement)

    def _by_shrinking(self, job: Waiting, able: Sequence[Victim], squeezed: list[Resized], avoid: int) -> Found | None:
        """Squeezes one elastic gang after the other until the gang is placed; they stay squeezed if it is not."""
        for victim in able:
            each = squeeze(self._trial, victim)
            if each is None:
                continue
            squeezed.append(each)
            placement = self._trial.place(job.shape, job.shape.least_ranks, avoid)
            if placement is not None:
                return Found((), placement)
        return None

    def _by_stopping(self, job: Waiting, rights: Rights, squeezed: list[Resized], avoid: int) -> Found | None:
        """Gangs on borrowed devices first, then all; one that was squeezed is stopped only if nothing else will do."""
        small = {each.victim.job_id for each in squeezed}
        rest = [i for i in rights if self._victims[i].job_id not in small]
        borrowed = [i for i in rest if not self._stand.covering(self._victims[i].job_id)]
        for eligible in (borrowed, rest):
            if eligible and (eligible is borrowed or len(rest) > len(borrowed)):
                found = self._seek(job, eligible, avoid, len(squeezed))
                if found is not None:
                    return found
        if len(rest) == len(rights):
            return None
        while squeezed:
            undo(self._trial, squeezed.pop())
        return self._seek(job, rights, avoid, 0)

    def _seek(self, job: Waiting, eligible: Collection[int], avoid: int, others: int) -> Found | None:
        most = self._rules.max_victims - others
        return Seeker(self._trial, self._holdings, job, eligible, avoid, most).find() if most > 0 else None

    def _larger(self, job: Waiting, found: Found, avoid: int) -> Found:
        """More ranks for an elastic gang, where those who stop leave enough, and every one of them is needed still."""
        if not job.shape.elastic:
            return found
        for victim in found.victims:
            self._trial.gone(victim.running)
        placement = self._trial.largest(job.shape, job.shape.min_ranks, job.shape.ranks, avoid)
        for victim in found.victims:
            self._trial.back(victim.running)
        if placement is None or len(occupants(placement, (v.running for v in found.victims))) < len(found.victims):
            return found
        return found if self._quota_refuses(job, placement, found.victims, ()) else Found(found.victims, placement)

    def _settled(self, job: Waiting, found: Found, squeezed: list[Resized]) -> list[Resized]:
        """Returns the gangs that shrink and their new placements, once all has its place; the trial is as at the beginning afterwards."""
        trial = self._trial
        for victim in found.victims:
            trial.gone(victim.running)
        trial.cluster.take(found.placement, job.shape)
        shrunk = settle(trial, squeezed, found.placement)
        for each in shrunk:
            trial.cluster.give(each.placement, each.victim.running.job.shape)
        trial.cluster.give(found.placement, job.shape)
        for victim in (*found.victims, *(each.victim for each in shrunk)):
            trial.back(victim.running)
        return shrunk

    # ---- whether it may be

    def _allowed(self, job: Waiting, placement: Placement, stopped: Sequence[tuple[Victim, Eviction]], shrunk: Sequence[Resized]) -> bool:
        outranked = [v.running for v, why in stopped if why is Eviction.PREEMPTED]
        if outranked and not self._stand.worth(job, outranked):
            return False
        return not self._quota_refuses(job, placement, [v for v, _ in stopped], shrunk)

    def _quota_refuses(self, job: Waiting, placement: Placement, stopped: Sequence[Victim], shrunk: Sequence[Resized]) -> bool:
        book, quotas = self._book, pledged(self._book, self._pool)
        if not quotas.tree.types:
            return False
        for victim in (*stopped, *(each.victim for each in shrunk)):
            running = victim.running
            quotas.add(running.job.team, book.amounts(running.job.shape, running.placement), -1)
        for each in shrunk:
            owner = each.victim.running.job
            quotas.add(owner.team, book.amounts(owner.shape, each.placement))
        return quotas.may_start(job.team, book.amounts(job.shape, placement)) is not None
