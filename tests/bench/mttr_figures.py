"""How soon each job ran again after a fault, and what that cost: from what the fleet struck and what its jobs reported. Pure.

Holds: a fault that a gang rode out (it went on in the same attempt) has no time to recover; what never came back is counted, not left out.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.bench import report

RODE_OUT_MS = 4_000
"""Progress of the same attempt so long after a fault: the gang goes on. (A notice's gang goes on until it has saved.)"""


TAIL_MS = 2_500
"""Progress comes once a second: so long after its last word a gang counts as going on."""


@dataclass
class Reports:
    """Progress of every job: (at, step) by epoch, as they came."""

    by_job: dict[str, dict[int, list[tuple[int, int]]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))

    def add(self, job_id: str, epoch: int, at_ms: int, step: int) -> None:
        self.by_job[job_id][epoch].append((at_ms, step))

    def first_after(self, job_id: str, epoch: int) -> int | None:
        """The first progress of any later attempt."""
        return min((told[0][0] for e, told in self.by_job[job_id].items() if e > epoch and told), default=None)

    def last_before(self, job_id: str, epoch: int, at_ms: int) -> int | None:
        """The newest progress of an attempt before a moment."""
        told = self.by_job[job_id].get(epoch, [])
        place = bisect_right(told, (at_ms, -1))
        return told[place - 1][0] if place else None


@dataclass(frozen=True)
class Hit:
    """One attempt hit by one fault. `back_ms` None: rode out, or (`left`) never ran again. `still_ms`: how long it made no step."""

    job_id: str
    epoch: int
    kind: str
    back_ms: int | None
    still_ms: int | None = None
    left: bool = False


def hits(struck: Sequence[Mapping[str, object]], told: Reports) -> Iterable[Hit]:
    """Each attempt that each fault hit."""
    faults = [(int(str(s["at_ms"])), str(s["kind"]), [(str(j), int(e)) for j, e in s["hit"]]) for s in struck]  # type: ignore[attr-defined]
    later: dict[tuple[str, int], list[int]] = defaultdict(list)
    for at_ms, _, hit in faults:
        for key in hit:
            later[key].append(at_ms)
    for at_ms, kind, hit in faults:
        for job_id, epoch in hit[:1] if kind in ("device", "hang") else hit:
            # Faults of one moment are looked on together: what a gang does between two of them tells of neither.
            until_ms = min((t for t in later[(job_id, epoch)] if t > at_ms + RODE_OUT_MS), default=1 << 62)
            went_on = any(at_ms + RODE_OUT_MS < t < until_ms for t, _ in told.by_job[job_id].get(epoch, []))
            back_ms = told.first_after(job_id, epoch)
            if went_on and kind in ("restart", "silent") and (back_ms is None or back_ms > until_ms):
                yield Hit(job_id, epoch, kind, None)
                continue
            if back_ms is None:
                yield Hit(job_id, epoch, kind, None, left=True)
                continue
            gone_ms = told.last_before(job_id, epoch, back_ms)
            yield Hit(job_id, epoch, kind, max(0, back_ms - at_ms), None if gone_ms is None else back_ms - gone_ms)


def times(values_ms: Sequence[int]) -> dict[str, float]:
    """p50, p95 and worst in seconds; empty without values."""
    if not values_ms:
        return {}
    seconds = [v / 1000 for v in values_ms]
    return {"p50": report.percentile(seconds, 50), "p95": report.percentile(seconds, 95), "worst": max(seconds)}


def lost_device_s(told: Reports, sizes: Mapping[str, int], step_s: float) -> tuple[float, float]:
    """(device-seconds without kept progress, device-seconds in all): from each job's first step to the last one of any job."""
    lost = whole = 0.0
    last_ms = max(at_ms for epochs in told.by_job.values() for steps in epochs.values() for at_ms, _ in steps)
    for job_id, epochs in told.by_job.items():
        begins = [(at_ms, step) for e in sorted(epochs) for at_ms, step in epochs[e]]
        if not begins:
            continue
        first_ms, first_step = begins[0]
        own_last_ms, last_step = begins[-1]
        last_step += round((last_ms - own_last_ms) / 1000 / step_s) if last_ms - own_last_ms < TAIL_MS else 0
        ideal_s = (last_ms - first_ms) / 1000
        whole += sizes[job_id] * ideal_s
        lost += sizes[job_id] * max(0.0, ideal_s - (last_step - first_step) * step_s)
    return lost, whole
