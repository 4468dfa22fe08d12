"""The way back from quarantine: its gangs leave the node, it is asked for a self test, and let back when it passes.

A device that was closed alone comes back in the same way, while the node's other devices work: it is idle when its gangs have moved.

Holds: a self test of a node runs when it is idle, that of devices when they are, and one at a time; one that fails is repeated after twice
as long, up to the policy's bound: then it waits for a person. A test without an answer is requested again. A tick looks at nodes whose
time has come only.
Never: touches what a person has closed.
"""

from typing import Final

from trainhouse.events import DeviceId, NodeProbeAsked, NodeProbed, Restriction
from trainhouse.events.model.decisions import TrustChanged
from trainhouse.events.model.evidence import Probe
from trainhouse.events.model.phases import StopCause, StopKind
from trainhouse.scheduler.core.attempts.eviction import all_leave
from trainhouse.scheduler.core.attempts.node_trust import forget, is_ours, leave_to_people, restrict
from trainhouse.scheduler.core.state.draft import Draft
from trainhouse.scheduler.core.state.records import Node, NodeHealth

LOOK_MS: Final = 5_000
ANSWER_MS: Final = 600_000


def on_due(draft: Draft) -> None:
    """Handles the self tests that are due for nodes in quarantine."""
    if not draft.state.probing:
        return
    for node_id in sorted(n for n, at_ms in draft.state.probing.items() if at_ms <= draft.now_ms):
        node = draft.state.node(node_id)
        probe = node.trust.probe
        assert probe is not None
        if _of_devices(node):
            _devices_due(draft, node, probe)
        elif not is_ours(node):
            leave_to_people(draft, node)
        elif probe.number == 0:
            _empty(draft, node)
        elif node.health is not NodeHealth.UP or node.notice is not None:
            _plan(draft, node, probe.model_copy(update={"due_ms": draft.now_ms + ANSWER_MS}))
        elif node.holds:
            _plan(draft, node, probe.model_copy(update={"due_ms": draft.now_ms + LOOK_MS}))
        else:
            _ask(draft, node, probe)


def _of_devices(node: Node) -> bool:
    """Whether the node works, but for devices of it."""
    return node.restriction is Restriction.NONE and bool(node.trust.closed_devices)


def _devices_due(draft: Draft, node: Node, probe: Probe) -> None:
    closed = node.trust.closed_devices
    if node.health is not NodeHealth.UP or node.notice is not None:
        _plan(draft, node, probe.model_copy(update={"due_ms": draft.now_ms + ANSWER_MS}))
    elif any(device in hold.devices for hold in node.holds for device in closed):
        _plan(draft, node, probe.model_copy(update={"due_ms": draft.now_ms + LOOK_MS}))
    else:
        _ask(draft, node, probe, closed)


def put_off(draft: Draft, node: Node, device_id: str) -> None:
    """A closed device has made errors again: what a self test of it finds, or found, does not count."""
    probe = node.trust.probe
    if probe is not None and _of_devices(node) and device_id in node.trust.closed_devices:
        wait_ms = round(draft.state.book.policy(node.pool).failures.blame.probe_after_s * 1000)
        later = Probe(number=probe.number, due_ms=draft.now_ms + wait_ms)
        if probe.asked or later.due_ms > probe.due_ms:
            _plan(draft, node, later)


def came_back(draft: Draft, before: Node) -> None:
    """A node registered anew: if it was away, or its agent was asked for a self test that it forgot, it is asked soon."""
    probe = draft.state.node(before.node_id).trust.probe
    if probe is None or probe.number == 0:
        return
    if probe.asked or before.health is NodeHealth.LOST or before.notice is not None:
        _plan(draft, draft.state.node(before.node_id), Probe(number=probe.number, due_ms=draft.now_ms + LOOK_MS))


