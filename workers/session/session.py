"""The session: what a training program uses of Trainhouse.

    session = Session.start()
    ... build model, optimizer, loader ...
    session.track(model=model, optimizer=optimizer, schedule=schedule, loader=loader)
    for step in session.steps(total):
        with session.data_wait():
            batch = next(loader)
        ... train ...
        session.log(loss=loss.item())
        if step % 1000 == 999:
            with session.busy("evaluation", limit_s=600):
                ... evaluate ...

Holds: a logged point is in the spool when the call returns. All ranks save at the same step. A program runs without Trainhouse as well
(alone or under torchrun); then nothing is saved. A program that is done ends with its own exit code, however late torch's threads are.
Once a second it tells that the rank lives, what it is at (steps, data, a save, something announced) and how long it has waited, also while
that lasts. A logged `loss` that is no finite number, or explodes as the spec's `divergence` says, ends all ranks before the next save.
It logs its environment and system metrics by itself (`logging.auto_logging`); TRAINHOUSE_CAPTURE_ENVIRONMENT=0,
TRAINHOUSE_SYSTEM_METRICS_S=0 stop it. It measures its steps (`measuring.step_figures`).
Never: changes what the program computes: no random number is drawn, and no gradient is touched but where the program calls `prepare`,
`backward` or `optimizer_step`.
"""

import atexit
import contextlib
import itertools
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar

import torch
from torch.distributed.device_mesh import DeviceMesh

from trainhouse.checkpointing.chain.best_checkpoint import Score
from trainhouse.checkpointing.lease.signed_store import open_store
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.events import RankActivity
from trainhouse.events.model.parallelism import Parallelism
from trainhouse.events.model.spec import DataReference, Scalar
from trainhouse.events.model.training import Training
from trainhouse.workers.data.batches import Last, Share
from trainhouse.workers.data.data_loader import Function, Loader, MapStyle, Reading, make_loader
from trainhouse.workers.data.order import Blocks
from trainhouse.workers.data.outputs.written_output import FolderOutputStore, JobOutputStore, Output
from trainhouse.workers.data.published_data import open_split
from trainhouse.workers.data.settings import DataSettings
from trainhouse.workers.data.sharded_dataset import ShardedDataset
from trainhouse.workers.data.shards.writer import MOST_BYTES
from trainhouse.workers.launcher import ports
from trainhouse.workers.launcher.ports import RankPaths
from trainhouse.workers.session.context import Context
from trainhouse.workers.session.errors import InvalidUseError, Stopped
from trainhouse.workers.session.logging.auto_logging import OwnLog
from trainhouse.workers.session.logging.sink import Sink, open_sink
from trainhouse.workers.session.measuring.step_figures import Amounts
from trainhouse.workers.session.media.media_log import MediaLog
from trainhouse.workers.session.media.values import is_media
from trainhouse.workers.session.process import randomness, recorder
from trainhouse.workers.session.process.exit_guard import wait_until_let_go
from trainhouse.workers.session.process_groups import DEFAULT_TIMEOUT_S, Gang
from trainhouse.workers.session.saving.checkpoint_saver import Saver, direction_of, open_saver, start_helper
from trainhouse.workers.session.saving.job_artifacts import JobArtifacts, LoggedArtifact
from trainhouse.workers.session.saving.tracked_state import Modules, Optimizers, Stateful, Statefuls, Tracked
from trainhouse.workers.session.steps.boundary import Boundary
from trainhouse.workers.session.steps.liveness import Pulse
from trainhouse.workers.session.steps.progress import Progress
from trainhouse.workers.session.training import evaluation
from trainhouse.workers.session.training.essentials import Essentials

ExceptHook = Callable[[type[BaseException], BaseException, TracebackType | None], Any]
T = TypeVar("T")
M = TypeVar("M", bound=torch.nn.Module)
_STEPLESS = frozenset({RankActivity.BUSY, RankActivity.SAVING, RankActivity.WAITING_FOR_DATA})


