"""Finds the victims for one waiting gang: candidates by cost, each confirmed by placing the gang on the trial.

A gang that fits on one node gets the exact least cost over all nodes (a knapsack on each), as far as numbers of devices decide; where the
placement refuses for another reason (labels, host memory, parts of a node), the next cheapest nodes are tried, `MAX_NODES` in all.
A gang on several nodes: victims are added in two orders (cost per device; cost per cleared node), within each domain of a required
level, until it is placed; then those whose devices it does not use are left alone, and dear ones are put back if it is placed
without them. The cheaper of both is taken. That is greedy: at most `MAX_TRIES` placements each.

Holds: an answer places the whole gang once its victims have left; the trial is as before afterwards.
Never: judges who may be a victim.
"""

from bisect import insort
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from trainhouse.scheduler.core.cluster.shape import WHOLE, Placement
from trainhouse.scheduler.core.cycle.backfill import nodes_of
from trainhouse.scheduler.core.cycle.preemption.victim_index import Holdings
from trainhouse.scheduler.core.cycle.preemption.victim_selection import Choice, by_nodes, by_price, cheapest
from trainhouse.scheduler.core.cycle.preemption.victims import Victim
from trainhouse.scheduler.core.cycle.what_if_cluster import Trial, occupants
from trainhouse.scheduler.core.queue.entries import Waiting

MAX_NODES = 16
MAX_TRIES = 12
MAX_DOMAINS = 8
MAX_PUT_BACK = 8


@dataclass(frozen=True, slots=True)
class Found:
    """Victims, and where the gang goes when they have left."""

    victims: tuple[Victim, ...]
    placement: Placement

    @property
    def key(self) -> tuple[int, int]:
        return (sum(v.cost for v in self.victims), len(self.victims))


