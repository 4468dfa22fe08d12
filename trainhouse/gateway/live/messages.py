"""Messages of a stream: events of `text/event-stream`, and the position in a job's history that their ids name.

Holds: pure; an id is small, and going on behind it repeats no line and no point. An event of the story may come twice (by `event_id`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import orjson

from trainhouse.events import JobStatus
from trainhouse.events.wire.envelope import rfc3339

BEAT = b": still here\n\n"
_PLACE = re.compile(r"s(-?\d{1,18})\.m(-?\d{1,18})\.l(-?\d{1,18})\.e(\d{1,18})")


@dataclass(frozen=True)
class Place:
    """Position in a job's stream: its newest status, the offsets of its metrics and lines, the time of its newest event."""

    status_seq: int = -1
    metrics: int = -1
    lines: int = -1
    event_ms: int = 0

    def __str__(self) -> str:
        return f"s{self.status_seq}.m{self.metrics}.l{self.lines}.e{self.event_ms}"

    @classmethod
    def parse(cls, text: str) -> Place | None:
        """The place that an id names; None where it names none."""
        found = _PLACE.fullmatch(text.strip())
        return cls(*map(int, found.groups())) if found else None


def event(name: str, data: Any, place: object = "", retry_ms: int | None = None) -> bytes:
    """One event of a stream. `data` is JSON already, or what JSON can be made of."""
    text = data if isinstance(data, bytes) else orjson.dumps(data, option=orjson.OPT_NON_STR_KEYS)
    head = f"id: {place}\n" if str(place) else ""
    wait = f"retry: {retry_ms}\n" if retry_ms is not None else ""
    return f"{head}{wait}event: {name}\ndata: ".encode() + text + b"\n\n"


def job_of(status: JobStatus) -> dict[str, Any]:
    """A status as the API shows a job."""
    last = status.last_checkpoint
    same = ("name", "project", "team", "user", "priority", "reason", "restarts", "world_size", "step", "total_steps", "spec_sha256")
    rates = ("loss", "learning_rate", "steps_per_s", "samples_per_s", "elapsed_s", "eta_s", "status_seq")
    return {name: getattr(status, name) for name in (*same, *rates)} | {
        "job_id": str(status.job_id or ""),
        "source": "scheduled",
        "pool": str(status.pool or ""),
        "state": status.state.value,
        "attempt": int(status.attempt),
        "epoch": int(status.epoch),
        "node_ids": [str(p.node_id) for p in status.allocation],
        "last_checkpoint_step": last.step if last else None,
        "last_checkpoint_commit": last.commit if last else None,
        "last_checkpoint_uri": last.uri if last else "",
        "submission_id": str(status.submission_id or ""),
        "submitted_at": _time(status.submitted_at_ms),
        "allocated_at": _time(status.allocated_at_ms),
        "started_at": _time(status.running_at_ms),
        "finished_at": _time(status.finished_at_ms),
        "updated_at": rfc3339(status.updated_at_ms),
    }


def _time(at_ms: int | None) -> str | None:
    return None if at_ms is None else rfc3339(at_ms)
