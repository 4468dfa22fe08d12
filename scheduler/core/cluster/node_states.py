"""Nodes by their state: what of them is free, in groups, for each pool and type of device.

Holds: a group is a mask of nodes in equal states, so that each state is judged once.
Never: knows the cluster, which says what changed.
"""

from __future__ import annotations

from typing import NamedTuple

from trainhouse.events.model.policy import Packing
from trainhouse.scheduler.core.cluster.demand_mix import Usual

MAX_JUDGED = 200_000
UNREPORTED = -1


class State(NamedTuple):
    """Free resources of one device type on a node: whole devices, shares left of others (sorted), and the host's cpus and memory."""

    whole: int
    left: tuple[int, ...]
    cpus_milli: int
    memory: int


class Asked(NamedTuple):
    """Resources that a job takes of one node."""

    ranks: int
    milli: int
    cpus_milli: int
    memory: int


class Verdict(NamedTuple):
    """Score of a state for a job (least is best): growth of fragmentation, resources left over. `share`: the one it takes, or 0."""

    growth: int
    over: int
    share: int


Judged = dict[tuple[str, State, Asked], Verdict | None]
Typical = tuple[tuple[Usual, int], ...]


class States:
    """Nodes by state, for each pool and type. `changed`: the nodes that are to be grouped again."""

    __slots__ = ("by_state", "changed", "fragments", "judged", "of_node", "typical")

    def __init__(self) -> None:
        self.by_state: dict[tuple[str, str], dict[State, int]] = {}
        self.of_node: dict[int, list[tuple[tuple[str, str], State]]] = {}
        self.changed: list[int] = []
        self.typical: Typical = ()
        self.judged: dict[Packing, Judged] = {Packing.BEST_FIT: {}, Packing.FRAGMENTATION: {}}
        self.fragments: dict[tuple[str, State], int] = {}

    def copy(self) -> States:
        """Equal now, apart from then on. Verdicts are functions of what they are kept under, so they are shared."""
        new = States()
        new.by_state = {key: groups.copy() for key, groups in self.by_state.items()}
        new.of_node, new.changed = self.of_node.copy(), self.changed.copy()
        new.typical, new.judged, new.fragments = self.typical, self.judged, self.fragments
        return new

    def regroup(self, node: int, now: list[tuple[tuple[str, str], State]]) -> None:
        """A node's states are these now: none where it takes no gang."""
        bit = 1 << node
        for key, state in self.of_node.pop(node, ()):
            groups = self.by_state[key]
            groups[state] ^= bit
            if not groups[state]:
                del groups[state]
        for key, state in now:
            groups = self.by_state.setdefault(key, {})
            groups[state] = groups.get(state, 0) | bit
        if now:
            self.of_node[node] = now

    def usual(self, typical: Typical) -> None:
        """Sets the recent demand; drops verdicts made with another one, and all of them where the cache grew too large."""
        if typical != self.typical:
            self.typical = typical
        elif len(self.fragments) <= MAX_JUDGED and all(len(j) <= MAX_JUDGED for j in self.judged.values()):
            return
        self.judged = {packing: {} for packing in self.judged}
        self.fragments = {}
