"""The tree of teams that a policy names: who is below whom, what each is guaranteed, its weight, and fair shares down the tree.

Holds: a team that the policy does not name is a child of the root with weight 1 and no guarantee, limited to nothing where such teams
are refused; amounts are thousandths of devices.
An inner team's own jobs compete with its children as one more child of weight 1. Fair shares of any teams add up to 1.
Never: counts what is held (quotas do).
"""

from dataclasses import dataclass
from itertools import pairwise

from trainhouse.events.model.policy import SchedulingPolicy, Team, UnlistedTeams
from trainhouse.scheduler.core.cluster.shape import ANY, WHOLE

ROOT = ""
"""The name of the whole pool in the tree; no team can have it."""


@dataclass(frozen=True, slots=True)
class Branch:
    """One team of the tree, with amounts by device type ("any": all types together)."""

    name: str
    path: tuple[str, ...]
    children: tuple[str, ...]
    weight: float
    guaranteed: dict[str, int]
    limit: dict[str, int]
    lends: bool


class QuotaTree:
    """The teams of one policy. It never changes: forks share it."""

    def __init__(self, policy: SchedulingPolicy) -> None:
        teams = {t.name: t for t in policy.teams}
        below: dict[str, list[str]] = {}
        for team in policy.teams:
            below.setdefault(team.parent or ROOT, []).append(team.name)
        self._refuses = policy.unlisted_teams is UnlistedTeams.REFUSED
        named = {k for t in policy.teams for k in (*t.guaranteed, *t.limit)} | ({ANY} if self._refuses else set())
        self.types: tuple[str, ...] = tuple(sorted(named))
        self._branches: dict[str, Branch] = {}
        for name in sorted(teams, key=lambda n: (-len(_path(n, teams)), n)):
            children = tuple(sorted(below.get(name, ())))
            guaranteed = {t: self._guaranteed(teams[name], children, t) for t in (*self.types, ANY)}
            limit = {k: v * WHOLE for k, v in sorted(teams[name].limit.items())}
            self._branches[name] = Branch(name, _path(name, teams), children, teams[name].weight, guaranteed, limit, teams[name].lends)
        self._keeping: dict[str, tuple[str, ...]] = self._keepers()
        self._others: dict[str, Branch] = {}
        self._shares: dict[tuple[str, ...], dict[str, float]] = {}

    def branch(self, team: str) -> Branch:
        """A team's place, named by the policy or not."""
        found = self._branches.get(team) or self._others.get(team)
        if found is None:
            if len(self._others) >= 4096:
                self._others.clear()
            found = self._others[team] = Branch(team, (team, ROOT), (), 1.0, {}, {ANY: 0} if self._refuses else {}, True)
        return found

    def refuses(self, team: str) -> bool:
        """Whether the policy lists no such team and refuses those."""
        return self._refuses and team not in self._branches

    def path(self, team: str) -> tuple[str, ...]:
        """A team, its parent, and so on up to the root."""
        return self.branch(team).path

    def guaranteed(self, name: str, device_type: str) -> int:
        """Returns the guarantee of a team, in thousandths. Without one of its own: the sum of its children's ("any": of its own types')."""
        return self.branch(name).guaranteed.get(device_type, 0)

    def own_guaranteed(self, team: str, device_type: str) -> int:
        """Returns the rest of a team's guarantee for its own gangs when the teams below it have theirs."""
        below = sum(self.guaranteed(child, device_type) for child in self.branch(team).children)
        return max(0, self.guaranteed(team, device_type) - below)

    def keeping(self, name: str) -> tuple[str, ...]:
        """The teams directly below one that keep idle devices, or have teams below that do."""
        return self._keeping.get(name, ())

    def fair_shares(self, active: tuple[str, ...]) -> dict[str, float]:
        """The share of the pool that is fair for each of these teams (sorted, without repeats), by weights down the tree."""
        known = self._shares.get(active)
        if known is None:
            if len(self._shares) >= 256:
                self._shares.clear()
            known = self._shares[active] = self._divide(active)
        return known

    def _guaranteed(self, team: Team, children: tuple[str, ...], device_type: str) -> int:
        own = team.guaranteed
        if device_type in own:
            return own[device_type] * WHOLE
        if device_type == ANY and own:
            return sum(own.values()) * WHOLE
        return sum(self._branches[c].guaranteed[device_type] for c in children)

    def _keepers(self) -> dict[str, tuple[str, ...]]:
        below: dict[str, set[str]] = {}
        for branch in self._branches.values():
            if not branch.lends and any(branch.guaranteed.values()):
                for child, parent in pairwise(branch.path):
                    below.setdefault(parent, set()).add(child)
        return {name: tuple(sorted(children)) for name, children in below.items()}

    def _divide(self, active: tuple[str, ...]) -> dict[str, float]:
        below: dict[str, dict[str, float]] = {ROOT: {}}
        for team in active:
            path = self.path(team)
            below.setdefault(team, {})
            for name, parent in pairwise(path):
                below.setdefault(parent, {})[name] = self.branch(name).weight
        shares: dict[str, float] = {}
        todo, wanted = [(ROOT, 1.0)], frozenset(active)
        while todo:
            name, share = todo.pop()
            children = sorted(below[name].items())
            total = sum(w for _, w in children)
            if name in wanted:
                if children:
                    shares[name] = share / (total + 1.0)
                else:
                    shares[name] = share
                total += 1.0
            todo.extend((child, share * weight / total) for child, weight in children)
        return shares


def _path(name: str, teams: dict[str, Team]) -> tuple[str, ...]:
    path = [name]
    while (parent := teams[path[-1]].parent) is not None:
        path.append(parent)
    return (*path, ROOT)
