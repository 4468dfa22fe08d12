"""Use, quotas and fair shares of all pools of a partition.

Holds: it follows from starts and stops, each at its time, and from `rows` of an earlier one; asking changes nothing.
A fork shares no change.
Never: decides.
"""

from collections.abc import Iterable

from trainhouse.events.model.policy import SchedulingPolicy
from trainhouse.scheduler.core.queue.decay import Track
from trainhouse.scheduler.core.queue.pool_usage import PoolUsage, UsageRow
from trainhouse.scheduler.core.queue.quotas import Quotas
from trainhouse.scheduler.core.queue.resources import Amounts

_DEFAULT = SchedulingPolicy()


class Usage:
    """Use of all pools by team. A pool without a policy of its own has the default one."""

    __slots__ = ("_pools",)

    def __init__(self) -> None:
        self._pools: dict[str, PoolUsage] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Usage) and self.rows() == other.rows()

    __hash__ = None  # type: ignore[assignment]

    def of(self, pool: str) -> PoolUsage:
        """The use of one pool; made empty when there is none yet."""
        found = self._pools.get(pool)
        if found is None:
            found = self._pools[pool] = PoolUsage(_DEFAULT)
        return found

    def set_policy(self, pool: str, policy: SchedulingPolicy) -> None:
        """From now on this pool's weights, quotas and half-life are these. Past use stays."""
        self.of(pool).set_policy(policy)

    def set_capacity(self, pool: str, capacity: Amounts) -> None:
        """Sets the capacity of the pool; call it when nodes come, go, or are lost. Cheap when nothing changed."""
        self.of(pool).set_capacity(capacity)

    def start(self, pool: str, team: str, amounts: Amounts, now_ms: int) -> None:
        """A gang of a team holds these amounts from now on."""
        self.of(pool).change(team, amounts, now_ms, 1)

    def stop(self, pool: str, team: str, amounts: Amounts, now_ms: int) -> None:
        """The amounts of a `start` come free."""
        self.of(pool).change(team, amounts, now_ms, -1)

    def quotas(self, pool: str) -> Quotas:
        """The pool's quotas, with what is held now."""
        return self.of(pool).quotas

    def share(self, pool: str, team: str, now_ms: int) -> float:
        """A team's dominant share: its largest part of any resource of the pool, now and lately."""
        return self.of(pool).share(team, now_ms)

    def fair_shares(self, pool: str, waiting: Iterable[str]) -> dict[str, float]:
        """Returns the fair share of each team that runs something or is in `waiting`; they add up to 1."""
        return self.of(pool).fair_shares(waiting)

    def drop_pool(self, pool: str) -> None:
        """Forgets the use of a pool, past use included."""
        self._pools.pop(pool, None)

    def rows(self) -> list[UsageRow]:
        """All of it as plain rows for a snapshot, sorted. Policies and capacities are not in them."""
        return [row for pool in sorted(self._pools) for row in self.rows_of(pool)]

    def rows_of(self, pool: str) -> list[UsageRow]:
        """The rows of one pool."""
        found = self._pools.get(pool)
        return found.rows(pool) if found is not None else []

    def restore(self, rows: Iterable[UsageRow]) -> None:
        """Takes back what `rows` gave, held amounts included: running gangs must not be started here once more. Into an empty one only."""
        for pool, team, resource, *track in rows:
            self.of(pool).restore(team, resource, Track(*track))

    def fork(self) -> "Usage":
        """A copy that shares no change."""
        twin = Usage()
        twin._pools = {pool: usage.fork() for pool, usage in self._pools.items()}
        return twin
