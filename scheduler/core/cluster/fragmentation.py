"""Packing by looking at nodes as wholes: best fit, and fragmentation gradient descent.

Fragmentation is that of Weng et al., Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent
(USENIX ATC 2023): the devices of a node, in thousandths, that the usual job could not use there, averaged over what is usual. A job goes
where it makes this grow least. Best fit goes where least is left over.

Holds: nodes in equal states are judged once; integers only; ties go to the fuller node, then to the lowest index.
"""

from trainhouse.events.model.policy import Packing
from trainhouse.scheduler.core.cluster.capacity import fitting, lowest_bits
from trainhouse.scheduler.core.cluster.cluster import Cluster
from trainhouse.scheduler.core.cluster.device_sharing import shared_position
from trainhouse.scheduler.core.cluster.node_states import UNREPORTED, Asked, State, States, Typical, Verdict
from trainhouse.scheduler.core.cluster.placement_plan import Need, Plan
from trainhouse.scheduler.core.cluster.shape import WHOLE, Part, Placement, Shape

CPUS_BESIDE_A_DEVICE = 16
"""So many cpus that are left over count like one device."""


def place_usual(cluster: Cluster, plan: Plan, shape: Shape, packing: Packing, ranks: int, nodes: int | None) -> Placement | None:
    """A job on one node, by the state of nodes; None if no single node takes it."""
    states = cluster.follow_states()
    judged = states.judged[packing]
    best: tuple[int, int, int, int, Need] | None = None
    for need in plan.needs[0]:
        asked = Asked(ranks, shape.milli, need.cpus_milli * ranks, need.memory_bytes * ranks)
        allowed = _allowed(cluster, shape, need, nodes)
        for state, mask in states.by_state.get((shape.pool, need.device_type), {}).items():
            found = mask if allowed is None else mask & allowed
            if not found:
                continue
            key = (need.device_type, state, asked)
            if key in judged:
                verdict = judged[key]
            else:
                verdict = judged[key] = _judge(states, need.device_type, state, asked, packing)
            if verdict is None or (best is not None and verdict[:2] > best[:2]):
                continue
            rank = (verdict.growth, verdict.over, (found & -found).bit_length() - 1, verdict.share, need)
            if best is None or rank[:3] < best[:3]:
                best = rank
    return None if best is None else _part(cluster, shape, best[4], ranks, best[2], best[3])


def _allowed(cluster: Cluster, shape: Shape, need: Need, nodes: int | None) -> int | None:
    """Returns the nodes that the need may use; nodes whose devices differ in memory are left to the search by counts."""
    if need.nodes is None:
        return nodes
    plain = need.nodes & ~need.mixed
    return plain if nodes is None else plain & nodes


def _part(cluster: Cluster, shape: Shape, need: Need, ranks: int, node: int, share: int) -> Placement | None:
    if share:
        position = shared_position(cluster, node, need, share)
        return None if position is None else (Part(node, 1 << position, shape.milli),)
    return (Part(node, lowest_bits(fitting(cluster, node, need), ranks), shape.milli),)


def _judge(states: States, device_type: str, state: State, asked: Asked, packing: Packing) -> Verdict | None:
    """The best way to take a job in this state, or None."""
    if not _host_has(state, asked.cpus_milli, asked.memory):
        return None
    found: list[Verdict] = []
    for share, after in _ways(state, asked):
        growth = 0
        if packing is Packing.FRAGMENTATION:
            growth = _fragments(states, device_type, after) - _fragments(states, device_type, state)
        found.append(Verdict(growth, _over(after), share or WHOLE))
    if not found:
        return None
    best = min(found, key=lambda v: (v.growth, v.share))
    return best._replace(share=0 if best.share == WHOLE else best.share)


def _over(state: State) -> int:
    """Returns the resources that a state has left, devices and cpus together."""
    return (state.whole * WHOLE + sum(state.left)) * CPUS_BESIDE_A_DEVICE + max(0, state.cpus_milli)


def _ways(state: State, asked: Asked) -> list[tuple[int, State]]:
    """(share taken or 0, the state after it)."""
    cpus = state.cpus_milli - asked.cpus_milli if state.cpus_milli != UNREPORTED else UNREPORTED
    memory = state.memory - asked.memory if state.memory != UNREPORTED else UNREPORTED
    if asked.milli >= WHOLE:
        return [(0, State(state.whole - asked.ranks, state.left, cpus, memory))] if state.whole >= asked.ranks else []
    out = []
    for left in sorted(set(state.left)):
        if left >= asked.milli:
            rest = list(state.left)
            rest.remove(left)
            if left > asked.milli:
                rest.append(left - asked.milli)
            out.append((left, State(state.whole, tuple(sorted(rest)), cpus, memory)))
    if state.whole:
        out.append((0, State(state.whole - 1, tuple(sorted((*state.left, WHOLE - asked.milli))), cpus, memory)))
    return out


def _host_has(state: State, cpus_milli: int, memory: int) -> bool:
    return state.cpus_milli in (UNREPORTED, max(state.cpus_milli, cpus_milli)) and state.memory in (UNREPORTED, max(state.memory, memory))


def _fragments(states: States, device_type: str, state: State) -> int:
    key = (device_type, state)
    known = states.fragments.get(key)
    if known is None:
        known = states.fragments[key] = fragments(device_type, state, states.typical)
    return known


def fragments(device_type: str, state: State, typical: Typical) -> int:
    """Thousandths of devices that usual jobs cannot use in this state, times the jobs' weights (section 3.2 of the paper)."""
    shared = sum(state.left)
    all_left = state.whole * WHOLE + shared
    most = state.left[-1] if state.left else 0
    total = 0
    for usual, weight in typical:
        if (usual.types and device_type not in usual.types) or not _host_has(state, usual.cpus_milli, usual.memory_bytes):
            total += weight * all_left
        elif usual.milli >= WHOLE:
            total += weight * (shared if state.whole >= usual.ranks else all_left)
        elif state.whole or most >= usual.milli:
            total += weight * sum(left for left in state.left if left < usual.milli)
        else:
            total += weight * all_left
    return total
