"""Judges what a fleet and its scheduler said: every job ran whole and once, and no device had two attempts at a time.

Holds: reads events alone, as anybody could from the topics; asserts with the job or device in the message.
"""

from __future__ import annotations

import itertools

from trainhouse.events import AttemptStopped, Envelope, GangAllocated, NodeRegistered, RankExited

# A node, a job, an epoch.
Part = tuple[str, str, int]


def each_attempt_ran_once(told: list[Envelope], ranks: dict[str, int]) -> None:
    """One order per attempt, with as many ranks as asked for; one exit of each rank of the attempt that succeeded."""
    events = [e.event for e in told]
    orders = [e for e in events if isinstance(e, GangAllocated) and str(e.job_id) in ranks]
    assert len({(e.job_id, e.epoch) for e in orders}) == len(orders), "no attempt is ordered twice"
    assert {str(e.job_id) for e in orders} == set(ranks)
    for order in orders:
        assert order.world_size == ranks[str(order.job_id)]
    clean: dict[str, list[tuple[int, int]]] = {}
    for e in events:
        if isinstance(e, RankExited) and e.clean and str(e.job_id) in ranks:
            clean.setdefault(str(e.job_id), []).append((int(e.epoch), e.rank))
    for job_id, count in ranks.items():
        last = max(int(o.epoch) for o in orders if o.job_id == job_id)
        assert sorted(r for epoch, r in clean[job_id] if epoch == last) == list(range(count)), job_id


def no_device_was_shared(told: list[Envelope], pool: str) -> None:
    """A device is held from the moment of its order until its agent says that nothing is left, or until its machine has booted again: an
    order that comes to a machine which is down is never answered. No two such spans of a device overlap."""
    orders, ends = _spans(told, pool)
    assert orders and orders.keys() <= ends.keys(), f"every part that was ordered has ended, but {sorted(orders.keys() - ends.keys())}"
    held: dict[str, list[tuple[int, int, str]]] = {}
    for part, (begin_ms, devices) in orders.items():
        for device in devices:
            held.setdefault(f"{device} of {part[0]}", []).append((begin_ms, ends[part], f"{part[1]}:{part[2]}"))
    for device, spans in held.items():
        spans.sort()
        for (_, end, first), (begin, _, second) in itertools.pairwise(spans):
            assert end <= begin, f"{device}: {first} until {end}, {second} from {begin}"


def parts_held(told: list[Envelope], pool: str) -> list[Part]:
    """The parts of attempts that were ordered and have not ended, by the same rule."""
    orders, ends = _spans(told, pool)
    return sorted(orders.keys() - ends.keys())


def _spans(told: list[Envelope], pool: str) -> tuple[dict[Part, tuple[int, tuple[str, ...]]], dict[Part, int]]:
    """When each part was ordered, with its devices, and when it ended, where it has."""
    orders: dict[Part, tuple[int, tuple[str, ...]]] = {}
    boots: dict[Part, str] = {}
    for e in told:
        if isinstance(e.event, GangAllocated) and e.event.pool == pool:
            orders |= {_part(e.event, p.node_id): (e.time_ms or 0, p.devices) for p in e.event.placements}
            boots |= {_part(e.event, p.node_id): str(p.boot_id) for p in e.event.placements}
    ends: dict[Part, int] = {}
    for e in told:
        if isinstance(e.event, AttemptStopped):
            # An agent that is asked again answers again, with the time of that answer: nothing was left since the first.
            part = _part(e.event, e.event.node_id)
            ends[part] = min(e.event.stopped_at_ms, ends.get(part, e.event.stopped_at_ms))
    registered = [(str(e.event.node_id), str(e.event.boot_id), e.time_ms or 0) for e in told if isinstance(e.event, NodeRegistered)]
    for part in orders.keys() - ends.keys():
        later = [at for node, boot, at in registered if node == part[0] and boot != boots[part] and at >= orders[part][0]]
        if later:
            ends[part] = min(later)
    return orders, ends


def _part(of: GangAllocated | AttemptStopped, node_id: str) -> Part:
    """A node's part of an attempt."""
    return str(node_id), str(of.job_id), int(of.epoch)
