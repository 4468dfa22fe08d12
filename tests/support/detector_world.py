"""A detector and the nodes that it hears, in virtual time."""

from typing import Any

from trainhouse.events import NodeHeartbeat
from trainhouse.events.model.failure_policy import Detection
from trainhouse.scheduler.core.detector import DetectorMachine, DetectorState, IssuedVerdict

EPOCH_MS = 1_800_000_000_000


def beat(sequence: int, node_id: str = "n", incarnation: str = "i1", at_ms: int = 0, interval_s: float = 1, **more: Any) -> NodeHeartbeat:
    base = {"node_id": node_id, "boot_id": "b1", "incarnation": incarnation, "pool": "p", "sequence": sequence}
    return NodeHeartbeat.model_validate(base | {"at_ms": at_ms, "interval_s": interval_s} | more)


class Listener:
    """Ticks and hears; keeps all that was said."""

    def __init__(self, **limits: Any) -> None:
        self.machine = DetectorMachine(Detection(**limits))
        self.state: DetectorState = self.machine.begin({})
        self.now_ms = 0
        self.said: list[IssuedVerdict] = []

    def listen(self, seconds: float, reading: bool = True, step_ms: int = 1000) -> list[str]:
        """Ticks through some seconds; the names of what was said."""
        found: list[IssuedVerdict] = []
        for _ in range(int(seconds * 1000) // step_ms):
            self.now_ms += step_ms
            found += self.machine.tick(self.state, self.now_ms, reading)
        return self._keep(found)

    def hear(self, heartbeat: NodeHeartbeat) -> list[str]:
        """One heartbeat; the names of what was said at once."""
        return self._keep(self.machine.on_heartbeat(self.state, heartbeat, self.now_ms))

    def _keep(self, found: list[IssuedVerdict]) -> list[str]:
        self.said += found
        return [kind(s) for s in found]


def kind(said: IssuedVerdict) -> str:
    """Such as `GangHung`, or `lifted gang.hung`."""
    of = getattr(said.event, "of", None)
    return type(said.event).__name__ if of is None else f"lifted {of.removeprefix('trainhouse.').removesuffix('.v1')}"


class Gang:
    """The ranks of one attempt on one node, and its agent: each `beat` is one heartbeat, `after_s` after the one before.

    Ranks step every `step_s` unless they are in `frozen` (pulse and all) or `waiting` (they live, and make no step).
    """

    def __init__(self, ranks: int = 2, step_s: float = 0.1, epoch: int = 1, first_rank: int = 0, pulse: bool = True, **fields: Any) -> None:
        self.ranks, self.step_s, self.epoch, self.first_rank, self.pulse = ranks, step_s, epoch, first_rank, pulse
        self.now_ms = EPOCH_MS
        self.sequence = 0
        self.incarnation = "i1"
        self.boot_id = "b1"
        self.frozen: set[int] = set()
        self.waiting: set[int] = set()
        self.fields: dict[int, dict[str, Any]] = {n: dict(fields) for n in range(first_rank, first_rank + ranks)}
        self.devices: list[dict[str, Any]] = []
        self.more: dict[str, Any] = {}
        self.moved_ms = dict.fromkeys(self.fields, EPOCH_MS)
        self.steps = dict.fromkeys(self.fields, 0)
        self.pulse_ms = dict.fromkeys(self.fields, EPOCH_MS)

    def every(self, **fields: Any) -> None:
        """All ranks say this from now on."""
        for own in self.fields.values():
            own.update(fields)

    def doing(self, activity: str, *ranks: int, **fields: Any) -> None:
        """From now on these ranks (all, if none is named) are at something else; they step only while STEPPING."""
        for n in ranks or tuple(self.fields):
            self.fields[n].update(activity=activity, activity_since_ms=self.now_ms, **fields)
            self.waiting.discard(n)
            self.moved_ms[n] = self.now_ms
            if activity != "STEPPING":
                self.waiting.add(n)

    def advance(self, after_s: float) -> None:
        self.now_ms += int(after_s * 1000)
        for n in self.fields:
            if n in self.frozen:
                continue
            self.pulse_ms[n] = self.now_ms - 400
            passed = int((self.now_ms - self.moved_ms[n]) / (1000 * self.step_s))
            if n not in self.waiting and passed > 0:
                self.steps[n] += passed
                self.moved_ms[n] += int(passed * 1000 * self.step_s)

    def beat(self, after_s: float = 1.0) -> NodeHeartbeat:
        self.advance(after_s)
        self.sequence += 1
        ranks = [self._rank(n) for n in self.fields]
        attempt = {"job_id": "j", "attempt": 1, "epoch": self.epoch, "ranks": ranks}
        made = {"boot_id": self.boot_id, "attempts": [attempt], "devices": self.devices} | self.more
        return beat(self.sequence, incarnation=self.incarnation, at_ms=self.now_ms, **made)

    def _rank(self, n: int) -> dict[str, Any]:
        step_ms = 1000 * self.step_s
        said: dict[str, Any] = {
            "step": self.steps[n],
            "step_at_ms": self.moved_ms[n],
            "step_time_p99_ms": step_ms,
            "longest_step_ms": 2 * step_ms,
        }
        said |= {"activity": "STEPPING", "activity_since_ms": EPOCH_MS, "pulse_at_ms": self.pulse_ms[n]} if self.pulse else {}
        said |= {"rank": n, "device_id": f"d{n}", "pid": 100 + n, "state": "RUNNING"}
        return said | self.fields[n]


def hear_for(listener: Listener, gang: Gang, seconds: float, every_s: float = 1.0) -> list[str]:
    """Heartbeats for some seconds; all that was said."""
    found: list[str] = []
    for _ in range(round(seconds / every_s)):
        listener.now_ms += int(every_s * 1000)
        found += listener.hear(gang.beat(every_s))
    return found
