"""The failure detector as a pure machine: heartbeats in, verdicts out.

Holds: a node's silence counts only while the detector itself was reading, and what a heartbeat says is judged by the node's own clock,
from one heartbeat to the next (blindness is not death): the detector's pause, restart or lost brokers, and an agent's restart, never cause
a verdict. Every verdict follows from one node's heartbeats alone, comes once, and is lifted once.
Never: stops a gang or closes a node; the scheduler does.
"""

from collections.abc import Iterable
from typing import Final

from trainhouse.events import NodeHeartbeat
from trainhouse.events.model.failure_policy import Detection
from trainhouse.scheduler.core.detector.device import DeviceWatch
from trainhouse.scheduler.core.detector.device_verdict import end_other_boots, look_at_device
from trainhouse.scheduler.core.detector.hang_verdict import look_for_hang
from trainhouse.scheduler.core.detector.observation import Look
from trainhouse.scheduler.core.detector.open_verdicts import IssuedVerdict
from trainhouse.scheduler.core.detector.restore import Standings
from trainhouse.scheduler.core.detector.silence import Liveness, bounded_interval_s, first_look_ms, standing_after
from trainhouse.scheduler.core.detector.silence_verdict import end_silence, say_silent
from trainhouse.scheduler.core.detector.stalls import look_for_stalls
from trainhouse.scheduler.core.detector.state import AttemptWatch, DetectorState, MemberWatch, NodeWatch
from trainhouse.scheduler.core.detector.straggler import look_for_straggler

MAX_TICK_MS: Final = 2_000
"""Between two ticks at most so much counts as listening: more means that the detector slept."""
FORGET_AFTER_MS: Final = 86_400_000
GAP_BEATS: Final = 3
LEAST_GAP_MS: Final = 5_000
"""Heartbeats that are further apart than this, and than GAP_BEATS intervals, do not follow one another: who knows what was between."""
BEHIND_BYTES: Final = 4 * 1024 * 1024
"""An agent that is so far behind with what ranks wrote does not know what they are at now."""


class DetectorMachine:
    """Feed it each heartbeat with `on_heartbeat`, and `tick` about once a second. Pools have the limits that `apply` gave, or `default`."""

    def __init__(self, default: Detection | None = None) -> None:
        self._default = default or Detection()
        self._limits: dict[str, Detection] = {}
        self._version = 0

    def apply(self, pool: str, limits: Detection) -> None:
        """From here on these are the limits of a pool."""
        if self._limits.get(pool) != limits:
            self._limits[pool] = limits
            self._version += 1

    def begin(self, before: Standings) -> DetectorState:
        """Returns the state before the first heartbeat; `before` (see `recall`) are verdicts of earlier detectors that may still stand."""
        return DetectorState(recalled=dict(before))

    def on_heartbeat(self, state: DetectorState, beat: NodeHeartbeat, now_ms: int) -> list[IssuedVerdict]:
        """Takes in a heartbeat, and judges what it says. A repeat, or one from before the newest, is no sign of life."""
        old = state.nodes.get(beat.node_id)
        if old is not None and _outdated(old, beat):
            return []
        limits = self._limits.get(beat.pool, self._default)
        node, seen_ms = self._take(state, old, beat, limits)
        look = Look(node, limits, beat.at_ms, now_ms, seen_ms, beat.spool_lag_bytes > BEHIND_BYTES)
        end_silence(look, beat)
        end_other_boots(look)
        _look_at_attempts(look, beat)
        _look_at_devices(look, beat)
        return look.issued

    def _take(self, state: DetectorState, old: NodeWatch | None, beat: NodeHeartbeat, limits: Detection) -> tuple[NodeWatch, int | None]:
        interval_s, received_ms, seen_ms = bounded_interval_s(beat.interval_s), state.listened_ms, None
        if old is None:
            node = state.nodes[beat.node_id] = NodeWatch(
                beat.node_id, beat.boot_id, beat.incarnation, beat.pool, beat.sequence, beat.at_ms, interval_s, received_ms
            )
            node.stands = dict(state.recalled.pop(beat.node_id, {}))
        else:
            node = old
            if (node.boot_id, node.incarnation) == (beat.boot_id, beat.incarnation):
                node.rhythm.add(min(received_ms - node.received_at_ms, int(1000 * interval_s * limits.lost_beats)))
                seen_ms = _seen_ms(beat.at_ms - node.at_ms, interval_s)
            else:
                _begin_anew(node, beat)
            node.pool, node.sequence, node.at_ms = beat.pool, beat.sequence, beat.at_ms
            node.interval_s, node.received_at_ms = interval_s, received_ms
        node.look_at_ms = received_ms + first_look_ms(interval_s, limits)
        return node, seen_ms

    def tick(self, state: DetectorState, now_ms: int, reading: bool) -> list[IssuedVerdict]:
        """Verdicts on silence that are due. `reading`: since the last tick, the detector has read all that the brokers had for it."""
        before, state.ticked_at_ms = state.ticked_at_ms, now_ms
        if before is None or not reading:
            return []
        state.listened_ms += min(max(0, now_ms - before), MAX_TICK_MS)
        listened_ms, anew = state.listened_ms, state.limits_version != self._version
        state.limits_version = self._version
        due = sorted(n for n, watch in state.nodes.items() if anew or watch.look_at_ms <= listened_ms)
        issued: list[IssuedVerdict] = []
        for node_id in due:
            issued += self._silent(state, state.nodes[node_id], now_ms)
        return issued

    def _silent(self, state: DetectorState, node: NodeWatch, now_ms: int) -> list[IssuedVerdict]:
        silent_ms = state.listened_ms - node.received_at_ms
        if silent_ms > FORGET_AFTER_MS:
            del state.nodes[node.node_id]
            return []
        limits = self._limits.get(node.pool, self._default)
        standing = standing_after(silent_ms, node.rhythm, node.interval_s, node.standing, limits)
        look = Look(node, limits, node.at_ms, now_ms)
        if standing is not node.standing:
            node.standing = standing
            say_silent(look, silent_ms)
        if standing is Liveness.LOST:
            node.look_at_ms = node.received_at_ms + FORGET_AFTER_MS + 1
        else:
            node.look_at_ms = node.received_at_ms + first_look_ms(node.interval_s, limits)
        return look.issued


