"""Profiler's trace of this rank's next steps, when the agent asks for it; stored as an artifact of the job.

Holds: costs a comparison a step, and a `stat` every LOOK_EVERY_S, while nothing is asked. Each request that names this rank ends with a
state for the agent: where the trace is, or why there is none. Steps that end early leave a trace of those before. Compression and upload
run beside training; the export, which holds the lock of the interpreter, runs between two steps. An error of theirs, or of the profiler,
ends the trace alone, and so does a profiler that the program starts itself: this one ends before it.
Never: exports what another profiler cancelled; asks other ranks; records two traces at once, or stores one of more than MAX_TRACE_BYTES.
"""

import contextlib
import gzip
import hashlib
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, record_function
from torch.profiler.profiler import _KinetoProfile

from trainhouse.checkpointing.lease.signed_store import open_artifact_store
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.events import RankActivity
from trainhouse.events.model.tracking import MAX_TRACE_BYTES, artifact_key, trace_path
from trainhouse.events.runtime.clock import steady_s
from trainhouse.workers.launcher.ports import AttemptPaths, RankPaths
from trainhouse.workers.launcher.processes import write_json
from trainhouse.workers.session.context import Context
from trainhouse.workers.session.logging.sink import Sink
from trainhouse.workers.session.measuring import program_profilers
from trainhouse.workers.session.steps.progress import Progress

LOOK_EVERY_S = 0.2
BUSY_LIMIT_S = 300.0
"""For the profiler to start, and to gather what it recorded."""
MAX_TEXT_CHARS = 4000
"""Of a state's text, so that the agent reads it whole."""
OTHER_STARTED = "the program's own torch profiler started, and a process has one at a time; ask again when it has ended"
RECORDING, STORING, DONE, FAILED = "recording", "storing", "done", "failed"


@dataclass(frozen=True)
class TraceRequest:
    """A request of the agent. `deadline_s`: by the machine's steady clock, the end of recording."""

    id: str
    steps: int
    deadline_s: float


@dataclass
class _Trace:
    """A trace that is being recorded."""

    request: TraceRequest
    first_step: int
    profiler: _KinetoProfile
    mark: record_function | None = None
    steps: int = 0


