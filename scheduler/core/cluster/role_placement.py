"""Gangs of several roles with unequal needs: block after block, all in the narrowest domain that takes them all.

Holds: each node appears once and its ranks follow each other; where two blocks meet on a node, the earlier ranks have the lower devices.
An answer is the whole gang, or None; None may be wrong where blocks compete for the same devices and another division would have
fitted: blocks are placed greedily, in rank order.
"""

from collections.abc import Iterator
from dataclasses import replace

from trainhouse.events.model.policy import Packing
from trainhouse.scheduler.core.cluster.capacity import bits_of, fitting, lowest_bits, node_room
from trainhouse.scheduler.core.cluster.cluster import Cluster
from trainhouse.scheduler.core.cluster.free_index import count_in
from trainhouse.scheduler.core.cluster.gang_placement import choose_for, with_devices
from trainhouse.scheduler.core.cluster.node_slots import NODE, NVLINK
from trainhouse.scheduler.core.cluster.placement_plan import Need, Plan
from trainhouse.scheduler.core.cluster.shape import Part, Placement, Shape


def place_roles(cluster: Cluster, plan: Plan, shape: Shape, packing: Packing, nodes: int | None) -> Placement | None:
    """All blocks, or None."""
    trial = cluster.fork()
    for scope in _scopes(trial, plan, shape, nodes):
        found = _sequence(trial, plan, shape, packing, scope)
        if found is not None and (shape.require != NVLINK or _in_one_cell(trial, found)):
            return found
    return None


def _scopes(cluster: Cluster, plan: Plan, shape: Shape, nodes: int | None) -> Iterator[int]:
    """Sets of nodes to try, narrow to wide, the tightest first."""
    allowed = cluster.node_mask(shape.pool) if nodes is None else cluster.node_mask(shape.pool) & nodes
    counts = sorted((cluster.free_bits[node].bit_count(), node) for node in bits_of(allowed))
    yield from (1 << node for count, node in counts if count >= plan.ranks)
    if shape.require == NODE:
        return
    types = sorted({need.device_type for needs in plan.needs for need in needs})
    bays = [bay for t in types if (bay := cluster.bays.get((shape.pool, t))) is not None]
    wide = plan.topology.wide
    required = plan.topology.level(shape.require) if shape.require else None
    if shape.require and (required is None or not required.wide):
        return
    start = next((at for at, level in enumerate(wide) if level.name == shape.prefer), 0)
    for level in wide[start:] if not shape.require else wide:
        domains = [d for d in level.domains if not required or level is required or plan.topology.within(d, required)]
        rooms = sorted((sum(count_in(bay.by_free, d.nodes & allowed) for bay in bays), d.first, d.nodes) for d in domains)
        yield from (inside & allowed for room, _, inside in rooms if room >= plan.ranks)
        if level.name == shape.require:
            return
    if not shape.require:
        yield allowed


def _sequence(trial: Cluster, plan: Plan, shape: Shape, packing: Packing, scope: int) -> Placement | None:
    """Blocks in order on nodes of one set; the trial is left as it was."""
    loose = replace(shape, require="", labels=(), spot=True)
    done: list[tuple[Placement, Shape]] = []
    parts: list[Part] = []
    for block, needs in zip(plan.blocks, plan.needs, strict=True):
        step = replace(loose, blocks=(block,))
        found = next((p for need in needs if (p := _next_block(trial, plan, step, need, packing, scope, parts)) is not None), None)
        if found is None:
            parts = []
            break
        trial.take(found, step)
        done.append((found, step))
        _join(parts, found)
    for placement, step in reversed(done):
        trial.give(placement, step)
    return tuple(parts) or None


def _join(parts: list[Part], found: Placement) -> None:
    if parts and parts[-1].node == found[0].node:
        parts[-1] = Part(parts[-1].node, parts[-1].devices | found[0].devices)
        found = found[1:]
    parts.extend(found)


def _next_block(trial: Cluster, plan: Plan, step: Shape, need: Need, packing: Packing, scope: int, parts: list[Part]) -> Placement | None:
    """One block: whole on the node where the one before ended, else on other nodes, else partly there."""
    free = scope & ~sum(1 << p.node for p in parts)
    begun = _on_last(trial, need, parts[-1], scope) if parts else ()
    if begun and begun[0].ranks == need.ranks:
        return begun
    chosen = choose_for(trial, plan, step, need, packing, need.ranks, free)
    if chosen is not None:
        return with_devices(trial, need, chosen)
    if not begun:
        return None
    chosen = choose_for(trial, plan, step, need, packing, need.ranks - begun[0].ranks, free)
    return None if chosen is None else begun + with_devices(trial, need, chosen)


def _on_last(trial: Cluster, need: Need, last: Part, scope: int) -> Placement:
    """As many ranks as the node where the block before ended still takes, above its devices."""
    if (need.nodes is not None and not need.nodes >> last.node & 1) or (last.node in trial.layout.cells and need.unit > 1):
        return ()
    bits = fitting(trial, last.node, need) & ~((1 << last.devices.bit_length()) - 1)
    ranks = min(need.ranks, bits.bit_count(), node_room(trial, last.node, need, 1))
    if ranks < need.ranks:
        ranks -= ranks % need.unit
    return (Part(last.node, lowest_bits(bits, ranks)),) if ranks > 0 else ()


def _in_one_cell(cluster: Cluster, placement: Placement) -> bool:
    """Whether a placement on one divided node keeps to one of its NVLink domains; others were chosen by domain."""
    cells = cluster.layout.cells.get(placement[0].node)
    return cells is None or (len(placement) == 1 and any(placement[0].devices & ~cell == 0 for cell in cells))