class Session:
    """One per process. Make it with `Session.start`; use it as a context manager or leave its end to the end of the program."""

    def __init__(self, context: Context, gang: Gang, sink: Sink, saver: Saver, pulse: Pulse | None = None) -> None:
        self._context = context
        self._gang = gang
        self._saver = saver
        self._sink = sink
        self._write_point = sink.metrics
        self._progress = pulse.progress if pulse is not None else Progress(context.rank, sink.progress, sink.life)
        self._fresh = self._progress.fresh
        self._boundary = Boundary(context, gang, saver, self._progress, sink)
        self._essentials = Essentials(context.essentials, gang.device, context.layout.pp > 1)
        self._boundary.poor_norm = self._essentials.poor_norm
        self._pulse = pulse or Pulse(self._progress)
        self._tracking_ns = 0
        self._best_of: tuple[str, str] | None = None
        self._own_log = OwnLog(context, sink, self._training_step, os.environ, lambda: self._tracking_ns)
        self._pid = os.getpid()
        self._outputs: dict[str, Output] = {}
        self._artifacts = JobArtifacts(context, sink)
        self._media = MediaLog(context, sink)
        self._step = 0
        self._closed = False
        # Last: a pulse that runs already calls it at once, from its own thread.
        self._pulse.look = lambda now: self._boundary.untracked.look(self._step, now)

    @classmethod
    def start(
        cls,
        *,
        model: Modules | None = None,
        optimizer: Optimizers | None = None,
        schedule: Statefuls | None = None,
        loader: Stateful | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        context: Context | None = None,
    ) -> "Session":
        """Join the gang, seed every generator from the spec's seed, claim the job's commits; then `track` what is given.

        Blocks until all ranks are there, at most `timeout_s`. Call it before the model is built, or seed by yourself.
        """
        context = context or Context.from_env(os.environ)
        layout = context.layout
        helper = start_helper(context)  # before there is a thread or a device: it is a fork then
        if context.essentials.deterministic:
            randomness.be_deterministic()
        randomness.seed_all(context.seed, layout.data_rank(context.rank))
        sink = open_sink(context)
        pulse = Pulse(Progress(context.rank, sink.progress, sink.life))
        if context.spool is not None:
            pulse.start()
        try:
            gang = Gang(context, timeout_s)
            if context.parallelism is not None:
                gang.mesh(layout)
            session = cls(context, gang, sink, open_saver(context, gang, sink, helper), pulse)
        except BaseException:
            pulse.stop()
            if helper is not None:
                helper.close()
            raise
        if threading.current_thread() is threading.main_thread() and context.job_id is not None:
            signal.signal(signal.SIGTERM, session._boundary.on_sigterm)
            if context.world_size > 1 and context.rank < len(context.rank_folders):
                recorder.watch(RankPaths(context.rank_folders[context.rank]).recorder(context.rank), backend=context.backend or "gloo")
        if context.job_id is not None and context.world_size > 1:
            sys.excepthook = session._on_uncaught(sys.excepthook)
        if context.world_size > 1:
            atexit.register(wait_until_let_go)  # before `close`, so that it runs after it
        session._own_log.start()
        atexit.register(session.close)
        atexit.register(session._boundary.ending)  # the first of them: a SIGTERM raises nothing in any
        if any(part is not None for part in (model, optimizer, schedule, loader)):
            session.track(model=model, optimizer=optimizer, schedule=schedule, loader=loader)
        return session

    def track(
        self,
        *,
        model: Modules | None = None,
        optimizer: Optimizers | None = None,
        schedule: Statefuls | None = None,
        loader: Stateful | None = None,
        scaler: Stateful | None = None,
        ema: Modules | None = None,
        extra: Mapping[str, Stateful] | None = None,
    ) -> int:
        """Name what checkpoints hold, and put back the newest healthy one if there is one. Returns the step to begin from.

        Call it once, on all ranks, after the model is wrapped and moved to its device. Blocks while it reads. `model`: one, or a list of
        this rank's pipeline stages. `optimizer`, `schedule`: one or a list. `ema`: as AveragedModel. `extra`: anything else with a
        `state_dict()`, alike on all ranks. The gang may have another number of ranks and another layout (DDP, `fully_shard`,
        `parallelize_module`, pipeline stages) than when it saved; a loader goes on then if its state counts for the whole gang and says
        `"scope": "gang"`.
        """
        if self._boundary.tracked:
            raise InvalidUseError("track was called before; name everything in one call")
        own = self._essentials.scaler
        scaler = scaler or (own if own.is_enabled() else None)
        reads = self._boundary.reads if self._context.job_id is not None else None
        self._boundary.track(Tracked(model, optimizer, schedule, loader, scaler, ema, extra or {}, reads))
        self._essentials.track(self._boundary.tracked.models)
        self._step = self._saver.restore(self._boundary.tracked)
        return self._step

    def steps(
        self,
        total: int | None = None,
        *,
        save_every_steps: int | None = None,
        tokens_per_step: float | None = None,
        samples_per_step: float | None = None,
        peak_tflops: float | None = None,
        count_flops: bool = False,
        microbatches: int | None = None,
    ) -> Iterator[int]:
        """Yield the number of each step that is still to do: from the restored one up to `total` (None: for ever).

        `save_every_steps` goes before what the spec says about checkpoints. `tokens_per_step`, `samples_per_step`: of all ranks together,
        for the metrics `tokens_per_s` and `samples_per_s`. `peak_tflops` of this rank's device, for `mfu`, where it has no published one.
        `count_flops`: count the FLOPs of a few steps, for `step/flops` and `mfu`. Not with a `torch.compile`d function in the step: there
        it would run uncompiled, with `fullgraph=True` raise an error; flex_attention may run out of memory.
        `microbatches`: of a pipeline's step, for `pipeline/bubble`; those of `training.accumulation` where it is not given.
        Between steps it saves when due, answers the agent, and reports. Ends with Stopped (a SystemExit) when this rank is to leave.
        """
        boundary = self._boundary
        if save_every_steps is not None:
            boundary.policy = boundary.policy.model_copy(update={"every_steps": save_every_steps, "every_s": None})
            boundary.untracked.asked_anew(boundary.policy)
        boundary.begin(
            self._step, total, _amounts(tokens_per_step, samples_per_step, peak_tflops, count_flops, self._microbatches(microbatches))
        )
        try:
            while total is None or self._step < total:
                yield self._step
                self._essentials.check_used()
                self._step += 1
                boundary.passed(self._step)
            boundary.end(self._step)
        finally:
            boundary.left()

    def _microbatches(self, given: int | None) -> int | None:
        """Microbatches of a pipeline's step; None: unknown, or no pipeline."""
        accumulation = self.training.accumulation or 1
        return accumulation if given is None and self.parallelism.pp > 1 and accumulation > 1 else given

    @property
    def training(self) -> Training:
        """The spec's `training`; `accumulation` is that at this number of ranks. Outside of Trainhouse: TRAINHOUSE_TRAINING, as JSON."""
        return self._essentials.settings

    @property
    def scaler(self) -> torch.amp.GradScaler:
        """The scaler of fp16, in checkpoints by itself; else a disabled one. For losses that `backward` does not get (a pipeline's)."""
        return self._essentials.scaler

    def prepare(self, model: M, *, blocks: Iterable[torch.nn.Module] = ()) -> M:
        """Set the spec's precision, activation checkpointing and compilation of a model, in place; returns it.

        Call it before the model is wrapped (`DistributedDataParallel`, `fully_shard`, `PipelineStage`), after `parallelize_module`.
        `blocks`: its layers, such as `model.layers`, each computed again and compiled by itself. Names of parameters stay.
        Raises InvalidUseError.
        """
        self._essentials.prepare(model, blocks)
        return model

    def accumulate(self, micro_batches: Iterable[T]) -> Iterator[T]:
        """Yield the micro-batches of one step, as many as `training.accumulation` says, off an iterator (`session.loader`, `iter(loader)`)
        or a collection of exactly so many.

        Gradients of the tracked model are reduced over ranks in the last one alone. Waits for the next one count as waits for data. Raises
        InvalidUseError, also for a loader that would begin anew each step.
        """
        count = self.training.accumulation or 1
        if not isinstance(micro_batches, Iterator) and _length(micro_batches) != count:
            raise InvalidUseError(
                f"accumulate: {_described(micro_batches)} begins anew in each step, and a step takes training.accumulation = {count}; give "
                f"session.loader, an iterator that is made once before the loop, as iter(loader), or exactly {count} micro-batches"
            )
        source = iter(micro_batches)
        for number in range(count):
            with self.data_wait():
                found = list(itertools.islice(source, 1))
            if not found:
                raise InvalidUseError(f"accumulate: it has {number} micro-batches, and a step takes training.accumulation = {count}")
            with self._essentials.micro_batch(last=number == count - 1):
                yield found[0]

    def backward(self, loss: torch.Tensor, *, share: float | None = None) -> None:
        """Add the gradients of a micro-batch's mean loss, scaled as fp16 needs it. `share`: its part of the step, where they differ."""
        self._essentials.backward(loss, share)

    def optimizer_step(self, *optimizers: torch.optim.Optimizer, clip_norm: float | None = None) -> torch.Tensor | None:
        """Clip by the norm of all gradients over all ranks, let the optimizers take their step, and clear the gradients. Collective.

        `optimizers`: all of the step in one call. Returns the norm before that, a 0-d tensor on the rank's device; None where nothing is
        clipped or scaled. One that is not finite counts as divergence; under fp16 all ranks skip the step instead. `clip_norm`: where the
        spec has none. Raises InvalidUseError.
        """
        if not optimizers:
            raise InvalidUseError("optimizer_step(): give all optimizers of the step in one call, as optimizer_step(optimizer)")
        stages = self.mesh.get_group("pp") if self.parallelism.pp > 1 else None
        return self._essentials.optimizer_step(optimizers, clip_norm, stages)

    def validate(self, batches: Iterable[T], measure: Callable[[T], Mapping[str, Any]], *, limit_s: float = 3600.0) -> dict[str, float]:
        """Means of what `measure` returns for each of finite batches, over all ranks, logged as `validation/NAME`. Collective.

        The tracked models are in eval mode and without gradients meanwhile, and no step is expected for `limit_s`. `samples` in what is
        measured is the batch's weight and no metric. Sharded models need as many batches on each rank. Raises InvalidUseError.
        """
        if isinstance(batches, Loader):
            raise InvalidUseError(
                "validate: a session.loader never ends; give a finite DataLoader, or itertools.islice(loader, N) for N batches of each rank"
            )
        with self.busy("validation", limit_s=limit_s):
            found = evaluation.means(self._boundary.tracked.models, batches, measure, self._gang.control)
        if self.rank == 0:
            self.log(**{f"validation/{name}": value for name, value in found.items()})
        return found

    def loader(
        self,
        dataset: MapStyle | str,
        *,
        batch: int | None = None,
        seed: int | None = None,
        workers: int = 0,
        decode: Function | None = None,
        collate: Function | None = None,
        shuffle: bool | Blocks = True,
        last: Last = None,
        max_bad: float | None = None,
    ) -> Loader:
        """Make an endless loader of this rank's share of each batch of a map-style dataset: torch's, Hugging Face's, a list, a `Mixture`;
        or of a split, by its name, of the version that the spec's `data.dataset` names.

        `batch`: samples of one micro-batch of all data ranks (of the whole step where nothing is accumulated); follows from
        `training.global_batch` where that is given. The order follows from `seed` alone (by default the job's); `session.track(loader=…)`
        saves how far the gang has come, and any number of ranks, `workers` and layout goes on exactly there. A pass runs over into the next
        one; `last`: "drop" or "pad" the batch that it does not fill. `decode` gets each sample, in the worker process; `collate` the list
        of a batch. Waiting for it counts as `data_wait`. `max_bad`: share of the places of each pass over a published split that may
        stay empty on all ranks together, as samples cannot be read or decoded; 0.001 by default. The spec's `data.max_bad`, where it
        has one, holds instead: a person who reviews the job sets it.
        Raises InvalidDataError, InvalidUseError.
        """
        if isinstance(dataset, str):
            dataset = self._published(dataset)
        share = Share(self._samples_at_once(batch, last), self.data_rank, self.data_size)
        job = self._context
        reading = Reading(workers, decode, collate, self.device.type == "cuda", job.max_bad_of(max_bad), job.accepted_bad, job.job_id or "")
        made = make_loader(dataset, share, self.seed if seed is None else seed, shuffle, last, reading, self.data_wait)
        made.reports = self._boundary.bad_samples
        self._boundary.reads.watch(made, dataset)
        return made

    def _published(self, split: str) -> ShardedDataset:
        """One split of the job's version. Reads its manifest."""
        data = self._context.data
        if data is None or data.dataset is None:
            raise InvalidUseError(
                f"loader({split!r}): the job's spec names no version of a dataset; give data: {{dataset: NAME@sha256:…}} there, "
                f"{ports.DATASET} and {ports.PROJECT} to a program outside of Trainhouse, or a map-style dataset instead of a split's name"
            )
        one_node = all(folder.exists() for folder in self._context.rank_folders)
        project = self._context.project
        objects = open_store(StoreSettings())
        return open_split(data.dataset, data.owner or project, split, objects, DataSettings(), whole=one_node, reader=project)

    def output(self, name: str, *, shard_bytes: int = MOST_BYTES) -> Output:
        """An output of the job, which its spec names in `outputs`; each call with a name gives the same one. Any rank may write to it.

        When every rank has exited with code 0, what was written is one version of the dataset NAME in the job's project. Of a job that
        fails, or is cancelled, nothing is published. The end of the session closes it. `shard_bytes`: size at which shards are cut.
        Outside of Trainhouse shards are written to outputs/NAME, or below the folder that TRAINHOUSE_OUTPUTS_DIR names. Raises
        InvalidUseError.
        """
        known = self._outputs.get(name)
        if known is not None:
            return known
        job = self._context
        if job.job_id is None:
            folder = Path(os.environ.get("TRAINHOUSE_OUTPUTS_DIR", "outputs")) / name
            made = Output(FolderOutputStore(folder), self.rank, shard_bytes)
        elif name not in job.outputs:
            listed = ", ".join(job.outputs) or "none"
            raise InvalidUseError(f"output({name!r}): the job's spec names {listed}; give outputs: [{name}] there, or --output {name}")
        else:
            store = JobOutputStore(open_store(StoreSettings()), job.job_id, name, job.epoch, self.rank)
            made = Output(store, self.rank, shard_bytes)
        self._outputs[name] = made
        return made

    def log_artifact(self, path: str | Path, *, name: str, kind: str = "file", copy: bool = True) -> LoggedArtifact:
        """Store a file or a folder as a version of the artifact `name` of the job's project: a tokenizer, preprocessing, a model.

        Returns once the files are copied; a thread hashes and sends them, each once in the project, and the end of the session waits.
        `copy=False` for files that nothing changes any more. `.wait()` of what is returned blocks until it is whole in the store, gives
        NAME@sha256:HASH, and raises what kept it from there. Any rank may store; one is enough. A call that was cut off by a kill left
        nothing under the name. Outside of Trainhouse files go to artifacts/NAME. Raises InvalidUseError.
        """
        return self._artifacts.log(Path(path), name, kind, copy)

    def artifact(self, reference: str) -> Path:
        """A folder with the files of an artifact, each verified: `NAME` of what the job's dataset names, such as its tokenizer, else the
        newest version in the job's project; `NAME@sha256:HASH` is the same for all attempts. Blocks. Raises InvalidUseError.
        """
        return self._artifacts.fetch(reference)

    def _samples_at_once(self, batch: int | None, last: Last) -> int:
        """Samples that all data ranks take together off a loader at once. A pipeline's schedule splits the whole step by itself."""
        training = self.training
        if training.global_batch is None or training.micro_batch is None:
            if batch is None:
                raise InvalidUseError(
                    "loader: give batch, the samples of one micro-batch of all data ranks; training.global_batch is not set"
                )
            return batch
        count = 1 if self.parallelism.pp > 1 else training.accumulation or 1
        at_once = training.global_batch // count
        if batch not in (None, at_once):
            raise InvalidUseError(
                f"loader(batch={batch}): a step takes {count} of these off it, {count * (batch or 0)} samples, beside "
                f"training.global_batch = {training.global_batch}; leave batch out, or give {at_once}"
            )
        if last is not None and training.micro_batches != 1:
            raise InvalidUseError(
                f"loader(last={last!r}): under training.global_batch the samples of a step would depend on the number of ranks, as micro-"
                f"batches and not steps would end with the pass; leave it out"
            )
        return at_once

    def log(self, values: Mapping[str, Any] | None = None, /, **metrics: Any) -> None:
        """Record metrics of the current step: numbers, or tensors of one element. Microseconds; survives a SIGKILL right after it.

        A value may be an `Image`, `Table`, `Histogram`, `Text`, `Audio`, or a list of them: it is copied, and a thread encodes and stores
        it, whole or not at all. Under a mapping, `step` is the step of such values (by default the current one); metrics are of the current
        one. What is over the bounds (100 a step, 16 MiB each, 256 MiB waiting) is dropped, and counted on standard error. Raises
        InvalidUseError.
        """
        began_ns = time.perf_counter_ns()
        self._boundary.untracked.begin()
        if values is not None or any(map(is_media, metrics.values())):
            metrics = self._log_media(values, metrics)
            if not metrics:
                self._tracking_ns += time.perf_counter_ns() - began_ns
                return
        self._fresh.update(self._write_point(self._step, time.time_ns() // 1_000_000, metrics))
        self._tracking_ns += time.perf_counter_ns() - began_ns

    def _log_media(self, values: Mapping[str, Any] | None, metrics: dict[str, Any]) -> dict[str, Any]:
        """Stages what is no number; returns the metrics."""
        step = None if values is None else metrics.pop("step", None)
        named = {**(values or {}), **metrics}
        media = {name: value for name, value in named.items() if is_media(value)}
        left = {name: value for name, value in named.items() if name not in media}
        if step is not None and (type(step) is not int or not 0 <= step < 2**32 or (left and step != self._step)):
            raise InvalidUseError(
                f"log(…, step={step!r}): give a step of 0 and more to images, tables and others alone; metrics are of the current step"
            )
        for name, value in media.items():
            self._media.log(name, value, self._step if step is None else step)
        return left

    @contextlib.contextmanager
    def data_wait(self) -> Iterator[None]:
        """Time spent inside is counted as waiting for data, and shown while it lasts. Within `busy` it counts as that."""
        if self._progress.activity.now.kind in _STEPLESS:
            yield
            return
        with self._during(RankActivity.WAITING_FOR_DATA):
            yield

    @contextlib.contextmanager
    def busy(self, name: str, *, limit_s: float) -> Iterator[None]:
        """Announce something that makes no steps, such as an evaluation: within `limit_s` nobody takes it for a hang.

        `name` is told on standard error when it takes longer. It is no part of a step's time. All ranks may call it, or some.
        """
        if not 0 < limit_s < math.inf:
            raise InvalidUseError(f"busy({name!r}, limit_s={limit_s}): give the seconds after which it counts as hanging")
        with self._during(RankActivity.BUSY, limit_s, name):
            self._boundary.report()
            yield

    @contextlib.contextmanager
    def _during(self, kind: RankActivity, limit_s: float | None = None, name: str = "") -> Iterator[None]:
        activity = self._progress.activity
        before = activity.begin(kind, time.monotonic(), time.time_ns() // 1_000_000, limit_s, name)
        try:
            yield
        finally:
            activity.resume(before, time.monotonic(), time.time_ns() // 1_000_000)

    def save(self) -> None:
        """Save when the current step ends, on all ranks: each must call it in the same step. Training waits for a copy in memory only."""
        self._boundary.asked_by_program = True

    def save_if_best(self, metric: str, value: float, *, mode: Literal["min", "max"] | None = None) -> bool:
        """Save when the current step ends if this value is the best of the job so far; that checkpoint has the tag `best`. Collective.

        Rank 0's value counts, on all ranks; one that is not finite is never the best. `mode`: by default the spec's `checkpoint.mode` where
        `checkpoint.metric` is this metric, else `min`. Returns whether it is saved. Raises InvalidUseError for another metric than before.
        """
        policy = self._boundary.policy
        best = mode or (direction_of(policy) if policy.metric == metric else "min")
        if self._best_of not in (None, (metric, best)):
            raise InvalidUseError(f"save_if_best({metric!r}, mode={best!r}): a job has one best checkpoint, and it is by {self._best_of}")
        self._best_of = (metric, best)
        score = Score(metric, float(value), best)
        (is_best,) = self._gang.broadcast_from(0, [float(self.rank == 0 and self._saver.is_best(score))])
        if is_best:
            self._boundary.asked_by_program, self._boundary.score = True, score
        return bool(is_best)

    def close(self) -> None:
        """Write the last progress and tell no more; happens by itself at the end of the program. In a forked child it does nothing."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        for output in self._outputs.values():
            output.close()
        self._saver.close(self._boundary.last_wait_s)
        quiet = all([self._own_log.stop(), self._pulse.stop()])
        self._boundary.left()
        self._boundary.reads.close()
        self._boundary.report()
        until_s = time.monotonic() + self._boundary.last_wait_s  # of all three: what one waited, the next does not
        parts = (self._boundary.trace, self._artifacts, self._media)
        ended = [part.close(max(0.0, until_s - time.monotonic())) for part in parts]
        if quiet and all(ended):  # otherwise a thread may still write, and the end of the process closes the file
            self._sink.close()

    def _training_step(self) -> int | None:
        """The current step; None before the first one."""
        return self._step if self._progress.training else None

    def _on_uncaught(self, otherwise: ExceptHook) -> ExceptHook:
        """Handles an uncaught exception: it is printed as ever, and then what can be saved is."""

        def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            mine = not self._closed and os.getpid() == self._pid
            if mine:
                self._boundary.ending(failed=True)
            otherwise(kind, error, trace)
            if mine:
                self._boundary.rescue(error)

        return hook

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self._boundary.ending(failed=not isinstance(error, Stopped))
            self._boundary.rescue(error)
        self.close()
        if error is None:
            self._gang.leave()

    @property
    def hyperparameters(self) -> Mapping[str, Scalar]:
        """Hyperparameters of the job's spec; empty outside of Trainhouse."""
        return self._context.hyperparameters

    def secret(self, name: str) -> str:
        """The newest value of a secret that the spec names; one that is rotated while the job runs is seen at the next call.

        Outside of Trainhouse: the environment variable of that name. Raises InvalidUseError.
        """
        folder = self._context.secrets_dir
        try:
            return os.environ[name] if folder is None else (folder / name).read_text("utf-8", "surrogateescape")
        except (KeyError, OSError):
            raise InvalidUseError(
                f"there is no secret {name}: the spec names it by `secrets: [{name}]`, or submit by --secret {name}"
            ) from None

    @property
    def data(self) -> DataReference | None:
        """The input data that the spec names."""
        return self._context.data

    @property
    def project(self) -> str:
        """The project that the job belongs to."""
        return self._context.project

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
    def parallelism(self) -> Parallelism:
        """Layout of the gang at its present number of ranks; without one in the spec, each rank is a replica."""
        return self._context.layout

    @property
    def mesh(self) -> DeviceMesh:
        """The ranks as a DeviceMesh with the dimensions `pp`, `dp`, `fsdp` and `tp`, of which each may be 1: `session.mesh["tp"]`.

        Where the spec has no `parallelism`, all ranks must ask for it at the same place: the first use makes its process groups.
        """
        return self._gang.mesh(self._context.layout)

    @property
    def data_rank(self) -> int:
        """Share of the data that this rank reads; ranks of one tensor-parallel group and pipeline read the same."""
        return self._context.layout.data_rank(self._context.rank)

    @property
    def data_size(self) -> int:
        """Shares into which the data is split: dp × fsdp."""
        return self._context.layout.data_size

    @property
    def device(self) -> torch.device:
        """Torch device of this rank."""
        return self._gang.device

    @property
    def step(self) -> int:
        """Number of finished steps."""
        return self._step


def _length(items: Iterable[Any]) -> int | None:
    """Number of items; None where it is unknown, also of a DataLoader over an iterable dataset, whose `len` raises."""
    try:
        return len(items) if isinstance(items, Sized) else None
    except TypeError:
        return None


def _described(items: Iterable[Any]) -> str:
    length = _length(items)
    return f"a {type(items).__name__}" + ("" if length is None else f" of {length}")


def _amounts(
    tokens_per_step: float | None, samples_per_step: float | None, peak_tflops: float | None, count_flops: bool, microbatches: int | None
) -> Amounts:
    """Raises InvalidUseError."""
    given = {"tokens_per_step": tokens_per_step, "samples_per_step": samples_per_step, "peak_tflops": peak_tflops}
    given["microbatches"] = microbatches
    for name, value in given.items():
        if value is not None and not 0 < value < math.inf:
            raise InvalidUseError(f"steps({name}={value}): give a number above 0")
    per_step = {"tokens": tokens_per_step, "samples": samples_per_step}
    return Amounts({unit: float(amount) for unit, amount in per_step.items() if amount is not None}, peak_tflops, count_flops, microbatches)
