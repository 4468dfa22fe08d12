"""Automatic logging of a session: its environment once, system metrics every few seconds; from a thread of its own.

Holds: the training thread only starts and stops it. Samples begin with the first step, so that a point never looks like one. It goes by
the rank's spool like everything else; a spool that is full or gone ends it, and training goes on.
Never: touches a tensor or a device's context, or keeps the process alive.
"""

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from trainhouse.workers.session.context import Context
from trainhouse.workers.session.logging import environment
from trainhouse.workers.session.logging.sink import Sink
from trainhouse.workers.session.logging.system_metrics import SystemMetrics, environment_wanted, interval_of
from trainhouse.workers.session.process.background import STOP_TIMEOUT_S, Beside
from trainhouse.workers.spool import SpoolError

EVERY_S = 10.0
EVENT = "EnvironmentCaptured"


class OwnLog:
    """One rank's. `step` is the current step, None before training; `tracking_ns` what the program's own calls of `log` took so far."""

    def __init__(
        self,
        context: Context,
        sink: Sink,
        step: Callable[[], int | None],
        environ: Mapping[str, str],
        tracking_ns: Callable[[], int] = lambda: 0,
    ) -> None:
        self._context = context
        self._sink = sink
        self._step = step
        self._environ = environ
        self._tracking_ns = tracking_ns
        self._every_s = interval_of(environ, EVERY_S)
        self._captures = context.rank == 0 and environment_wanted(environ)
        self._beside = Beside("trainhouse-own-log", self._run)

    def start(self) -> None:
        """Begin, unless there is nowhere to log to or nothing is wanted."""
        if self._context.spool is not None and (self._captures or self._every_s):
            self._beside.start()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """End; True when nothing is being written any more. Blocks for as long as one look takes, at most `timeout_s`."""
        return self._beside.stop(timeout_s)

    def _run(self) -> None:
        try:
            if self._captures:
                self._capture()
            if self._every_s:
                self._sample()
        except SpoolError:
            return  # the program's own next line tells it, where somebody sees it

    def _capture(self) -> None:
        try:
            fields = environment.capture(self._context.code, Path.cwd())
        except OSError as error:  # a folder that is gone
            print(f"the environment of this attempt is not captured: {error}", file=sys.stderr, flush=True)
            return
        self._sink.event(EVENT, fields | {"at_ms": time.time_ns() // 1_000_000})

    def _sample(self) -> None:
        system = SystemMetrics(self._context.local_rank, self._environ)
        since_ns, tracked_ns, own_ns = time.perf_counter_ns(), self._tracking_ns(), 0
        while not self._beside.ended_in(self._every_s):
            step = self._step()
            if step is None:
                continue
            began_ns = time.perf_counter_ns()
            try:
                found = system.sample(time.monotonic())
            except psutil.Error:
                continue  # something that it looked at is gone: the next sample does without it
            now_tracked_ns = self._tracking_ns()
            # What tracking costs training: the program's calls, and this thread's last sample as if training had waited for it.
            found["system/tracking_pct"] = 100 * (now_tracked_ns - tracked_ns + own_ns) / max(1, began_ns - since_ns)
            self._sink.metrics(step, time.time_ns() // 1_000_000, found)
            since_ns, tracked_ns, own_ns = began_ns, now_tracked_ns, time.perf_counter_ns() - began_ns
