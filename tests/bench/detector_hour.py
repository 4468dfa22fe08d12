"""An emulated hour of a fleet, judged by the detector and by a fixed timeout, both on the same heartbeats.

Holds: heartbeats arrive late, are lost, or wait while the detector is paused; none come while the brokers are away; agents restart,
machines stall, clocks jump. A verdict is right or wrong by what the fleet knows. The fixed rule never restarts, and knows all its past.
"""

import heapq
import random
from collections import Counter
from dataclasses import dataclass, field

from tests.bench.detector_fleet import EPOCH_MS, HOUR_MS, EmulatedNode
from trainhouse.events import NodeHeartbeat, NodeLost, RankActivity
from trainhouse.events.model.verdict import GangHung, VerdictLifted
from trainhouse.scheduler.core.detector import DetectorMachine, DetectorState, IssuedVerdict, Standings, recall
from trainhouse.scheduler.stream.detection.detector_history import LEAST_HEARTBEATS, MOST_HEARTBEATS

TICK_MS = 500
FIXED_SILENT_BEATS = 15
FIXED_STEP_MS = 30_000
GIVE_UP_MS = 600_000
DEATHS = 0.01
"""Of all nodes, in that hour."""


@dataclass
class Fixed:
    """The peer: a node is lost after so many intervals without a heartbeat, a gang hung when its last step is 30 s old."""

    heard_ms: dict[str, int] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    hung: set[str] = field(default_factory=set)

    def on_heartbeat(self, beat: NodeHeartbeat, now_ms: int) -> list[str]:
        name = str(beat.node_id)
        self.heard_ms[name] = now_ms
        self.lost.discard(name)
        about = f"{name}:{beat.attempts[0].epoch}"
        old = any(beat.at_ms - (r.step_at_ms or beat.at_ms) >= FIXED_STEP_MS for r in beat.attempts[0].ranks)
        if not old:
            self.hung.discard(about)
            return []
        found = [] if about in self.hung else [name]
        self.hung.add(about)
        return found

    def tick(self, now_ms: int, limit_ms: int) -> list[str]:
        found = [n for n, at_ms in self.heard_ms.items() if now_ms - at_ms >= limit_ms and n not in self.lost]
        self.lost |= set(found)
        return found