class Seeker:
    """The search for one gang. `eligible`: ordinals of the victims that it may stop. `avoid`: nodes that it may not use."""

    def __init__(self, trial: Trial, holdings: Holdings, job: Waiting, eligible: Collection[int], avoid: int, most: int) -> None:
        self._trial, self._holdings, self._job = trial, holdings, job
        self._eligible, self._avoid, self._most = frozenset(eligible), avoid, most
        self._need = job.shape.least_ranks
        self._too_many = False
        self._costly = any(b.cpus or b.memory_bytes for b in job.shape.blocks)

    def find(self) -> Found | None:
        """The victims, or None."""
        choices: list[tuple[Choice, int]] = []
        for types in self._types():
            choices.extend(self._single(types))
        choices.sort(key=lambda c: (c[0].key, c[1]))
        for choice, node in choices[:MAX_NODES]:
            found = self._try(choice.victims, 1 << node)
            if found is not None:
                return found
        if self._job.shape.milli < WHOLE or self._job.shape.require == "node":
            return None
        several = [f for types in self._types() for only in self._areas(types) if (f := self._several(types, only)) is not None]
        return min(several, key=lambda f: f.key, default=None)

    def _types(self) -> list[tuple[str, ...]]:
        """Device types to look at together: each alone for a gang of one kind, else all that it names."""
        needs = self._trial.cluster.layout.plan(self._job.shape).needs
        if len(needs) == 1:
            return [(need.device_type,) for need in needs[0]]
        return [tuple(sorted({need.device_type for block in needs for need in block}))]

    def _usable(self, types: tuple[str, ...]) -> int:
        """The nodes that may serve the gang with these types, and are not to be avoided."""
        cluster, shape = self._trial.cluster, self._job.shape
        pool = cluster.node_mask(shape.pool)
        mask = 0
        for block in cluster.layout.plan(shape).needs:
            for need in block:
                if need.device_type in types:
                    mask |= pool if need.nodes is None else pool & need.nodes
        return mask & ~self._avoid

    def _devices(self, node: int, types: tuple[str, ...]) -> int:
        found = 0
        for device_type, mask in self._trial.cluster.layout.type_masks[node]:
            if device_type in types:
                found |= mask
        return found

    def _open(self, node: int) -> bool:
        slots = self._trial.cluster.layout.slots[node]
        return slots is not None and slots.open

    # ---- one node

    def _single(self, types: tuple[str, ...]) -> list[tuple[Choice, int]]:
        """The cheapest choices on one node each, `MAX_NODES` of them.

        Nodes are visited by the cheapest victim there. Once that alone costs more than the choices that are known, no later node is better.
        """
        found: list[tuple[Choice, int]] = []
        victims, usable, seen, bound = self._holdings.victims, self._usable(types), 0, -1
        for ordinal in sorted(self._eligible):
            if bound >= 0 and victims[ordinal].cost > bound:
                break
            for part in victims[ordinal].running.placement:
                bit = 1 << part.node
                if seen & bit or not usable & bit:
                    continue
                seen |= bit
                choice = self._on(part.node, types)
                if choice is not None:
                    insort(found, (choice, part.node), key=lambda c: (c[0].key, c[1]))
            if len(found) >= MAX_NODES:
                del found[MAX_NODES:]
                bound = found[-1][0].cost
        return found

    def _on(self, node: int, types: tuple[str, ...]) -> Choice | None:
        devices = self._devices(node, types) & ~self._trial.cluster.claimed.get(node, 0)
        if devices.bit_count() < self._need or not self._open(node):
            return None
        return self._on_share(node, devices) if self._job.shape.milli < WHOLE else self._on_node(node, devices)

    def _on_node(self, node: int, devices: int) -> Choice | None:
        free = (self._trial.cluster.free_bits[node] & devices).bit_count()
        items = self._holdings.items(self._trial.cluster, node, devices, self._eligible)
        return cheapest(items, self._need - free, self._most)

    def _on_share(self, node: int, devices: int) -> Choice | None:
        best: Choice | None = None
        shares = self._trial.cluster.shares.get(node, {})
        for position in _bits(devices):
            items = self._holdings.on_device(node, 1 << position, self._eligible)
            choice = cheapest(items, self._job.shape.milli - shares.get(position, 0), self._most)
            if items and choice is not None and (best is None or choice.key < best.key):
                best = choice
        return best

    # ---- several nodes

    def _areas(self, types: tuple[str, ...]) -> list[int | None]:
        """Returns the areas to search: the whole pool, or the domains of the required level that could have room, the cheapest first."""
        shape = self._job.shape
        level = self._trial.cluster.layout.topology(shape.pool).level(shape.require) if shape.require else None
        if level is None:
            return [None]
        priced = [(price, d.first, d.nodes) for d in level.domains if (price := self._price(types, d.nodes)) is not None]
        return [nodes for _, _, nodes in sorted(priced)[:MAX_DOMAINS]]

    def _price(self, types: tuple[str, ...], nodes: int) -> int | None:
        """Returns the least cost of enough devices of a domain, by numbers alone; None: it has not enough."""
        free, parts = self._ground(types, nodes)
        gains, costs = _gains(parts), [v.cost for v in self._holdings.victims]
        have, cost = sum(free.values()), 0
        for victim in by_price(gains, costs):
            if have >= self._need:
                break
            have, cost = have + gains[victim], cost + costs[victim]
        return cost if have >= self._need else None

    def _ground(self, types: tuple[str, ...], only: int | None) -> tuple[dict[int, int], dict[int, dict[int, int]]]:
        """Free devices by node, and the eligible victims' devices by node and ordinal."""
        cluster = self._trial.cluster
        nodes = self._usable(types) & (-1 if only is None else only)
        free: dict[int, int] = {}
        parts: dict[int, dict[int, int]] = {}
        for node in _bits(nodes):
            devices = self._devices(node, types)
            free[node] = (cluster.free_bits[node] & devices).bit_count()
            if node in self._holdings.nodes and self._open(node):
                parts[node] = self._held(node, devices & ~cluster.claimed.get(node, 0))
        return free, {node: held for node, held in parts.items() if held}

    def _held(self, node: int, devices: int) -> dict[int, int]:
        if node not in self._holdings.shared:
            whole = self._holdings.whole[node]
            return {v: (bits & devices).bit_count() for v, bits in whole if v in self._eligible and bits & devices}
        held: dict[int, int] = {}
        for item in self._holdings.items(self._trial.cluster, node, devices, self._eligible):
            for victim in item.victims:
                held[victim] = held.get(victim, 0) + item.gain
        return held

    def _several(self, types: tuple[str, ...], only: int | None) -> Found | None:
        free, parts = self._ground(types, only)
        gains, costs = _gains(parts), [v.cost for v in self._holdings.victims]
        if sum(free.values()) + sum(gains.values()) < self._need:
            return None
        orders = (by_price(gains, costs), by_nodes(parts, free, costs))
        found = [f for order in orders if (f := self._add(order, gains, sum(free.values()), only)) is not None]
        return min(found, key=lambda f: f.key, default=None)

    def _add(self, order: Sequence[int], gains: dict[int, int], free: int, only: int | None) -> Found | None:
        """Adds victims in order until the gang is placed; each failure adds a quarter more than before."""
        count, have = 0, free
        while count < len(order) and have < self._need:
            have, count = have + gains[order[count]], count + 1
        if have < self._need:
            return None
        self._too_many = False
        for _ in range(MAX_TRIES):
            found = self._try(order[:count], only)
            if found is not None:
                return found
            if count == len(order) or self._too_many:
                return None
            count = min(len(order), count + max(1, count // 4))
        return None

    # ---- a trial

    def _try(self, ordinals: Sequence[int], only: int | None) -> Found | None:
        """The gang placed without these victims, and those of them that this really needs; None: it is not placed."""
        gone = [self._holdings.victims[i] for i in ordinals]
        for victim in gone:
            self._trial.gone(victim.running)
        placement = self._place(only)
        if placement is not None:
            gone, placement = self._spare(gone, placement, only)
        for victim in gone:
            self._trial.back(victim.running)
        if placement is None or len(gone) > self._most:
            self._too_many = placement is not None
            return None
        return Found(tuple(gone), placement)

    def _place(self, only: int | None) -> Placement | None:
        return self._trial.place(self._job.shape, self._need, self._avoid, only)

    def _spare(self, gone: list[Victim], placement: Placement, only: int | None) -> tuple[list[Victim], Placement]:
        """Puts back those on whose devices the gang does not go, then the dearest ones without which it is placed as well."""
        gone = self._used(gone, placement)
        for victim in sorted(gone, key=lambda v: (-v.cost, v.job_id))[:MAX_PUT_BACK]:
            if victim not in gone:
                continue
            self._trial.back(victim.running)
            other = self._place(only)
            if other is None:
                self._trial.gone(victim.running)
            else:
                placement = other
                gone = self._used([v for v in gone if v is not victim], placement)
        return gone, placement

    def _used(self, gone: list[Victim], placement: Placement) -> list[Victim]:
        """Returns the victims whose devices a placement uses; puts the others back. If host memory counts: all victims on its nodes."""
        used = {r.job.job_id for r in occupants(placement, (v.running for v in gone))}
        nodes = nodes_of(placement) if self._costly else 0
        stay = []
        for victim in gone:
            if victim.job_id in used or nodes_of(victim.running.placement) & nodes:
                stay.append(victim)
            else:
                self._trial.back(victim.running)
        return stay


def _bits(mask: int) -> list[int]:
    out = []
    while mask:
        low = mask & -mask
        out.append(low.bit_length() - 1)
        mask ^= low
    return out


def _gains(parts: dict[int, dict[int, int]]) -> dict[int, int]:
    gains: dict[int, int] = {}
    for held in parts.values():
        for victim, gain in held.items():
            gains[victim] = gains.get(victim, 0) + gain
    return dict(sorted(gains.items()))