def _outdated(old: NodeWatch, beat: NodeHeartbeat) -> bool:
    if (old.boot_id, old.incarnation) == (beat.boot_id, beat.incarnation):
        return beat.sequence <= old.sequence
    # An agent that restarted while its clock went back looks older than it is; it is believed once the other one is silent.
    return beat.incarnation == old.superseded or (beat.at_ms < old.at_ms and old.standing is Liveness.ALIVE)


def _seen_ms(apart_ms: int, interval_s: float) -> int | None:
    """The time between two heartbeats if they follow one another. A clock that jumped makes a gap."""
    return apart_ms if 0 < apart_ms <= max(LEAST_GAP_MS, GAP_BEATS * 1000 * interval_s) else None


def _begin_anew(node: NodeWatch, beat: NodeHeartbeat) -> None:
    """The agent restarted, and its ranks may run on; after a boot nothing is as it was."""
    node.superseded, node.incarnation = node.incarnation, beat.incarnation
    if node.boot_id != beat.boot_id:
        node.boot_id = beat.boot_id
        node.devices.clear()


def _look_at_attempts(look: Look, beat: NodeHeartbeat) -> None:
    attempts = {f"{a.job_id}:{a.epoch}": a for a in beat.attempts}
    node = look.node
    if node.attempts.keys() - attempts.keys():
        node.attempts = {key: watch for key, watch in node.attempts.items() if key in attempts}
    if node.stands:
        _forget(node, attempts)
    for key, attempt in attempts.items():
        watch = node.attempts.get(key)
        if watch is None:
            watch = node.attempts[key] = AttemptWatch()
        ranks = {rank.rank for rank in attempt.ranks}
        if watch.ranks.keys() != ranks:
            watch.ranks = {rank.rank: watch.ranks.get(rank.rank) or MemberWatch() for rank in attempt.ranks}
        look_for_hang(look, watch, attempt)
        look_for_stalls(look, watch, attempt)
        for rank in attempt.ranks:
            look_for_straggler(look, watch.ranks[rank.rank].slow, attempt, rank)


def _forget(node: NodeWatch, attempts: Iterable[str]) -> None:
    """Drops the verdicts on attempts that are over, without an event."""
    over = [about for about, s in node.stands.items() if s.job_id is not None and f"{s.job_id}:{s.epoch}" not in attempts]
    for about in over:
        del node.stands[about]


def _look_at_devices(look: Look, beat: NodeHeartbeat) -> None:
    node = look.node
    if len(node.devices) > len(beat.devices):
        present = {health.device_id for health in beat.devices}
        node.devices = {device_id: watch for device_id, watch in node.devices.items() if device_id in present}
    for health in beat.devices:
        watch = node.devices.get(health.device_id)
        if watch is None:
            watch = node.devices[health.device_id] = DeviceWatch()
        look_at_device(look, watch, health)
