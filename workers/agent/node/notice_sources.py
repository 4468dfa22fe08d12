"""Sources of termination notices, behind one port: a file in the agent's folder, a cloud's metadata service.

Holds: each source is looked at in a thread of its own, so that none waits for another; what it says is told once, and told again as
withdrawn when it says so no longer. A source that cannot be asked says nothing new.
Never: blocks the agent, or ends because a source is away.
"""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import structlog

from trainhouse.workers.agent.core import Noticed, NoticeWithdrawn
from trainhouse.workers.agent.node.notice_formats import TerminationNotice, by_file

FILE_INTERVAL_S = 0.25
MAX_FILE_BYTES = 4096
BOOT_SLACK_MS = 5_000
SAY_AGAIN_S = 300.0
log = structlog.get_logger(__name__)

NoticeInput = Noticed | NoticeWithdrawn


class NoticeSourceError(Exception):
    """A source cannot be asked now; the text says why."""


class NoticeSource(Protocol):
    """One place where a notice may stand."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def interval_s(self) -> float:
        """Interval between looks."""

    def look(self) -> TerminationNotice | None:
        """Reads the source. May block for some seconds. Raises NoticeSourceError."""


class NoticeFile:
    """A file: `notice_formats` tells what may stand in it. One from before this boot has been obeyed; it is passed over, and said so."""

    interval_s = FILE_INTERVAL_S

    def __init__(self, path: Path, booted_ms: int) -> None:
        self._path = path
        self._booted_ms = booted_ms
        self._seen: tuple[int, int] | None = None
        self._read: tuple[int, int] | None = None
        self._notice: TerminationNotice | None = None

    @property
    def name(self) -> str:
        return str(self._path)

    def look(self) -> TerminationNotice | None:
        """Reads the file once it has been the same for two looks: who writes it may not be done."""
        try:
            stat = self._path.stat()
        except FileNotFoundError:
            self._seen = self._read = self._notice = None
            return None
        except OSError as error:
            raise NoticeSourceError(str(error)) from error
        mark = (stat.st_mtime_ns, stat.st_size)
        if mark == self._seen and mark != self._read:
            self._notice = self._content(stat.st_mtime_ns // 1_000_000)
            self._read = mark
        self._seen = mark
        return self._notice

    def _content(self, written_ms: int) -> TerminationNotice:
        if written_ms < self._booted_ms - BOOT_SLACK_MS:
            raise NoticeSourceError("it was written before this machine booted; remove it, or touch it to mean it again")
        try:
            with self._path.open("rb") as file:
                text = file.read(MAX_FILE_BYTES).decode("utf-8", "replace")
        except OSError as error:  # it is there: somebody means it
            return TerminationNotice("file", "", problem=f"it cannot be read: {error.strerror}")
        return by_file(text, written_ms)


class NoticeWatch:
    """Looks at all sources; `emit` is called from their threads. Where no time was said, or it is over, the node goes in `default_s`."""

    def __init__(
        self, sources: Sequence[NoticeSource], emit: Callable[[NoticeInput], None], default_s: float, clock_ms: Callable[[], int]
    ) -> None:
        self._emit = emit
        self._default_ms = round(default_s * 1000)
        self._clock_ms = clock_ms
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._watch, args=(s,), name="notice", daemon=True) for s in sources]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._stop.set()

    def noticed(self, notice: TerminationNotice) -> Noticed:
        """As an input of the agent."""
        now_ms = self._clock_ms()
        in_time = notice.deadline_ms is not None and notice.deadline_ms > now_ms
        deadline_ms = notice.deadline_ms if in_time and notice.deadline_ms is not None else now_ms + self._default_ms
        reason = f"{notice.reason} [{notice.problem}]" if notice.problem else notice.reason
        return Noticed(notice.source, reason.strip(), deadline_ms)

    def _watch(self, source: NoticeSource) -> None:
        before: TerminationNotice | None = None
        away_s = -SAY_AGAIN_S
        while not self._stop.is_set():
            try:
                before = self._look(source, before)
            except Exception as why:  # whatever it stumbled over: it is asked again, and tells then
                if time.monotonic() - away_s >= SAY_AGAIN_S:
                    away_s = time.monotonic()
                    log.warning("a source of notices says nothing", source=source.name, reason=str(why))
            self._stop.wait(source.interval_s)

    def _look(self, source: NoticeSource, before: TerminationNotice | None) -> TerminationNotice | None:
        notice = source.look()
        if notice == before:
            return notice
        if notice is not None:
            if notice.problem:
                log.warning("a notice is not as it should be; it counts all the same", source=source.name, problem=notice.problem)
            self._emit(self.noticed(notice))
        elif before is not None:
            self._emit(NoticeWithdrawn(before.source))
        return notice
