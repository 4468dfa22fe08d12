"""Quotas of teams on devices: the guarantees and limits of a tree of teams, borrowing and lending.

A team may use what it is guaranteed, and borrow what is idle; never what a team that does not lend is guaranteed and leaves idle, and never
past a limit of its own or of a team above it. What it lent comes back by preemption, or when its borrowers end.

Holds: what is held adds up along the tree; a refusal carries every number that it rests on. Amounts are thousandths of devices.
Never: looks at nodes or at free devices (placement does).
"""

from dataclasses import dataclass
from enum import StrEnum

from trainhouse.scheduler.core.cluster.shape import ANY
from trainhouse.scheduler.core.queue.resources import Amounts
from trainhouse.scheduler.core.queue.team_tree import ROOT, QuotaTree

MAX_PENDING = 4096


class QuotaRule(StrEnum):
    """Rule by which a request is refused: a limit, or devices kept for teams that do not lend."""

    LIMIT = "limit"
    RESERVED = "reserved"


@dataclass(frozen=True, slots=True)
class QuotaRefusal:
    """Refusal of more devices to a team. `at`: the team in the tree whose number refuses ("" the pool); `held`, `bound`: there.

    `reserved_for`: teams that keep idle guaranteed devices, with how many. `borrowers`: teams that hold more than they are guaranteed.
    """

    rule: QuotaRule
    team: str
    at: str
    device_type: str
    asked_milli: int
    held_milli: int
    bound_milli: int
    reserved_for: tuple[tuple[str, int], ...] = ()
    borrowers: tuple[tuple[str, int], ...] = ()

    @property
    def never(self) -> bool:
        """No end of other jobs would help: the limit itself is below what is asked."""
        return self.rule is QuotaRule.LIMIT and self.asked_milli > self.bound_milli

    def text(self) -> str:
        """The refusal as a sentence for a person."""
        what = "devices" if self.device_type == ANY else f"{self.device_type} devices"
        asked, held, bound = shown(self.asked_milli), shown(self.held_milli), shown(self.bound_milli)
        if self.rule is QuotaRule.LIMIT:
            holder = f"team {self.at}" if self.at == self.team else f"team {self.at} (above {self.team})"
            return f"quota: {holder} holds {held} of at most {bound} {what}; {asked} more would pass the limit"
        where = f"team {self.at}" if self.at else "the pool"
        kept = ", ".join(f"{shown(m)} for {t}" for t, m in self.reserved_for)
        return f"quota: {where} has {bound} {what}, {held} are held, and {kept} stay idle (not lent); {asked} more are too many"


def shown(milli: int) -> str:
    """Thousandths of devices as devices: 8000 is "8", 250 is "0.25"."""
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli / 1000:.3f}".rstrip("0")


