"""Verdicts on silent nodes: suspected, lost, and alive again.

Holds: both name the heartbeat after which the silence began, so that the same silence has the same verdicts in every detector.
"""

from typing import Final

from trainhouse.events import Event, NodeHeartbeat, NodeLost, NodeSuspected
from trainhouse.scheduler.core.detector.formatting import seconds
from trainhouse.scheduler.core.detector.observation import Look
from trainhouse.scheduler.core.detector.open_verdicts import thing
from trainhouse.scheduler.core.detector.silence import Liveness

_SILENCE: Final = (thing(NodeSuspected.event_type), thing(NodeLost.event_type))


def end_silence(look: Look, beat: NodeHeartbeat) -> None:
    """It speaks again; a heartbeat from before the silence (one that is read once more) does not end it."""
    node = look.node
    node.standing = Liveness.ALIVE
    for about in _SILENCE:
        stood = node.stands.get(about)
        if stood is None:
            continue
        same = stood.incarnation == beat.incarnation and stood.sequence is not None
        if same and beat.sequence <= (stood.sequence or 0):
            node.standing = Liveness.LOST if stood.of == NodeLost.event_type else Liveness.SUSPECTED
        else:
            look.lifts(about, f"{node.node_id} speaks again: heartbeat number {beat.sequence}")


def say_silent(look: Look, silent_ms: int) -> None:
    """Emits the verdict on its node after a silence."""
    node, silent_s = look.node, silent_ms / 1000
    if node.standing is Liveness.SUSPECTED:
        event: Event = NodeSuspected(
            node_id=node.node_id,
            boot_id=node.boot_id,
            pool=node.pool,
            silent_s=silent_s,
            suspicion=node.rhythm.phi(silent_ms, 1000 * node.interval_s),
            incarnation=node.incarnation,
            sequence=node.sequence,
            at_ms=look.now_ms,
        )
    else:
        mean_s = node.rhythm.mean_ms(1000 * node.interval_s) / 1000
        event = NodeLost(
            node_id=node.node_id,
            boot_id=node.boot_id,
            incarnation=node.incarnation,
            pool=node.pool,
            silent_s=silent_s,
            evidence=(
                f"no heartbeat of {node.node_id} in {silent_s:.1f} s of listening, where one is due each {node.interval_s:g} s "
                f"and they came {seconds(mean_s)} apart lately; the last was number {node.sequence}"
            ),
            sequence=node.sequence,
            at_ms=look.now_ms,
        )
    look.issue(event, node.node_id, node.incarnation, node.sequence)
