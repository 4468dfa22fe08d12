"""Data of `top`: jobs by the newest status, machines, pools, alerts; filtered and ordered.

Holds: pure; an older status never replaces a newer one.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from trainhouse.client.backend_protocol import Row
from trainhouse.client.rows import row_of
from trainhouse.events import JobState, JobStatus

MAX_JOBS = 2000
FINAL = frozenset(str(s) for s in JobState if s.final)
WAITING = frozenset({"PENDING", "PREEMPTED", "NEEDS_REVIEW"})


@dataclass
class Picture:
    """The fleet as it was told so far. `problem`: why nothing new comes; `at_ms`: when something came last."""

    jobs: dict[str, Row] = field(default_factory=dict)
    nodes: list[Row] = field(default_factory=list)
    pools: list[Row] = field(default_factory=list)
    alerts: list[Row] = field(default_factory=list)
    problem: str = ""
    at_ms: int = 0

    def listed(self, rows: Iterable[Row]) -> None:
        """The list of jobs as it was read, which may be behind what was told."""
        for row in rows:
            if row["job_id"]:
                self._take(str(row["job_id"]), row)
        self._forget()

    def on_status(self, status: JobStatus) -> None:
        """One new status."""
        if status.job_id is not None:
            self._take(str(status.job_id), row_of(status))
            self._forget()

    def _take(self, name: str, row: Row) -> None:
        known = self.jobs.get(name)
        if known is None or (known.get("status_seq") or 0) <= (row.get("status_seq") or 0):
            self.jobs[name] = (known or {}) | row

    def _forget(self) -> None:
        """Lets those go that are too many: ended ones first, the oldest first."""
        extra = len(self.jobs) - MAX_JOBS
        if extra > 0:
            for name in sorted(self.jobs, key=lambda n: (not _over(self.jobs[n]), began(self.jobs[n])))[:extra]:
                del self.jobs[name]


def began(row: Row) -> int:
    """Returns the time of a job's submission, ms."""
    return int(row.get("submitted_at_ms") or row.get("updated_at_ms") or 0)


def _over(row: Row) -> bool:
    return row["state"] in FINAL


@dataclass(frozen=True)
class Order:
    """One order of the list: its name, and the key by which it sorts."""

    name: str
    key: Callable[[Row], tuple[Any, ...]]


ORDERS = (
    Order("active first", lambda r: (_over(r), r["state"] in WAITING, -began(r), r["job_id"])),
    Order("newest first", lambda r: (-began(r), r["job_id"])),
    Order("by user", lambda r: (r.get("user") or "", _over(r), -began(r), r["job_id"])),
    Order("most ranks first", lambda r: (_over(r), -(r.get("world_size") or 0), -began(r), r["job_id"])),
)
SEARCHED = ("job_id", "name", "user", "team", "project", "pool", "state", "reason")


def chosen(jobs: Iterable[Row], text: str, order: Order) -> list[Row]:
    """Jobs that have every word of the filter somewhere, in order."""
    words = text.lower().split()
    rows = [r for r in jobs if all(any(w in str(r.get(n) or "").lower() for n in SEARCHED) for w in words)]
    return sorted(rows, key=order.key)


def queue(jobs: Iterable[Row]) -> list[Row]:
    """Returns the waiting jobs: the highest priority first, then the first to come."""
    waiting = [r for r in jobs if r["state"] in WAITING]
    return sorted(waiting, key=lambda r: (r.get("pool") or "", r.get("priority") or 0, began(r), r["job_id"]))


def headline(picture: Picture) -> str:
    """The fleet in one line."""
    states = [r["state"] for r in picture.jobs.values()]
    waiting, over = sum(s in WAITING for s in states), sum(s in FINAL for s in states)
    devices = sum(int(n.get("devices") or 0) for n in picture.nodes)
    held = sum(int(r.get("world_size") or 0) for r in picture.jobs.values() if r["state"] not in FINAL | WAITING)
    alive = sum(n["state"] == "ALIVE" for n in picture.nodes)
    alerts = f"{len(picture.alerts)} alert{'' if len(picture.alerts) == 1 else 's'}"
    return (
        f"{len(states) - waiting - over} running, {waiting} waiting, {over} ended  ·  {held} of {devices} devices used  ·  "
        f"{alive} of {len(picture.nodes)} nodes alive  ·  {alerts}"
    )
