"""Reads what the agent asks of this rank: `request.json` in the attempt's folder.

Holds: costs one `stat` while nothing is asked. A request is answered once, known by its id. One whose deadline has passed no longer asks
for a save, but still for a stop.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Request:
    """One request of the agent."""

    id: str
    reason: str = ""
    deadline_ms: int | None = None
    then_stop: bool = False
    deadline_steady_s: float | None = None

    def wants_save(self, now_ms: int, now_s: float) -> bool:
        """Returns whether its deadline is ahead: by the steady clock, or by the wall clock where an agent of before wrote it."""
        if self.deadline_steady_s is not None:
            return now_s < self.deadline_steady_s
        return self.deadline_ms is None or now_ms < self.deadline_ms


class RequestFile:
    """Looks at one file; None: there is no agent."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._open: Request | None = None
        self._answered: set[str] = set()

    def pending(self) -> Request | None:
        """The request that waits for an answer, if any."""
        if self._path is None:
            return None
        try:
            stat = os.stat(self._path)
        except FileNotFoundError:
            return None
        mark = (stat.st_mtime_ns, stat.st_ino)
        if mark != self._seen:
            self._seen = mark
            self._open = self._read()
        return self._open

    def _read(self) -> Request | None:
        assert self._path is not None
        raw = json.loads(self._path.read_bytes())
        if raw.get("kind") != "checkpoint" or raw["id"] in self._answered:
            return None
        then_stop = bool(raw.get("then_stop", False))
        return Request(raw["id"], raw.get("reason", ""), raw.get("deadline_ms"), then_stop, raw.get("deadline_steady_s"))

    def answered(self) -> None:
        """Marks the requests so far as done."""
        if self._open is not None:
            self._answered.add(self._open.id)
        self._open = None
