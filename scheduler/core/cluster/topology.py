"""The domains of a pool: which nodes share a rack, a pod, a fabric, and in which order ranks lie near each other.

Holds: levels go from narrow to wide by how many nodes their domains have on average, so no level's name is special; nothing depends on
the order in which nodes joined. A level whose domains all are single nodes is kept for its name only.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trainhouse.scheduler.core.cluster.node_slots import NodeSlots


@dataclass(frozen=True, slots=True)
class Domain:
    """Nodes (bit mask) of one domain; `number` is its place in lists of the pool's domains of wide levels; `first` its lowest node."""

    name: str
    number: int
    nodes: int
    first: int


@dataclass(frozen=True, slots=True)
class Level:
    """One level. `wide`: at least one of its domains holds several nodes. `nodes`: all that are in some domain of it."""

    name: str
    domains: tuple[Domain, ...]
    wide: bool
    nodes: int


class Topology:
    """All levels of a pool, narrow to wide."""

    __slots__ = ("level_at", "levels", "masks", "numbers_of", "position", "wide")

    def __init__(self, nodes: Iterable[NodeSlots]) -> None:
        members: dict[tuple[str, str], int] = {}
        known = sorted(nodes, key=lambda s: s.index)
        for slots in known:
            for level, name in slots.domains:
                members[level, name] = members.get((level, name), 0) | 1 << slots.index
        self.levels = _levels(members)
        self.wide = tuple(level for level in self.levels if level.wide)
        self.masks = [d.nodes for level in self.wide for d in level.domains]
        self.level_at = [at for at, level in enumerate(self.wide) for _ in level.domains]
        self.numbers_of = _numbers_of(self.wide)
        near = sorted((s.index for s in known), key=lambda i: (*self._from_wide(i), i))
        self.position = {index: at for at, index in enumerate(near)}

    def level(self, name: str) -> Level | None:
        """The level of that name, if any node of the pool reports it."""
        return next((level for level in self.levels if level.name == name), None)

    def within(self, domain: Domain, level: Level) -> bool:
        """Whether one domain of a wide level has all nodes of another domain: levels need not be nested."""
        masks = (self.masks[n] for n in self.numbers_of.get(domain.first, ()) if self.wide[self.level_at[n]] is level)
        return any(domain.nodes & ~nodes == 0 for nodes in masks)

    def _from_wide(self, index: int) -> list[int]:
        """The lowest nodes of the domains that a node is in, widest first: nodes near each other sort next to each other."""
        masks = [self.masks[number] for number in reversed(self.numbers_of.get(index, ()))]
        return [(nodes & -nodes).bit_length() - 1 for nodes in masks]


def _levels(members: Mapping[tuple[str, str], int]) -> tuple[Level, ...]:
    by_level: dict[str, list[tuple[int, str, int]]] = {}
    for (level, name), nodes in members.items():
        by_level.setdefault(level, []).append(((nodes & -nodes).bit_length() - 1, name, nodes))
    levels, number = [], 0
    for level in sorted(by_level, key=lambda lv: (sum(nodes.bit_count() for _, _, nodes in by_level[lv]) / len(by_level[lv]), lv)):
        found = sorted(by_level[level])
        wide = any(nodes.bit_count() > 1 for _, _, nodes in found)
        domains = tuple(Domain(name, number + i if wide else -1, nodes, first) for i, (first, name, nodes) in enumerate(found))
        number += len(domains) if wide else 0
        levels.append(Level(level, domains, wide, sum(nodes for _, _, nodes in found)))
    return tuple(levels)


def _numbers_of(wide: Iterable[Level]) -> dict[int, tuple[int, ...]]:
    found: dict[int, list[int]] = {}
    for level in wide:
        for domain in level.domains:
            left = domain.nodes
            while left:
                low = left & -left
                found.setdefault(low.bit_length() - 1, []).append(domain.number)
                left ^= low
    return {index: tuple(numbers) for index, numbers in found.items()}
