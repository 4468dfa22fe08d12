"""Preemption order: a strict order of gangs that no sequence of evictions can lead back to where it began.

A running gang is *covered* where the gangs of a team (and of the teams below it) that come before it, in the order (priority, submission),
leave room for it in what that team is guaranteed. A gang stops another one
- by reclaiming, whatever the priorities, if it would itself be covered by a team that the other, uncovered one, is not below; or
- by rank: its priority leads by the policy's margin; a covered victim only if the gang would be covered wherever the victim is.
A team above its fair share loses that lead by its penalty; it never gains one, and waiting gains none.

Why that ends when demand is constant: a team's covered gangs change only by a start before them in a fixed order, so they settle; from then
on a gang outranks those that it stops by a fixed number. Under order `remaining` the expected remaining run time is the rank: the one that
started has less left than those that it stopped, and goes on having less.

With `by_score_every_s` whole scores lead by the margin, between gangs of one priority or against a lower one. A running gang's wait stands
still, so a stopped gang may come back when it has waited for a whole margin more than the one that stopped it: gangs that are alike take
turns, at most (most bonus / margin) times for the waiting and once for each doubling of what they are expected to run still.

Holds: ranks depend on facts that waiting, running and being stopped do not change (but for the penalty, which only refuses, and for the
bonus where scores lead, which is bounded).
Never: looks at devices.
"""

from collections.abc import Iterable, Sequence

from trainhouse.events.model.policy import Order, RunTimes
from trainhouse.scheduler.core.cluster.shape import ANY, Placement, ranks_of
from trainhouse.scheduler.core.cycle.book import HOUR_MS, Book
from trainhouse.scheduler.core.cycle.preemption.outranked import Reach
from trainhouse.scheduler.core.cycle.preemption.victims import Victim, device_milli, milliseconds, protected
from trainhouse.scheduler.core.queue.entries import Eviction, Running, Waiting
from trainhouse.scheduler.core.queue.pool_lanes import UNKNOWN_RUN_MS
from trainhouse.scheduler.core.queue.resources import Amounts, amounts_least
from trainhouse.scheduler.core.queue.score import POINT, WaitRule, over_share_penalty
from trainhouse.scheduler.core.queue.team_tree import ROOT

Member = tuple[int, int, str, Amounts]
"""(priority, number, job id, what it holds): sorts in the order in which a guarantee covers."""


