"""Long tasks of a page's main thread, from a trace of the browser itself (Chrome's DevTools protocol).

Holds: a task's time is the thread's own processor time, so that a busy machine does not make a page look slow; what V8 or layout does
inside a task counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import CDPSession, Page

CATEGORIES = "toplevel,disabled-by-default-devtools.timeline,devtools.timeline,blink.user_timing,loading"
TASKS = ("ThreadControllerImpl::RunTask", "RunTask")
# Processor time of one task. The aim is 100, and `make bench` shows it; on a machine that is busy with other tests the same task has taken
# 130. One that draws all ten thousand, or a million, takes seconds.
LONGEST_MS = 400


@dataclass
class Trace:
    """What a trace told: the processor time of each task of the page's main thread, ms, the longest first."""

    tasks_ms: list[float] = field(default_factory=list)
    script_ms: float = 0.0

    @property
    def longest_ms(self) -> float:
        """0 where there was none."""
        return self.tasks_ms[0] if self.tasks_ms else 0.0


@contextmanager
def traced(page: Page) -> Iterator[Trace]:
    """Traces the page while inside; filled at the end."""
    session = page.context.new_cdp_session(page)
    events: list[dict[str, Any]] = []
    done: list[bool] = []
    session.on("Tracing.dataCollected", lambda data: events.extend(data["value"]))
    session.on("Tracing.tracingComplete", lambda _: done.append(True))
    session.send("Tracing.start", {"transferMode": "ReportEvents", "categories": CATEGORIES})
    found = Trace()
    yield found
    session.send("Tracing.end")
    _wait(page, session, done)
    found.tasks_ms, found.script_ms = of_events(events)


def _wait(page: Page, session: CDPSession, done: Sequence[bool]) -> None:
    for _ in range(600):
        if done:
            session.detach()
            return
        page.wait_for_timeout(50)
    raise AssertionError("the browser's trace did not end")


def of_events(events: Sequence[dict[str, Any]]) -> tuple[list[float], float]:
    """Tasks of the main thread of renderers (ms, longest first), and the time in scripts. Pure."""
    mains = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name" and e["args"].get("name") == "CrRendererMain"}
    own = [e for e in events if (e["pid"], e["tid"]) in mains and e.get("ph") == "X"]
    tasks = [e.get("tdur", e.get("dur", 0)) / 1000 for e in own if e["name"] in TASKS]
    scripts = ("EvaluateScript", "FunctionCall", "v8.compile", "v8.evaluateModule")
    return sorted(tasks, reverse=True), sum(e.get("tdur", 0) for e in own if e["name"] in scripts) / 1000
