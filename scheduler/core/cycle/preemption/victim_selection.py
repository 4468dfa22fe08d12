"""The cheapest set of victims on one node (exact), and the order in which to add victims for a gang over many nodes (greedy).

Holds: every choice is a function of integers, ties go to fewer victims and then to the lower ordinals. A victim is named by its
ordinal in the caller's list, whatever it is.
Never: places anything: its answers are candidates that a trial on a fork must confirm.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Item:
    """Victims that free something only together (those who share one device), or one victim alone."""

    victims: tuple[int, ...]
    gain: int
    cost: int


@dataclass(frozen=True, slots=True)
class Choice:
    """A set of victims and what it costs; ordered by cost, then by count, then by ordinals."""

    cost: int
    victims: tuple[int, ...]

    @property
    def key(self) -> tuple[int, int, tuple[int, ...]]:
        return (self.cost, len(self.victims), self.victims)


def cheapest(items: Sequence[Item], need: int, most: int) -> Choice | None:
    """The least costly choice of items with `need` gain in all and at most `most` victims, or None. Exact (0/1 knapsack over gains).

    Items must not share victims.
    """
    if need <= 0:
        return Choice(0, ())
    if need == 1:
        return min((Choice(i.cost, i.victims) for i in items if len(i.victims) <= most), key=lambda c: c.key, default=None)
    if sum(item.gain for item in items) < need:
        return None
    if all(item.gain == 1 and len(item.victims) == 1 for item in items):
        return _of_equals(items, need, most)
    return _knapsack(items, need, most)


def _of_equals(items: Sequence[Item], need: int, most: int) -> Choice | None:
    if need > most:
        return None
    taken = sorted(items, key=lambda item: (item.cost, item.victims))[:need]
    return Choice(sum(item.cost for item in taken), tuple(sorted(v for item in taken for v in item.victims)))


def _knapsack(items: Sequence[Item], need: int, most: int) -> Choice | None:
    # Keyed by (gain, victims): the bound on victims is exact only if cheaper and larger sets do not hide dearer and smaller ones.
    best: dict[tuple[int, int], Choice] = {(0, 0): Choice(0, ())}
    for item in items:
        for (gain, count), choice in list(best.items()):
            if gain >= need or count + len(item.victims) > most:
                continue
            key = (min(need, gain + item.gain), count + len(item.victims))
            longer = Choice(choice.cost + item.cost, tuple(sorted((*choice.victims, *item.victims))))
            if key not in best or longer.key < best[key].key:
                best[key] = longer
    return min((c for (gain, _), c in best.items() if gain >= need), key=lambda c: c.key, default=None)


def by_price(gains: Mapping[int, int], costs: Sequence[int]) -> list[int]:
    """Victims by cost per gained device, the cheapest first; `gains`: ordinal to devices."""
    useful = [v for v, gain in gains.items() if gain > 0]
    return sorted(useful, key=lambda v: (costs[v] / gains[v], -gains[v], v))


def by_nodes(parts: Mapping[int, Mapping[int, int]], free: Mapping[int, int], costs: Sequence[int]) -> list[int]:
    """Victims in the order in which whole nodes become cheapest to clear; `parts`: node to (ordinal to devices there).

    A gang on several nodes counts on each by its share of devices there. Nodes that have free devices already are cheaper per device.
    """
    total: dict[int, int] = {}
    for held in parts.values():
        for victim, gain in held.items():
            total[victim] = total.get(victim, 0) + gain
    prices: list[tuple[float, int]] = []
    for node in sorted(parts):
        held = parts[node]
        gained = free.get(node, 0) + sum(held.values())
        price = sum(costs[v] * held[v] / total[v] for v in sorted(held))
        prices.append((price / gained, node))
    order: dict[int, None] = {}
    for _, node in sorted(prices):
        for victim in sorted(parts[node]):
            order.setdefault(victim)
    return list(order)