def _empty(draft: Draft, node: Node) -> None:
    """Its gangs are asked to save and leave; then comes the first self test, if the policy has any."""
    failures = draft.state.book.policy(node.pool).failures
    cause = StopCause(kind=StopKind.DRAINED, reason=f"node {node.node_id} is in quarantine: {node.restricted_for}")
    all_leave(draft, node, cause, draft.now_ms + round(failures.recovery.move_deadline_s * 1000))
    node = draft.state.node(node.node_id)
    if failures.blame.max_probes:
        _plan(draft, node, Probe(number=1, due_ms=draft.now_ms + round(failures.blame.probe_after_s * 1000)))
    else:
        leave_to_people(draft, node)


def _ask(draft: Draft, node: Node, probe: Probe, devices: tuple[DeviceId, ...] = ()) -> None:
    asked = {"node_id": node.node_id, "boot_id": node.boot_id, "pool": node.pool, "probe": probe.number, "at_ms": draft.now_ms}
    draft.emit(NodeProbeAsked.model_validate(asked | {"devices": devices}))
    _plan(draft, node, Probe(number=probe.number, due_ms=draft.now_ms + ANSWER_MS, asked=True, devices=devices))


def _plan(draft: Draft, node: Node, probe: Probe) -> None:
    draft.emit(TrustChanged(node_id=node.node_id, trust=node.trust.model_copy(update={"probe": probe})))


def on_probed(draft: Draft, event: NodeProbed) -> None:
    """The answer to the self test that was asked for last; any other one changes nothing."""
    node = draft.state.nodes.get(event.node_id)
    probe = node.trust.probe if node is not None else None
    if node is None or probe is None or not probe.asked or not (is_ours(node) or _of_devices(node)):
        return
    if (event.boot_id, event.probe) != (node.boot_id, probe.number):
        return
    draft.emit(event)
    if _of_devices(node):
        _devices_probed(draft, node, probe, event)
        return
    if event.passed:
        restrict(draft, node, Restriction.NONE, f"it passed self test {event.probe}")
        forget(draft, draft.state.node(node.node_id), "it passed its self test")
        return
    rules = draft.state.book.policy(node.pool).failures.blame
    if probe.number < rules.max_probes:
        wait_ms = round(rules.probe_after_s * 1000) << probe.number
        _plan(draft, node, Probe(number=probe.number + 1, due_ms=draft.now_ms + wait_ms))
        return
    restrict(draft, node, Restriction.QUARANTINED, f"it failed {_for_people(node, event)}")
    leave_to_people(draft, draft.state.node(node.node_id))


def _devices_probed(draft: Draft, node: Node, probe: Probe, event: NodeProbed) -> None:
    """Opens the devices that were tried, or tries them again later; those that were closed meanwhile have their turn after."""
    rules = draft.state.book.policy(node.pool).failures.blame
    again_ms = draft.now_ms + round(rules.probe_after_s * 1000)
    devices = ", ".join(probe.devices)
    if event.passed:
        left = tuple(device for device in node.trust.closed_devices if device not in probe.devices)
        trust = node.trust.model_copy(update={"closed_devices": left, "probe": Probe(number=1, due_ms=again_ms) if left else None})
        draft.emit(TrustChanged(node_id=node.node_id, trust=trust, reason=f"device {devices} passed its self test"))
    elif probe.number < rules.max_probes:
        wait_ms = round(rules.probe_after_s * 1000) << probe.number
        _plan(draft, node, Probe(number=probe.number + 1, due_ms=draft.now_ms + wait_ms))
    else:
        reason = f"device {devices} failed {_for_people(node, event)}"
        draft.emit(TrustChanged(node_id=node.node_id, trust=node.trust.model_copy(update={"probe": None}), reason=reason))


def _for_people(node: Node, event: NodeProbed) -> str:
    failed = "; ".join(f"{c.name}: {c.found}" for c in event.checks if not c.passed) or "no check is named"
    return f"{event.probe} self tests ({failed}). Repair it, then open it: trainhouse node uncordon {node.node_id}"