class Quotas:
    """Devices held by each team of a tree, itself and all below it. `fork` shares the tree."""

    __slots__ = ("_borrowers", "_held", "_own", "_pending", "capacity", "tree")

    def __init__(self, tree: QuotaTree, capacity: Amounts | None = None) -> None:
        self.tree = tree
        self.capacity = capacity or Amounts()
        self._held: dict[tuple[str, str], int] = {}
        self._own: dict[tuple[str, str], int] = {}
        self._pending: dict[tuple[str, Amounts], int] = {}
        self._borrowers: dict[str, tuple[tuple[str, int], ...]] = {}

    def add(self, team: str, amounts: Amounts, sign: int = 1) -> None:
        """A gang of a team starts (or with sign -1: its devices come free)."""
        key = (team, amounts)
        self._pending[key] = self._pending.get(key, 0) + sign
        if len(self._pending) > MAX_PENDING:
            self._apply_pending()

    def _apply_pending(self) -> None:
        """Adds up what came and went since the last read: most of it cancels out."""
        self._borrowers = {}
        for (team, amounts), times in self._pending.items():
            for device_type, milli in _wants(amounts) if times else ():
                _change(self._own, (team, device_type), times * milli)
                for name in self.tree.path(team):
                    _change(self._held, (name, device_type), times * milli)
        self._pending = {}

    def held(self, name: str, device_type: str = ANY) -> int:
        """Returns the devices that a team and all below it hold, in thousandths; "" is the whole pool."""
        if self._pending:
            self._apply_pending()
        return self._held.get((name, device_type), 0)

    def may_start(self, team: str, amounts: Amounts) -> QuotaRefusal | None:
        """None: it may. Else the first rule that refuses, types in order, from the team up."""
        if not self.tree.types:
            return None
        for device_type, milli in _wants(amounts):
            refusal = self._limits(team, device_type, milli) or self._borrowing(team, device_type, milli)
            if refusal is not None:
                return refusal
        return None

    def limited(self, team: str, amounts: Amounts) -> QuotaRefusal | None:
        """The limit that this could never pass, even in an idle pool; None: there is none. For refusing at submission."""
        for device_type, milli in _wants(amounts):
            for name in self.tree.path(team)[:-1]:
                limit = self.tree.branch(name).limit.get(device_type)
                if limit is not None and milli > limit:
                    return QuotaRefusal(QuotaRule.LIMIT, team, name, device_type, milli, self.held(name, device_type), limit)
        return None

    def borrowers(self, device_type: str = ANY) -> tuple[tuple[str, int], ...]:
        """Teams whose own gangs hold more than they are guaranteed, with how much more, sorted by team."""
        if self._pending:
            self._apply_pending()
        found = self._borrowers.get(device_type)
        if found is None:
            own = ((team, milli) for (team, known), milli in self._own.items() if known == device_type)
            over = sorted((team, milli - self.tree.own_guaranteed(team, device_type)) for team, milli in own)
            found = self._borrowers[device_type] = tuple(entry for entry in over if entry[1] > 0)
        return found

    def under(self, tree: QuotaTree) -> "Quotas":
        """Returns the same holdings under another tree."""
        self._apply_pending()
        twin = Quotas(tree, self.capacity)
        for (team, device_type), milli in self._own.items():
            if device_type == ANY:  # those of unknown type are in this sum only
                milli -= sum(m for (other, known), m in self._own.items() if other == team and known != ANY)
            if milli:
                twin.add(team, Amounts(((device_type, milli),)))
        return twin

    def fork(self) -> "Quotas":
        """A copy that shares no change."""
        twin = Quotas(self.tree, self.capacity)
        twin._held, twin._own, twin._pending = self._held.copy(), self._own.copy(), self._pending.copy()
        return twin

    def _limits(self, team: str, device_type: str, milli: int) -> QuotaRefusal | None:
        for name in self.tree.path(team)[:-1]:
            limit = self.tree.branch(name).limit.get(device_type)
            held = self.held(name, device_type)
            if limit is not None and held + milli > limit:
                return QuotaRefusal(QuotaRule.LIMIT, team, name, device_type, milli, held, limit, borrowers=self.borrowers(device_type))
        return None

    def _borrowing(self, team: str, device_type: str, milli: int) -> QuotaRefusal | None:
        """Idle guaranteed devices of teams that do not lend stay theirs.

        Only nodes can have made that impossible (lost ones: more is guaranteed than there is), and then nobody is held up who takes what
        some team above is guaranteed while no one borrows.
        """
        if not self.tree.keeping(ROOT):
            return None
        kept: list[tuple[str, int]] = []
        entitled, below = False, ROOT
        for name in self.tree.path(team):
            for child in self.tree.keeping(name):
                if child != below:
                    kept.extend(self._kept_idle(child, device_type))
            below = name
            if name != ROOT:
                room = self.tree.guaranteed(name, device_type) - self.held(name, device_type) - sum(m for _, m in kept)
                entitled = entitled or milli <= room
        whole, held = self._capacity(device_type), self.held(ROOT, device_type)
        if not kept or held + milli + sum(m for _, m in kept) <= whole:
            return None
        borrowers = self.borrowers(device_type)
        if entitled and not borrowers:
            return None
        return QuotaRefusal(QuotaRule.RESERVED, team, ROOT, device_type, milli, held, whole, tuple(sorted(kept)), borrowers)

    def _kept_idle(self, name: str, device_type: str) -> list[tuple[str, int]]:
        """Returns the devices that a team, or those below it, leave idle and do not lend; the larger of the two."""
        below = [kept for child in self.tree.keeping(name) for kept in self._kept_idle(child, device_type)]
        branch = self.tree.branch(name)
        own = 0 if branch.lends else branch.guaranteed.get(device_type, 0) - self.held(name, device_type)
        return [(name, own)] if own > sum(m for _, m in below) else below

    def _capacity(self, device_type: str) -> int:
        if device_type == ANY:
            return self.capacity.all_milli
        return next((milli for known, milli in self.capacity.devices if known == device_type), 0)


def _wants(amounts: Amounts) -> list[tuple[str, int]]:
    """The devices by type, as far as types are chosen, then all together."""
    return [*(d for d in amounts.devices if d[0] != ANY), (ANY, amounts.all_milli)]


def _change(table: dict[tuple[str, str], int], key: tuple[str, str], milli: int) -> None:
    now = table.get(key, 0) + milli
    if now:
        table[key] = now
    else:
        table.pop(key, None)
