"""Reading a trace of jobs: the canonical CSV with `job_id, tenant, submit_s, duration_s, gpus, status, gpu_type, priority` and more.

Holds: jobs come out in order of submission, those of one second in the order of the file; whatever was left out is counted.
Never: lets a bad row pass: all rows are judged, also those outside of the time or tenant that is asked for.
"""

from dataclasses import dataclass, field
from pathlib import Path

from trainhouse.scheduler.sim.table import FileError, Row, read_table
from trainhouse.scheduler.sim.types import TraceJob

REQUIRED = ("job_id", "submit_s", "duration_s", "gpus")
OPTIONAL = (
    *("tenant", "status", "gpu_type", "priority", "user", "nodes", "gpu_milli", "cpu_milli", "memory_mib"),
    *("scheduled_s", "deleted_s", "min_gpus", "limit_s"),
)
MAX_GPUS = 65_536
CLASSES = {"": 50, "Guaranteed": 20, "LS": 20, "Burstable": 50, "BE": 80}
"""Priorities (0 is the highest) of the classes of service that a trace may name instead of a number; empty: the default of a job."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Selection of a trace's jobs: submitted in [from_s, to_s), of one tenant. None: all."""

    from_s: int | None = None
    to_s: int | None = None
    tenant: str | None = None

    def keeps(self, job: TraceJob) -> bool:
        """Whether a job is one of them."""
        return (
            (self.from_s is None or job.submit_s >= self.from_s)
            and (self.to_s is None or job.submit_s < self.to_s)
            and (self.tenant is None or job.tenant == self.tenant)
        )


@dataclass(slots=True)
class Trace:
    """The jobs to simulate, and how many rows were left out for what reason."""

    jobs: list[TraceJob] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def leave_out(self, why: str) -> None:
        """Counts one row."""
        self.left_out[why] = self.left_out.get(why, 0) + 1


def read_trace(path: Path, selection: Selection = Selection()) -> Trace:
    """Reads a trace. Raises FileError for a bad row, and where no job is left."""
    table = read_table(path, REQUIRED, OPTIONAL)
    trace = Trace()
    lines: dict[str, int] = {}
    tenants: set[str] = set()
    for row in table.rows:
        job = _job(row, trace)
        earlier = lines.setdefault(row.name("job_id"), row.line)
        if earlier != row.line:
            raise FileError(path, f"{row.text('job_id')!r} is already the job of line {earlier}; ids must differ", row.line, "job_id")
        if job is not None:
            tenants.add(job.tenant)
            if selection.keeps(job):
                trace.jobs.append(job)
    if table.unused:
        trace.notes.append(f"columns that mean nothing here: {', '.join(table.unused)}")
    _finish(path, trace, selection, sorted(tenants))
    return trace


def _finish(path: Path, trace: Trace, selection: Selection, tenants: list[str]) -> None:
    """Sorts the jobs, and says what was left out."""
    late = sum(1 for a, b in zip(trace.jobs, trace.jobs[1:], strict=False) if b.submit_s < a.submit_s)
    if late:
        trace.jobs.sort(key=lambda j: j.submit_s)
        trace.notes.append(f"{late:,} rows came after a later one: sorted by submit_s")
    trace.notes.extend(f"left out {count:,} rows: {why}" for why, count in sorted(trace.left_out.items()))
    if trace.jobs:
        return
    if selection.tenant is not None and selection.tenant not in tenants:
        known = ", ".join(tenants[:20]) + (" …" if len(tenants) > 20 else "")
        raise FileError(path, f"no job is of tenant {selection.tenant!r}; there are {known or 'none'}")
    raise FileError(path, "no job is left to simulate; " + ("; ".join(trace.notes) or "widen --from, --to or --tenant"))


def _job(row: Row, trace: Trace) -> TraceJob | None:
    """The job of a row; None, counted, for one that asks for no GPU or never ran."""
    gpus = row.whole("gpus", 0, MAX_GPUS)
    milli = row.whole_or("gpu_milli", 1000, 0, 1000)
    submit_s = row.whole("submit_s", 0)
    duration_s = row.whole_or("duration_s", -1)
    min_gpus = row.whole_or("min_gpus", 0, 0, gpus)
    limit_s = row.whole_or("limit_s", -1, 1)
    priority = _priority(row)
    if gpus == 0:
        trace.leave_out("they ask for no GPU")
        return None
    if duration_s < 0:
        trace.leave_out("they have no duration_s, so they never ran")
        return None
    if milli == 0 or (milli < 1000 and gpus > 1):
        raise row.wrong("gpu_milli", "1 to 999 for a share of one GPU (gpus 1), else 1000 or nothing")
    return TraceJob(
        job_id=row.name("job_id"),
        tenant=row.text("tenant"),
        submit_s=submit_s,
        duration_s=duration_s,
        gpus=gpus,
        status=row.text("status"),
        gpu_type=row.text("gpu_type"),
        priority=priority,
        gpu_milli=milli,
        cpu_milli=row.whole_or("cpu_milli", 0),
        memory_mib=row.whole_or("memory_mib", 0),
        user=row.text("user"),
        min_gpus=min_gpus,
        limit_s=limit_s if limit_s > 0 else None,
    )


def _priority(row: Row) -> int:
    """A number from 0 (the highest) to 100, or a class of service."""
    found = row.text("priority")
    if found in CLASSES:
        return CLASSES[found]
    if found.isascii() and found.isdigit() and int(found) <= 100:
        return int(found)
    raise row.wrong("priority", f"0 (the highest) to 100, nothing (50), or {', '.join(c for c in CLASSES if c)}")
