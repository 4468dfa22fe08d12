"""The session: what a training program uses of Trainhouse.

    session = Session.start()
    ... build model, optimizer, loader ...
    session.track(model=model, optimizer=optimizer, schedule=schedule, loader=loader)
    for step in session.steps(total):
        with session.data_wait():
            batch = next(loader)
        ... train ...
        session.log(loss=loss.item())

Holds: a logged point is in the spool when the call returns. All ranks save at the same step. A program runs without Trainhouse as well
(alone or under torchrun); then nothing is saved. A program that is done ends with its own exit code, however late torch's threads are.
Never: changes what the program computes: no random number is drawn, no gradient touched.
"""

import atexit
import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

import torch

from trainhouse.events.spec import Scalar
from trainhouse.workers.session import randomness
from trainhouse.workers.session.boundary import Boundary
from trainhouse.workers.session.context import Context
from trainhouse.workers.session.errors import InvalidUse
from trainhouse.workers.session.gang import DEFAULT_TIMEOUT_S, Gang
from trainhouse.workers.session.leaving import wait_until_let_go
from trainhouse.workers.session.progress import Progress
from trainhouse.workers.session.saver import Saver, open_saver
from trainhouse.workers.session.sink import Sink, open_sink
from trainhouse.workers.session.tracked import Stateful, Tracked


class Session:
    """One per process. Make it with `Session.start`; use it as a context manager or leave its end to the end of the program."""

    def __init__(self, context: Context, gang: Gang, sink: Sink, saver: Saver) -> None:
        self._context = context
        self._gang = gang
        self._saver = saver
        self._sink = sink
        self._write_point = sink.metrics
        self._progress = Progress(context.rank, sink.progress)
        self._latest = self._progress.latest
        self._boundary = Boundary(context, gang, saver, self._progress)
        self._step = 0
        self._closed = False

    @classmethod
    def start(
        cls,
        *,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        schedule: Stateful | None = None,
        loader: Stateful | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        context: Context | None = None,
    ) -> "Session":
        """Join the gang, seed every generator from the spec's seed, claim the job's commits; then `track` what is given.

        Blocks until all ranks are there, at most `timeout_s`. Call it before the model is built, or seed by yourself.
        """
        context = context or Context.from_env(os.environ)
        randomness.seed_all(context.seed, context.rank)
        gang = Gang(context, timeout_s)
        sink = open_sink(context)
        session = cls(context, gang, sink, open_saver(context, gang, sink))
        if threading.current_thread() is threading.main_thread() and context.job_id is not None:
            signal.signal(signal.SIGTERM, session._boundary.on_sigterm)
        if context.world_size > 1:
            atexit.register(wait_until_let_go)  # before `close`, so that it runs after it
        atexit.register(session.close)
        if any(part is not None for part in (model, optimizer, schedule, loader)):
            session.track(model=model, optimizer=optimizer, schedule=schedule, loader=loader)
        return session

    def track(
        self,
        *,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        schedule: Stateful | None = None,
        loader: Stateful | None = None,
    ) -> int:
        """Name what checkpoints hold, and put back the newest healthy one if there is one. Returns the step to begin from.

        Call it once, on all ranks, after the model is wrapped and moved to its device. Blocks while it reads. The gang may have another
        number of ranks than when it saved; a loader goes on then if its state counts for the whole gang and says `"scope": "gang"`.
        """
        if self._boundary.tracked:
            raise InvalidUse("track was called before; name everything in one call")
        self._boundary.tracked = Tracked(model, optimizer, schedule, loader)
        self._step = self._saver.restore(self._boundary.tracked)
        return self._step

    def steps(self, total: int | None = None, *, save_every_steps: int | None = None) -> Iterator[int]:
        """Yield the number of each step that is still to do: from the restored one up to `total` (None: for ever).

        `save_every_steps` goes before what the spec says about checkpoints.
        Between steps it saves when due, answers the agent, and reports. Ends with Stopped (a SystemExit) when this rank is to leave.
        """
        boundary = self._boundary
        if save_every_steps is not None:
            boundary.policy = boundary.policy.model_copy(update={"every_steps": save_every_steps, "every_s": None})
        boundary.begin(self._step, total)
        try:
            while total is None or self._step < total:
                yield self._step
                self._step += 1
                boundary.passed(self._step)
            boundary.end(self._step)
        finally:
            boundary.left()

    def log(self, **metrics: Any) -> None:
        """Record metrics of the current step: numbers, or tensors of one element. Microseconds; survives a SIGKILL right after it."""
        self._write_point(self._step, time.time_ns() // 1_000_000, metrics)
        self._latest.update(metrics)

    @contextlib.contextmanager
    def data_wait(self) -> Iterator[None]:
        """Time spent inside is counted as waiting for data."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._progress.data_wait_s += time.perf_counter() - began

    def save(self) -> None:
        """Save when the current step ends, on all ranks: each must call it in the same step."""
        self._boundary.asked_by_program = True

    def close(self) -> None:
        """Write the last progress and leave the gang; happens by itself at the end of the program."""
        if self._closed:
            return
        self._closed = True
        self._boundary.report(self._step)
        self._sink.close()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
        if error is None:
            self._gang.leave()

    @property
    def hyperparameters(self) -> Mapping[str, Scalar]:
        """Those of the job's spec; empty outside of Trainhouse."""
        return self._context.hyperparameters

    @property
    def seed(self) -> int:
        return self._context.seed

    @property
    def rank(self) -> int:
        return self._context.rank

    @property
    def world_size(self) -> int:
        return self._context.world_size

    @property
    def device(self) -> torch.device:
        """Where this rank computes."""
        return self._gang.device

    @property
    def step(self) -> int:
        """How many steps are finished."""
        return self._step
