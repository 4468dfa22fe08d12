"""Use of one pool by each team, now and lately, against its fair share: dominant-resource fairness with fading history.

A team's use of a resource is a mean of what it holds now and of its faded average (`fair_share.history` sets the weight of the past).
Its share is the largest use divided by what the pool has of that resource: its dominant share (Ghodsi et al., "Dominant Resource Fairness",
NSDI 2011). Over-share: that share divided by the team's fair share, which follows from weights down the tree among the teams with demand.

Holds: shares follow from starts and stops only, not from when they are asked for. A fork shares no change.
Never: decides.
"""

from collections.abc import Iterable

from trainhouse.events.model.policy import SchedulingPolicy
from trainhouse.scheduler.core.queue.decay import STEPS, Track, advance, average
from trainhouse.scheduler.core.queue.quotas import Quotas
from trainhouse.scheduler.core.queue.resources import Amounts
from trainhouse.scheduler.core.queue.team_tree import QuotaTree

CPUS = "\x00cpus"
MEMORY = "\x00memory"
"""Resources beside device types; no device type can have such a name."""

MAX_ACCOUNTS = 10_000
"""Beyond so many teams those are forgotten that hold nothing and whose past has faded."""

Account = dict[str, Track]
UsageRow = tuple[str, str, str, int, int, int, int]
"""(pool, team, resource, held, since_ms, area, past): what a snapshot keeps."""


class PoolUsage:
    """Use, quotas and fair shares of one pool."""

    __slots__ = ("_accounts", "_busy", "_cache", "_capacity", "_history", "_step_ms", "quotas")

    def __init__(self, policy: SchedulingPolicy) -> None:
        self._accounts: dict[str, Account] = {}
        self._busy: set[str] = set()
        self._cache: dict[str, tuple[int, float]] = {}
        self._capacity: dict[str, int] = {}
        self.quotas = Quotas(QuotaTree(policy))
        self.set_policy(policy)

    def set_policy(self, policy: SchedulingPolicy) -> None:
        """Takes over weights, quotas and half-life; what was used stays used."""
        self.quotas = self.quotas.under(QuotaTree(policy))
        self._step_ms = max(1, round(policy.fair_share.half_life_h * 3_600_000) // STEPS)
        self._history = policy.fair_share.history
        self._cache = {}

    def set_capacity(self, capacity: Amounts) -> None:
        """Sets the capacity of the pool: shares are parts of it. No share follows of a resource that the pool lacks."""
        if capacity != self.quotas.capacity:
            self.quotas.capacity = capacity
            self._capacity = dict(_resources(capacity))
            self._cache = {}

    def change(self, team: str, amounts: Amounts, now_ms: int, sign: int) -> None:
        """A gang of a team starts (sign 1) or leaves (sign -1) with these amounts."""
        if team not in self._accounts and len(self._accounts) >= MAX_ACCOUNTS:
            self._forget_idle(now_ms)
        account = self._accounts.get(team, {}).copy()
        for resource, amount in _resources(amounts):
            track = account.get(resource)
            if track is None:
                account[resource] = Track(sign * amount, now_ms)
            else:
                account[resource] = advance(track, now_ms, self._step_ms, sign * amount)
        self._set(team, account)
        self.quotas.add(team, amounts, sign)

    def share(self, team: str, now_ms: int) -> float:
        """The dominant share of a team: 0 to about 1."""
        step = now_ms // self._step_ms
        cached = self._cache.get(team)
        if cached is not None and cached[0] == step:
            return cached[1]
        share = max((s for _, s in self.shares(team, now_ms)), default=0.0)
        self._cache[team] = (step, share)
        return share

    def shares(self, team: str, now_ms: int) -> list[tuple[str, float]]:
        """A team's share of each resource that it uses or used, sorted by resource."""
        found = []
        for resource, track in sorted(self._accounts.get(team, {}).items()):
            whole = self._capacity.get(resource, 0)
            if whole > 0:
                past = average(track, now_ms, self._step_ms) if self._history else 0
                found.append((resource.lstrip("\x00"), ((1.0 - self._history) * track.held + self._history * past) / whole))
        return found

    def running(self) -> list[str]:
        """Teams that hold something, sorted."""
        return sorted(self._busy)

    def fair_shares(self, waiting: Iterable[str]) -> dict[str, float]:
        """The fair share of each team that runs something or is in `waiting`; they add up to 1."""
        return self.quotas.tree.fair_shares(tuple(sorted(self._busy.union(waiting))))

    def rows(self, pool: str) -> list[UsageRow]:
        """All accounts, sorted."""
        tracks = ((team, resource, track) for team, account in self._accounts.items() for resource, track in account.items())
        return sorted((pool, team, resource, *track) for team, resource, track in tracks)

    def restore(self, team: str, resource: str, track: Track) -> None:
        """Takes back one of `rows`, what is held now included."""
        self._set(team, {**self._accounts.get(team, {}), resource: track})
        if track.held and resource not in (CPUS, MEMORY):
            self.quotas.add(team, Amounts(((resource, track.held),)))

    def fork(self) -> "PoolUsage":
        """A copy that shares no change."""
        twin = PoolUsage.__new__(PoolUsage)
        twin._accounts, twin._busy, twin._cache = self._accounts.copy(), self._busy.copy(), self._cache.copy()
        twin._capacity = self._capacity
        twin._history, twin._step_ms, twin.quotas = self._history, self._step_ms, self.quotas.fork()
        return twin

    def _set(self, team: str, account: Account) -> None:
        self._accounts[team] = account
        self._cache.pop(team, None)
        for track in account.values():
            if track.held:
                self._busy.add(team)
                return
        self._busy.discard(team)

    def _forget_idle(self, now_ms: int) -> None:
        def idle(account: Account) -> bool:
            return all(not t.held and not average(t, now_ms, self._step_ms) for t in account.values())

        self._accounts = {team: account for team, account in self._accounts.items() if not idle(account)}
        self._cache = {}


def _resources(amounts: Amounts) -> tuple[tuple[str, int], ...]:
    if not amounts.cpus_milli and not amounts.memory_bytes:
        return amounts.devices
    beside = ((CPUS, amounts.cpus_milli), (MEMORY, amounts.memory_bytes))
    return (*amounts.devices, *(entry for entry in beside if entry[1]))
