"""The failure detector as a pure machine: heartbeats in, verdicts on nodes out.

Holds: silence counts only while the detector itself was reading (blindness is not death), so its own pause, restart or lost broker
condemns nobody; a verdict names the boot and incarnation that fell silent, and comes once for each silence; limits follow each node's
own rhythm of heartbeats.
Never: takes anything from a node; the scheduler does, on NodeLost.
"""

from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Final

import orjson

from trainhouse.events import Event, NodeHeartbeat, NodeId, NodeLost, NodeSuspected, PoolName
from trainhouse.scheduler.core.snapshot import parse

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class SilenceRule:
    """Limits in heartbeats of the node's own interval. Between two ticks at most `max_gap_ms` count: more means the detector slept."""

    suspected_beats: float = 5
    lost_beats: float = 15
    min_interval_s: float = 0.2
    max_interval_s: float = 60
    max_gap_ms: int = 2_000
    forget_after_ms: int = 86_400_000


class Standing(StrEnum):
    """What the detector last said of a node."""

    ALIVE = "ALIVE"
    SUSPECTED = "SUSPECTED"
    LOST = "LOST"


@dataclass(frozen=True, slots=True)
class Vitals:
    """A node's newest heartbeat, and how long the detector has listened in vain since."""

    node_id: NodeId
    boot_id: str
    incarnation: str
    pool: PoolName
    sequence: int
    at_ms: int
    interval_s: float
    silent_ms: int = 0
    standing: Standing = Standing.ALIVE


@dataclass(slots=True)
class DetectorState:
    """All nodes that were ever heard, and when the last tick was; None before the first."""

    nodes: dict[str, Vitals] = field(default_factory=dict)
    ticked_at_ms: int | None = None


class DetectorMachine:
    """Feed it every heartbeat with `heard`, and `tick` about once a second."""

    def __init__(self, rule: SilenceRule | None = None) -> None:
        self._rule = rule or SilenceRule()

    def initial(self) -> DetectorState:
        """Nobody has been heard."""
        return DetectorState()

    def heard(self, state: DetectorState, beat: NodeHeartbeat) -> None:
        """Takes in a heartbeat. A repeat, or one from before the newest, is no sign of life."""
        old = state.nodes.get(beat.node_id)
        if old is not None:
            same = (old.boot_id, old.incarnation) == (beat.boot_id, beat.incarnation)
            if (same and beat.sequence <= old.sequence) or (not same and beat.at_ms < old.at_ms):
                return
        interval_s = min(max(beat.interval_s, self._rule.min_interval_s), self._rule.max_interval_s)
        state.nodes[beat.node_id] = Vitals(beat.node_id, beat.boot_id, beat.incarnation, beat.pool, beat.sequence, beat.at_ms, interval_s)

    def tick(self, state: DetectorState, now_ms: int, reading: bool) -> list[Event]:
        """Verdicts that are due. `reading`: since the last tick, the detector has read all that the brokers had for it."""
        before, state.ticked_at_ms = state.ticked_at_ms, now_ms
        if before is None or not reading:
            return []
        listened_ms = min(max(0, now_ms - before), self._rule.max_gap_ms)
        verdicts: list[Event] = []
        for node_id in sorted(state.nodes):
            vitals = replace(state.nodes[node_id], silent_ms=state.nodes[node_id].silent_ms + listened_ms)
            standing = self._judge(vitals)
            if standing is not vitals.standing:
                verdicts.append(self._verdict(vitals, standing, now_ms))
            if vitals.silent_ms > self._rule.forget_after_ms:
                del state.nodes[node_id]
            else:
                state.nodes[node_id] = replace(vitals, standing=standing)
        return verdicts

    def _judge(self, vitals: Vitals) -> Standing:
        beats = vitals.silent_ms / 1000 / vitals.interval_s
        if vitals.standing is Standing.LOST or beats >= self._rule.lost_beats:
            return Standing.LOST
        return Standing.SUSPECTED if beats >= self._rule.suspected_beats else vitals.standing

    def _verdict(self, vitals: Vitals, standing: Standing, now_ms: int) -> Event:
        silent_s = vitals.silent_ms / 1000
        if standing is Standing.SUSPECTED:
            return NodeSuspected(
                node_id=vitals.node_id,
                boot_id=vitals.boot_id,
                pool=vitals.pool,
                silent_s=silent_s,
                suspicion=min(1.0, silent_s / (self._rule.lost_beats * vitals.interval_s)),
                at_ms=now_ms,
            )
        return NodeLost(
            node_id=vitals.node_id,
            boot_id=vitals.boot_id,
            incarnation=vitals.incarnation,
            pool=vitals.pool,
            silent_s=silent_s,
            evidence=(
                f"no heartbeat in {silent_s:.1f} s of listening, where one is due each {vitals.interval_s:g} s; "
                f"the last was number {vitals.sequence}"
            ),
            at_ms=now_ms,
        )

    def dump(self, state: DetectorState) -> bytes:
        """Canonical JSON. The time of the last tick is left out: whoever loads it has not listened since."""
        nodes = [asdict(state.nodes[n]) for n in sorted(state.nodes)]
        return orjson.dumps({"format": FORMAT, "nodes": nodes}, option=orjson.OPT_SORT_KEYS)

    def load(self, data: bytes) -> DetectorState:
        """The state back, as one that has not ticked yet."""
        raw = parse(data, FORMAT)
        vitals = [Vitals(**(v | {"standing": Standing(v["standing"])})) for v in raw["nodes"]]
        return DetectorState({v.node_id: v for v in vitals})