def _least(job: Waiting, amounts: Amounts, placement: Placement) -> Amounts:
    """Returns the resources of an elastic gang at its least size; more than that is always borrowed, and reclaimed without stopping it."""
    least, ranks = job.shape.min_ranks, ranks_of(placement)
    if not 0 < least < ranks:
        return amounts
    return Amounts(tuple((t, milli * least // ranks) for t, milli in amounts.devices))


def remaining_ms(running: Running, now_ms: int) -> int | None:
    """Expected remaining run time on the whole gang, ms (linear in ranks); 0 once it overran; None: not known."""
    if running.ends_ms is None:
        return None
    left_ms, shape = max(0, running.ends_ms - now_ms), running.job.shape
    return left_ms * running.ranks // shape.ranks if shape.min_ranks else left_ms


def shorter_waits(book: Book, pool: str, now_ms: int) -> bool:
    """Under order `remaining`: whether any gang that waits is so short that it could lead one that may be stopped.

    From what is left of that one, at most all until its end, goes what stopping it would lose, at least the time since its last save.
    """
    heads, rules = book.lanes.of(pool).heads, book.policy(pool).preemption
    if not heads or heads[0][0] >= UNKNOWN_RUN_MS:
        return False
    least_ms, min_run_ms = heads[0][0] + 2 * now_ms + milliseconds(rules.restart_cost_s), milliseconds(rules.min_run_s)
    longer = (r for r in book.running.values() if r.ends_ms is None or r.ends_ms + r.saved_ms > least_ms)
    return any(r.job.shape.pool == pool and not protected(r, now_ms, min_run_ms) for r in longer)


def by_score(book: Book, pool: str, now_ms: int) -> bool:
    """Whether a pool's whole scores may lead now: at the first look in each span of time that its policy says."""
    policy = book.policy(pool)
    every_ms = milliseconds(policy.preemption.by_score_every_s)
    if not every_ms or policy.order is not Order.SCORE:
        return False
    looked_ms = book.marks.looked_ms(pool)
    return looked_ms is None or looked_ms // every_ms != now_ms // every_ms


class PreemptionOrder:
    """Ranks and guarantees in one pool at one time. Gangs that leave are not counted; those with a claim count as if they ran."""

    def __init__(self, book: Book, pool: str, now_ms: int) -> None:
        self._book, self._pool, self._now_ms = book, pool, now_ms
        self._policy = book.policy(pool)
        self._rules = self._policy.preemption
        self._usage = book.usage.of(pool)
        self._tree = self._usage.quotas.tree
        self._members: dict[str, list[Member]] = {}
        self._covering: dict[str, tuple[str, ...]] = {}
        self._penalties: dict[str, int] = {}
        self._fair: dict[str, float] = {}
        self._restart_ms = milliseconds(self._rules.restart_cost_s)
        self._margin = round(self._rules.margin * POINT)
        self._estimates = book.estimates if self._policy.run_times is RunTimes.HISTORY else None
        self._wait = WaitRule(self._policy.score)
        self.by_score = by_score(book, pool, now_ms)
        """Whether whole scores lead at this time, not priorities alone."""
        self._points: dict[str, int] = {}
        self.renew()
        if self._policy.order is Order.SCORE:
            self._fair = self._usage.fair_shares(sorted(book.lanes.of(pool).teams))

    def renew(self) -> None:
        """Takes in who was asked to leave and who got a claim since. Only guarantees follow from that: ranks, use and shares do not."""
        if self._tree.types:
            self._members, self._covering = {}, {}
            self._gather(self._book, self._pool)

    def _gather(self, book: Book, pool: str) -> None:
        for job_id in sorted({*book.running, *book.claims}):
            running, claim = book.running.get(job_id), book.claims.get(job_id)
            job = running.job if running is not None else book.lanes.get(job_id)
            if job is None or job.shape.pool != pool:
                continue
            if claim is not None:
                self._join(job, _least(job, book.amounts(job.shape, claim.placement), claim.placement))
            elif running is not None and running.leaving_ms is None:
                self._join(job, _least(job, book.amounts(job.shape, running.placement), running.placement))
        found: dict[str, list[str]] = {}
        for name in sorted(self._members):
            self._members[name].sort(key=lambda m: m[:3])
            for job_id in self._covered(name, self._members[name]):
                found.setdefault(job_id, []).append(name)
        self._covering = {job_id: tuple(names) for job_id, names in found.items()}

    def _join(self, job: Waiting, amounts: Amounts) -> None:
        for name in self._tree.path(job.team):
            if name != ROOT:
                self._members.setdefault(name, []).append((job.priority, job.number, job.job_id, amounts))

    def _covered(self, name: str, members: Iterable[Member]) -> list[str]:
        """The members, in order, that fit in what a team is guaranteed; one that does not fit is passed over."""
        used: dict[str, int] = {}
        out: list[str] = []
        for _, _, job_id, amounts in members:
            typed = all(used.get(t, 0) + m <= self._tree.guaranteed(name, t) for t, m in amounts.devices)
            if typed or used.get(ANY, 0) + amounts.all_milli <= self._tree.guaranteed(name, ANY):
                out.append(job_id)
                for device_type, milli in (*(d for d in amounts.devices if d[0] != ANY), (ANY, amounts.all_milli)):
                    used[device_type] = used.get(device_type, 0) + milli
        return out

    def covering(self, job_id: str) -> tuple[str, ...]:
        """The teams whose guarantee covers a running gang; empty: all of it is borrowed."""
        return self._covering.get(job_id, ())

    def would_cover(self, job: Waiting) -> frozenset[str]:
        """The teams whose guarantee would cover a waiting gang (an elastic one at its least size) if it ran."""
        if not self._tree.types:
            return frozenset()
        amounts = amounts_least(job.shape)
        found = set()
        for name in self._tree.path(job.team):
            if name != ROOT:
                before = [m for m in self._members.get(name, ()) if m[:2] < (job.priority, job.number)]
                if job.job_id in self._covered(name, (*before, (job.priority, job.number, job.job_id, amounts))):
                    found.add(name)
        return frozenset(found)

    def may_stop(self, job: Waiting, victim: Running, cover: frozenset[str]) -> Eviction | None:
        """By what right `job` may stop `victim`; None: it may not. `cover`: what `would_cover(job)` gave."""
        held = self.covering(victim.job.job_id)
        if not held and self._rules.reclaim and any(name not in self._tree.path(victim.job.team) for name in cover):
            return Eviction.RECLAIMED
        if all(name in cover for name in held) and self.leads(job, victim):
            return Eviction.PREEMPTED
        return None

    def may_shrink(self, job: Waiting, victim: Running, cover: frozenset[str]) -> bool:
        """Whether `job` may have the ranks of an elastic gang above its minimum.

        Not if the gang's team, with all that it holds, is within its guarantee (and `job` is not covered there), nor if the gang leads.
        """
        team, quotas = victim.job.team, self._usage.quotas
        if team not in cover and 0 < quotas.held(team) <= self._tree.guaranteed(team, ANY):
            return False
        behind = job.priority - victim.job.priority
        return behind <= 0 or behind < self._rules.margin

    def leads(self, job: Waiting, victim: Running) -> bool:
        """Whether a waiting gang outranks a running one by enough."""
        if self._policy.order is Order.REMAINING:
            left = remaining_ms(victim, self._now_ms)
            if job.run_ms is None:
                return False
            return left is None or left > job.run_ms + self.delay_ms(victim)
        lead = victim.job.priority - job.priority
        handicap = max(0, self._penalty(job.team) - self._penalty(victim.job.team))
        if lead > 0 and lead * POINT - handicap >= self._margin:
            return True
        return self.by_score and lead >= 0 and self.points(job) - handicap - self._known(victim) >= self._margin

    def by_rank_alone(self, job: Waiting, cover: frozenset[str], last_priority: int) -> bool:
        """Whether `led_by` alone decides: nothing is taken back for the gang, and no victim has so low a priority that this counts.

        `last_priority`: the lowest of all victims.
        """
        if cover or self._policy.order is Order.REMAINING:
            return not cover
        return self.by_score and job.priority + self._rules.margin > last_priority

    def bound(self, job: Waiting) -> int:
        """The rank up to which victims are behind a gang."""
        if self._policy.order is Order.REMAINING:
            return -(UNKNOWN_RUN_MS if job.run_ms is None else job.run_ms) - 1
        return self.points(job) - self._margin

    def reach(self, victims: Sequence[Victim]) -> Reach:
        """Victims by rank: those from whom most run time can be had first, or those of the lowest score."""
        held = [device_milli(v.running.placement) for v in victims]
        if self._policy.order is not Order.REMAINING:
            return Reach([self._known(v.running) for v in victims], held)
        lefts = [remaining_ms(v.running, self._now_ms) for v in victims]
        longest = UNKNOWN_RUN_MS
        return Reach([-longest if left is None else self.delay_ms(v.running) - left for v, left in zip(victims, lefts, strict=True)], held)

    def led_by(self, job: Waiting, victims: Sequence[Victim], reach: Reach) -> list[int]:
        """The places of those of `victims` that a waiting gang leads and that nothing covers: `may_stop` where ranks alone count."""
        bound = self.bound(job)
        behind = [i for i in reach.behind(bound) if victims[i].job_id not in self._covering]
        if self._policy.order is Order.REMAINING:
            return behind
        found, own = [], self._penalty(job.team)
        for i in behind:
            running = victims[i].running
            handicap = max(0, own - self._penalty(running.job.team))
            if running.job.priority >= job.priority and (not handicap or self._known(running) <= bound - handicap):
                found.append(i)
        return found

    def points(self, job: Waiting) -> int:
        """The score of a waiting gang, but for its team's penalty."""
        known = self._points.get(job.job_id)
        if known is None:
            known = self._points[job.job_id] = (100 - job.priority) * POINT + self._wait.bonus(job, self._now_ms)
        return known

    def _known(self, running: Running) -> int:
        known = self._points.get(running.job.job_id)
        if known is None:
            known = self._points[running.job.job_id] = self.points_of(running)
        return known

    def points_of(self, running: Running) -> int:
        """The same of a running one: with the wait that it had before it started, and what it is expected to run from now on."""
        job, before = running.job, running.started_ms - running.job.submitted_ms - running.job.ran_ms
        if not self._wait.in_run_times:
            return (100 - job.priority) * POINT + self._wait.bonus(job, job.submitted_ms + job.ran_ms + before)
        return (100 - job.priority) * POINT + self._wait.ratio(before, max(1, self._left_ms(running)))

    def _left_ms(self, running: Running) -> int:
        """Returns the expected remaining run time; learned run times are asked anew: a job past its estimate is likely long."""
        job = running.job
        ran_ms = job.ran_ms + max(0, self._now_ms - running.started_ms) * running.ranks // job.shape.ranks
        learned = self._estimates.expected(job.kin, ran_ms) if self._estimates is not None else None
        if learned is not None:
            return learned
        left = remaining_ms(running, self._now_ms)
        return HOUR_MS if left is None else left

    def delay_ms(self, victim: Running) -> int:
        """Run time that stopping a gang loses for it, ms."""
        return max(0, self._now_ms - victim.saved_ms) + self._restart_ms

    def worth(self, job: Waiting, victims: Iterable[Running]) -> bool:
        """Under order `remaining`: whether all victims together wait less than the gang would have; else always.

        Each waits for the gang's run time and what it loses; the gang would have waited for the last of them to end.
        """
        if self._policy.order is not Order.REMAINING or job.run_ms is None:
            return True
        stopped = list(victims)
        lefts = [remaining_ms(v, self._now_ms) for v in stopped]
        known = [left for left in lefts if left is not None]
        if len(known) < len(lefts):
            return True
        return sum(job.run_ms + self.delay_ms(v) for v in stopped) < max(known, default=UNKNOWN_RUN_MS)

    def _penalty(self, team: str) -> int:
        if self._policy.order is not Order.SCORE:
            return 0
        known = self._penalties.get(team)
        if known is None:
            fair = self._fair.get(team)
            share = self._usage.share(team, self._now_ms)
            known = self._penalties[team] = over_share_penalty(share, fair, self._policy.score) if fair else 0
        return known