@dataclass
class Hour:
    """One hour of a fleet, judged by both. `hangs`: the share of gangs that hang in that hour, while they train."""

    nodes: list[EmulatedNode]
    rng: random.Random
    hangs: float
    machine: DetectorMachine = field(default_factory=DetectorMachine)
    state: DetectorState = field(default_factory=DetectorState)
    fixed: Fixed = field(default_factory=Fixed)
    arriving: list[tuple[int, int, NodeHeartbeat]] = field(default_factory=list)
    read: list[NodeHeartbeat] = field(default_factory=list)
    known: Standings = field(default_factory=dict)
    false: Counter[str] = field(default_factory=Counter)
    fixed_false: Counter[str] = field(default_factory=Counter)
    found: dict[int, dict[str, float]] = field(default_factory=dict)
    suspicions: int = 0
    beats: int = 0
    done: Counter[str] = field(default_factory=Counter)
    now_ms: int = EPOCH_MS

    def __post_init__(self) -> None:
        self.by_name = {n.name: n for n in self.nodes}
        self.due = [(n.next_ms, n.number) for n in self.nodes]
        heapq.heapify(self.due)
        self.interval_ms = self.nodes[0].interval_ms
        self.last_arrival: dict[int, int] = {}
        self.pauses = [(b, b + self.rng.randrange(5_000, 60_001)) for b in self._moments(5)]
        self.away = [(b, b + self.rng.randrange(5_000, 40_000)) for b in self._moments(3)]
        self.away += [(b, b + 600_000) for b in self._moments(1)]
        self.restarts = sorted(self._moments(3))
        self.plans = sorted(plan for n in self.nodes for plan in self._plans(n.number))

    def _moments(self, count: int) -> list[int]:
        """Early enough that whatever happens then is over within the hour."""
        return [EPOCH_MS + self.rng.randrange(60_000, HOUR_MS - 700_000) for _ in range(count)]

    def _plans(self, number: int) -> list[tuple[int, int, str]]:
        """What happens to one node, and when."""
        dice = self.rng.random
        kinds = ["agent restarts", "machine stalls"]
        kinds += ["clock jumps"] if dice() < 0.2 else []
        kinds += [self.rng.choice(("stops", "hangs"))] if dice() < self.hangs else []
        kinds += ["dies"] if dice() < DEATHS else []
        return [(EPOCH_MS + self.rng.randrange(60_000, HOUR_MS - 60_000), number, what) for what in kinds]

    def run(self) -> None:
        place, was_away, paused_before = 0, False, False
        while self.now_ms < EPOCH_MS + HOUR_MS:
            self.now_ms += TICK_MS
            while place < len(self.plans) and self.plans[place][0] <= self.now_ms:
                self._disturb(*self.plans[place])
                place += 1
            away = self._within(self.away)
            self._send(away)
            self._give_up()
            if self._within(self.pauses) or away:
                was_away, paused_before = was_away or away, True
                continue
            if self.restarts and self.restarts[0] <= self.now_ms:
                self.restarts.pop(0)
                self._restart_detector()
            # At worst the shell ticks once before it reads what came while it slept.
            if paused_before:
                self._ours(self.machine.tick(self.state, self.now_ms, not was_away))
                self._fixed_lost()
            was_away, paused_before = False, False
            self._read()
            self._ours(self.machine.tick(self.state, self.now_ms, True))
            self._fixed_lost()

    def _within(self, spans: list[tuple[int, int]]) -> bool:
        return any(begin <= self.now_ms < end for begin, end in spans)

    def _disturb(self, at_ms: int, number: int, what: str) -> None:
        node = self.nodes[number]
        gang = node.gang
        if node.dead_ms is not None or gang.hung_ms is not None:
            return
        self.done[what] += 1
        match what:
            case "agent restarts":
                node.restart_agent(at_ms)
            case "machine stalls":
                node.stall(at_ms, self.rng.randrange(500, 6_000))
            case "clock jumps":
                node.skew_ms += self.rng.choice((-3_600_000, -20_000, 20_000, 3_600_000))
            case "stops" | "hangs":
                gang.advance(at_ms)
                gang.resume_ms, gang.activity = None, RankActivity.STEPPING
                gang.hang(at_ms, self.rng.randrange(gang.ranks) if what == "stops" else None)
            case "dies":
                node.dead_ms = at_ms

    def _send(self, away: bool) -> None:
        while self.due[0][0] <= self.now_ms:
            at_ms, number = heapq.heappop(self.due)
            node = self.nodes[number]
            if node.next_ms > at_ms:
                heapq.heappush(self.due, (node.next_ms, number))
                continue
            if node.dead_ms is not None:
                heapq.heappush(self.due, (at_ms + HOUR_MS, number))
                continue
            beat = node.beat(at_ms)
            node.next_ms = at_ms + node.interval_ms + self.rng.randrange(-20, 60)
            heapq.heappush(self.due, (node.next_ms, number))
            if away or self.rng.random() < 0.01:
                continue
            late_ms = self.rng.expovariate(1 / 50) if self.rng.random() > 0.01 else self.rng.uniform(1_000, 4_000)
            arrives_ms = max(self.last_arrival.get(number, 0) + 1, at_ms + int(late_ms))
            self.last_arrival[number] = arrives_ms
            self.beats += 1
            heapq.heappush(self.arriving, (arrives_ms, self.beats, beat))

    def _read(self) -> None:
        while self.arriving and self.arriving[0][0] <= self.now_ms:
            beat = heapq.heappop(self.arriving)[2]
            self.read.append(beat)
            self._ours(self.machine.on_heartbeat(self.state, beat, self.now_ms))
            for name in self.fixed.on_heartbeat(beat, self.now_ms):
                self._hung(name, "fixed_s", self.fixed_false, None)
        if len(self.read) > 2 * MOST_HEARTBEATS:
            del self.read[:-MOST_HEARTBEATS]

    def _restart_detector(self) -> None:
        """A new one reads the last while back, as the shell does, and what was said before; the fixed one keeps all it knows."""
        self.state = self.machine.begin(self.known)
        newest = self.read[-LEAST_HEARTBEATS:]
        later = {beat.node_id for beat in newest}
        older = {beat.node_id: beat for beat in self.read if beat.node_id not in later}
        for beat in [*older.values(), *newest]:
            self.machine.on_heartbeat(self.state, beat, self.now_ms)

    def _ours(self, said: list[IssuedVerdict]) -> None:
        for one in said:
            recall(self.known, one)
            if isinstance(one.event, GangHung):
                self._hung(one.node_id, "ours_s", self.false, one.event)
            elif isinstance(one.event, NodeLost):
                self._lost(one.node_id, "ours_s", self.false)
            elif "node.suspected" in one.name:
                self.suspicions += not isinstance(one.event, VerdictLifted)
            elif not isinstance(one.event, VerdictLifted):
                self.false[type(one.event).__name__] += 1

    def _fixed_lost(self) -> None:
        for name in self.fixed.tick(self.now_ms, FIXED_SILENT_BEATS * self.interval_ms):
            self._lost(name, "fixed_s", self.fixed_false)

    def _hung(self, name: str, who: str, false: Counter[str], event: GangHung | None) -> None:
        node = self.by_name[name]
        gang = node.gang
        if gang.hung_ms is None or (event is not None and event.epoch != gang.epoch):
            false["GangHung"] += 1
            return
        seen = self.found.setdefault(node.number, {"p99_s": gang.p99_ms / 1000, "stopped": float(gang.deaf is not None)})
        seen.setdefault(who, (self.now_ms - gang.hung_ms) / 1000)
        if event is not None:
            seen.setdefault("limit_s", event.limit_s)
            seen.setdefault("late_beats", 1000 * (event.silent_s - event.limit_s) / self.interval_ms)
            named = () if gang.deaf is None else (gang.deaf,)
            seen.setdefault("right_ranks", float(event.ranks == named))
        if {"ours_s", "fixed_s"} <= seen.keys():
            node.restart_gang(self.now_ms)

    def _lost(self, name: str, who: str, false: Counter[str]) -> None:
        node = self.by_name[name]
        if node.dead_ms is None:
            false["NodeLost"] += 1
        else:
            self.found.setdefault(-1 - node.number, {}).setdefault(who, (self.now_ms - node.dead_ms) / 1000)

    def _give_up(self) -> None:
        if self.now_ms % 10_000 == 0:
            for node in self.nodes:
                if node.gang.hung_ms is not None and self.now_ms - node.gang.hung_ms > GIVE_UP_MS:
                    self.done["hangs that one of the two did not find"] += 1
                    node.restart_gang(self.now_ms)
