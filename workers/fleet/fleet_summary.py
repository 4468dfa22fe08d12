"""Summary of an emulated fleet, while it runs and at its end.

Holds: rates are of the time since the line before; the summary is of the whole run.
"""

import time
from dataclasses import asdict, dataclass, field

from trainhouse.workers.fleet.fleet import Fleet
from trainhouse.workers.fleet.job_load import Load


@dataclass(frozen=True)
class Summary:
    """The whole run. Waits are from submission to reading the order, of the jobs that this process submitted.

    `struck`: each fault, and whom it hit. `faults_passed_over`: those that hit nothing, planned ones that never came among them.
    """

    nodes: int
    devices: int
    ran_s: float
    registered_s: float
    gangs_allocated: int
    gangs_started: int
    starts_per_s: float
    records_sent: int
    faults: dict[str, int]
    faults_passed_over: int
    cpu_share: float
    jobs_submitted: int = 0
    wait_p50_ms: float | None = None
    wait_p99_ms: float | None = None
    struck: list[dict[str, object]] = field(default_factory=list)

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


class Watch:
    """Keeps what lines and summary are made of."""

    def __init__(self, fleet: Fleet, load: Load | None) -> None:
        self._fleet = fleet
        self._load = load
        self._began_s = self._last_s = time.monotonic()
        self._cpu_s = self._last_cpu_s = time.process_time()
        self._last = (0, 0)
        self.records = 0
        self.registered_s: float | None = None

    def line(self) -> str:
        """Returns the current counts as one line."""
        fleet, now_s, cpu_s = self._fleet, time.monotonic(), time.process_time()
        passed_s = max(1e-9, now_s - self._last_s)
        counts = (fleet.gangs.whole, self.records)
        starts, records = ((new - old) / passed_s for new, old in zip(counts, self._last, strict=True))
        running = fleet.gangs.running
        busy = sum(run.allocation.world_size for run in running)
        text = (
            f"{fleet.up()}/{len(fleet.nodes)} nodes · {len(running)} gangs on {busy} devices run · {starts:.1f} starts/s · "
            f"{records:.0f} records/s · cpu {100 * (cpu_s - self._last_cpu_s) / passed_s:.0f} %"
        )
        if self._load is not None:
            text += f" · {self._load.sent}/{self._load.plan.count} jobs submitted, {len(self._load.waits_ms)} have had devices"
        self._last_s, self._last_cpu_s, self._last = now_s, cpu_s, counts
        return text

    def summary(self) -> Summary:
        """Returns the summary of the run."""
        fleet, load = self._fleet, self._load
        ran_s = max(1e-9, time.monotonic() - self._began_s)
        waits = sorted(load.waits_ms) if load is not None else []
        return Summary(
            nodes=len(fleet.nodes),
            devices=len(fleet.nodes) * fleet.plan.hardware.gpus_per_node,
            ran_s=ran_s,
            registered_s=self.registered_s if self.registered_s is not None else ran_s,
            gangs_allocated=fleet.tally.allocated,
            gangs_started=fleet.gangs.whole,
            starts_per_s=fleet.gangs.whole / ran_s,
            records_sent=self.records,
            faults=dict(sorted(fleet.tally.faults.items())),
            faults_passed_over=fleet.tally.passed_over,
            cpu_share=(time.process_time() - self._cpu_s) / ran_s,
            jobs_submitted=load.sent if load is not None else 0,
            wait_p50_ms=waits[len(waits) // 2] if waits else None,
            wait_p99_ms=waits[min(len(waits) - 1, len(waits) * 99 // 100)] if waits else None,
            struck=[asdict(each) for each in fleet.tally.struck],
        )