class TraceRecorder:
    """Recorder of one rank. All calls come from the training thread; a profiler of the program may start in any."""

    def __init__(
        self,
        context: Context,
        progress: Progress,
        sink: Sink,
        device: torch.device,
        store: Callable[[], ObjectStore] = lambda: open_artifact_store(StoreSettings()),
    ) -> None:
        self._context = context
        self._progress = progress
        self._sink = sink
        self._store = store
        self._device = device
        self._asked: Path | None = None
        if context.request is not None and context.rank < len(context.rank_folders):
            self._asked = AttemptPaths(context.request.parent).profile
            self._status = RankPaths(context.rank_folders[context.rank]).trace_status
            self._exported = self._status.with_name("profile.trace.json")
        self._look_at = 0.0
        self._seen = ""
        self._lock = threading.RLock()  # from the look at `_trace` to its end, which another thread's profiler waits for
        self._trace: _Trace | None = None
        self._cancelled: _Trace | None = None
        self._thread_id = 0
        self._unwatch: Callable[[], None] = lambda: None
        self._storing: threading.Thread | None = None

    @property
    def recording(self) -> bool:
        """Whether the step under way is slowed by the profiler."""
        return self._trace is not None or self._cancelled is not None

    def boundary(self, step: int) -> None:
        """`step` steps are finished, and the next one is about to begin."""
        if self._asked is None:
            return
        if self.recording:
            with self._lock:
                self._end_cancelled()
                if self._trace is not None:
                    self._guarded(lambda trace: self._step_ended(trace, step), self._trace)
        elif (now := time.monotonic()) >= self._look_at:
            self._look_at = now + LOOK_EVERY_S
            request = None if self._storing is not None and self._storing.is_alive() else self._pending()
            if request is not None:
                self._begin(request, step)

    def left(self, ending: bool) -> None:
        """The program is out of the steps: what was recorded is stored, unless the rank is `ending`: its last seconds are for its save."""
        with self._lock:
            self._end_cancelled()
            if self._trace is None:
                return
            if ending:
                self._give_up(self._trace, "the rank ended while it was recorded")
            elif self._trace.steps:
                self._guarded(self._finish, self._trace)
            else:
                self._give_up(self._trace, "the program ended its steps before one was recorded")

    def close(self, wait_s: float) -> bool:
        """Waits so long for a trace that is being stored; True once none is. Blocks."""
        if self._storing is not None:
            self._storing.join(wait_s)
        return self._storing is None or not self._storing.is_alive()

    def _pending(self) -> TraceRequest | None:
        """A request for this rank that it has not seen."""
        assert self._asked is not None
        try:
            raw = json.loads(self._asked.read_bytes()) if self._asked.exists() else {}
        except (OSError, ValueError):
            return None
        if self._context.rank not in raw.get("ranks", ()) or raw["id"] == self._seen:
            return None
        self._seen = raw["id"]
        request = TraceRequest(raw["id"], raw["steps"], raw["deadline_steady_s"])
        return request if steady_s() < request.deadline_s else None

    def _begin(self, request: TraceRequest, step: int) -> None:
        if program_profilers.under_way():  # to start another would end the program's own
            self._report(request, FAILED, "no trace: the program's own torch profiler is recording; ask again when it has ended")
            return
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._device.type == "cuda" else [])]
        trace = _Trace(request, step, _KinetoProfile(activities=activities))
        self._guarded(self._start, trace)

    def _start(self, trace: _Trace) -> None:
        with self._announced():
            trace.profiler.prepare_trace()
            trace.profiler.start_trace()
        self._trace, self._thread_id = trace, threading.get_ident()
        self._unwatch = program_profilers.watch(self._other_starts)
        self._report(trace.request, RECORDING, f"records {trace.request.steps} steps from step {trace.first_step}")
        self._mark(trace, trace.first_step)

    def _step_ended(self, trace: _Trace, step: int) -> None:
        self._unmark(trace)
        trace.steps = step - trace.first_step
        if trace.steps >= trace.request.steps or steady_s() >= trace.request.deadline_s:
            self._finish(trace)
        else:
            self._mark(trace, step)

    def _finish(self, trace: _Trace) -> None:
        self._unmark(trace)
        with self._announced():
            self._stop(trace)
            trace.profiler.export_chrome_trace(str(self._exported))
        self._trace = None
        self._report(trace.request, STORING, f"recorded {_steps(trace)}; stores the trace")
        self._storing = threading.Thread(target=self._keep, args=(trace,), name="trainhouse-trace", daemon=True)
        self._storing.start()

    def _keep(self, trace: _Trace) -> None:
        """Compresses and stores a trace, in a thread of its own."""
        packed = self._exported.with_name("profile.trace.json.gz")
        try:
            with self._exported.open("rb") as plain, gzip.open(packed, "wb", compresslevel=6) as file:
                shutil.copyfileobj(plain, file, 1 << 20)
            size = packed.stat().st_size
            if size > MAX_TRACE_BYTES:
                raise ValueError(
                    f"it has {size / 2**20:.0f} MiB, and at most {MAX_TRACE_BYTES / 2**20:.0f} are stored: ask for fewer steps"
                )
            place = self._put(trace, packed.read_bytes())
            self._report(trace.request, DONE, f"{_steps(trace)}, {size / 2**20:.2f} MiB: {place}")
        except Exception as error:
            self._report(trace.request, FAILED, f"the trace of {_steps(trace)} was not stored: {error}")
        finally:
            for file_path in (self._exported, packed):
                file_path.unlink(missing_ok=True)

    def _put(self, trace: _Trace, content: bytes) -> str:
        job, rank = self._context.job_id, self._context.rank
        path = trace_path(trace.request.id, rank)
        sha256 = hashlib.sha256(content).hexdigest()
        store = self._store()
        key = artifact_key(str(job), sha256)
        store.put_if_absent(key, content)
        fields = {"path": path, "uri": store.uri(key), "sha256": sha256, "size_bytes": len(content)}
        fields |= {"first_step": trace.first_step, "steps": trace.steps, "at_ms": time.time_ns() // 1_000_000}
        self._sink.event("TraceRecorded", fields, f"{job}:{self._context.epoch}:{rank}:trace:{trace.request.id}")
        return f"{path} ({store.uri(key)})"

    def _guarded(self, work: Callable[[_Trace], None], trace: _Trace) -> None:
        try:
            work(trace)
        except Exception as error:
            self._give_up(trace, f"torch's profiler: {type(error).__name__}: {error}")

    def _give_up(self, trace: _Trace, why: str) -> None:
        self._trace = None
        with contextlib.suppress(Exception):
            self._unmark(trace)
        with contextlib.suppress(Exception):
            self._stop(trace)
        with contextlib.suppress(OSError):
            self._exported.unlink(missing_ok=True)
        self._report(trace.request, FAILED, f"no trace: {why}")

    def _stop(self, trace: _Trace) -> None:
        """Ends the profiler. Raises RuntimeError where another has cancelled it: to export it then ends the process."""
        self._unwatch()
        trace.profiler.stop_trace()
        if not trace.profiler.profiler.kineto_results.trace_start_ns():  # type: ignore[union-attr]
            raise RuntimeError("another profiler of this process cancelled it")

    def _other_starts(self) -> None:
        """A profiler of the program is about to start."""
        with self._lock:
            if threading.get_ident() == self._thread_id:
                self._end_cancelled(at_once=True)
                if self._trace is not None:
                    self._give_up(self._trace, OTHER_STARTED)
            elif self._trace is not None:  # another thread can not end this one
                self._cancelled, self._trace = self._trace, None
                self._report(self._cancelled.request, FAILED, f"no trace: {OTHER_STARTED}")

    def _end_cancelled(self, at_once: bool = False) -> None:
        """Ends what another thread's profiler cancelled, once that has ended: it would end with it."""
        if self._cancelled is not None and (at_once or not program_profilers.records()):
            trace, self._cancelled = self._cancelled, None
            with contextlib.suppress(Exception):
                self._unmark(trace)
            with contextlib.suppress(Exception):
                self._stop(trace)

    def _mark(self, trace: _Trace, step: int) -> None:
        """Begins a span of the step's name, as torch.profiler calls it, so that tools that read its traces find the steps."""
        trace.mark = record_function(f"ProfilerStep#{step}")
        trace.mark.__enter__()  # type: ignore[no-untyped-call]

    def _unmark(self, trace: _Trace) -> None:
        mark, trace.mark = trace.mark, None
        if mark is not None:
            mark.__exit__(None, None, None)

    def _report(self, request: TraceRequest, state: str, text: str) -> None:
        """Writes the state for the agent; training goes on where it cannot be written."""
        content: dict[str, Any] = {"id": request.id, "state": state, "text": text[:MAX_TEXT_CHARS]}
        with contextlib.suppress(OSError):
            write_json(self._status, content)

    @contextlib.contextmanager
    def _announced(self) -> Iterator[None]:
        """Counts what is inside as no part of a step."""
        activity = self._progress.activity
        before = activity.begin(RankActivity.BUSY, time.monotonic(), time.time_ns() // 1_000_000, BUSY_LIMIT_S, "profiler")
        try:
            yield
        finally:
            activity.resume(before, time.monotonic(), time.time_ns() // 1_000_000)


def _steps(trace: _Trace) -> str:
    last = trace.first_step + trace.steps - 1
    return f"step {last}" if trace.steps == 1 else f"steps {trace.first_step}–{last}"
