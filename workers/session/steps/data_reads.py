"""Reports of what each step read: positions of its data as runs of steps, and the shards that they lie in.

Rank 0 reports for the gang, since all ranks go through one order. Runs are written before each save, and every REPORT_S; shards are counted
by a thread beside training. What the job leaves out is reported at the begin.
The checkpoint holds the newest runs, so the attempt that restores it reports them, and the shards of the last
REPORTED_AGAIN stretches, once more: what a node lost before it was shipped is not lost.
Holds: a finished step that a checkpoint holds is reported, exactly, by the attempt that saved it or the one that restored it.
Never: computes in training's own thread what grows with the number of samples; reports a step that was not finished.
"""

import copy
import json
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from trainhouse.checkpointing.state.reshard import FIRST, SCOPE
from trainhouse.events.model.bounds import MOST_COUNT
from trainhouse.events.model.data_read import MOST_PARTS, MOST_READ_RUNS, MOST_READ_SHARDS, MOST_STEP_RUNS
from trainhouse.events.model.skipped_data import MOST_SKIPPED_LOADERS, SkippedData
from trainhouse.workers.data.data_loader import Loader, MapStyle, Mixture
from trainhouse.workers.data.order import MOST_SAMPLES
from trainhouse.workers.data.sharded_dataset import ShardedDataset
from trainhouse.workers.data.step_reads import Run, StepRuns, Stretch, shard_ends_of, stretches
from trainhouse.workers.session.context import Context
from trainhouse.workers.session.logging.sink import Sink
from trainhouse.workers.session.process.background import Beside
from trainhouse.workers.spool import SpoolError

REPORT_S: Final = 30.0
MOST_LOADERS: Final = MOST_SKIPPED_LOADERS
MOST_RUNS_KEPT: Final = 64
REPORTED_AGAIN: Final = 8
"""Stretches before a restored step whose shards are reported again."""
LAST_WAIT_S: Final = 5.0


class _Stream:
    """One loader's runs, and how far they are reported."""

    def __init__(self, number: int, epoch: int, loader: Loader, parts: Sequence[tuple[MapStyle, int]]) -> None:
        self.tracked = False
        self.recorder = StepRuns(epoch)
        self.order = copy.deepcopy(loader.order)  # it holds tables that the loader's own reader changes
        self.names: list[tuple[str, int]] = []
        """Hash and part of each shard, through all parts; a dataset that was not published counts as one shard without a hash."""
        sizes: list[Sequence[int]] = []
        described = []
        for place, (dataset, weight) in enumerate(parts):
            published = dataset if isinstance(dataset, ShardedDataset) else None
            sizes.append([len(dataset)] if published is None else published.sizes)
            self.names += [("", place)] if published is None else [(shard.sha256, place) for shard in published.shards]
            version, split = ("", "") if published is None else (published.version, published.split)
            described.append({"version": version, "split": split, "samples": len(dataset), "weight": weight})
        self.ends = shard_ends_of(sizes)
        identity = self.order.identity()
        seed = identity.get("seed")
        self.identity = json.dumps(identity, sort_keys=True)
        self.fields: dict[str, Any] = {
            "loader": number,
            "samples": 0 if self.order.samples == MOST_SAMPLES else self.order.samples,
            "seed": "" if seed is None else str(seed),
            "order": self.identity,
            "parts": described,
        }
        self.skipped: tuple[SkippedData, ...] = ()
        self.reported: Run | None = None
        self.counted = 0
        self.stretch: Stretch | None = None

    @property
    def has_shards(self) -> bool:
        return any(name for name, _ in self.names)

    def positions_of(self, first_step: int, end_step: int) -> tuple[int, int]:
        """First position that some steps used, and the one after the last; the same twice if it is not known of any of them."""
        parts = [part for run in self.recorder.runs if (part := run.within(first_step, end_step)) is not None]
        if not parts:
            return 0, 0
        begin, last = min(part.begin for part in parts), parts[-1]
        end = last.begin + last.steps * last.per_step
        if last.padded:
            end = min(end, (last.begin // self.order.samples + 1) * self.order.samples)
        return (begin, end) if end <= MOST_COUNT else (0, 0)

    def unreported(self) -> list[Run]:
        """Runs that are new or longer since they were reported last."""
        runs, last = self.recorder.runs, self.reported
        if last is None:
            return list(runs)
        return [run for run in runs if run.first_step > last.first_step or (run.epoch, run.end_step) > (last.epoch, last.end_step)]

    def forget(self) -> None:
        """Drops reported runs beyond those that are kept."""
        runs = self.recorder.runs
        while len(runs) > MOST_RUNS_KEPT and (not self.has_shards or runs[0].end_step <= self.counted):
            del runs[0]


class DataReads:
    """Reports of one rank; of any but rank 0, and outside of a job, none."""

    def __init__(self, context: Context, sink: Sink, report_s: float = REPORT_S) -> None:
        self._context, self._sink, self._report_s = context, sink, report_s
        self._reports = context.job_id is not None and context.rank == 0
        self._streams: list[_Stream] = []
        self._restored: list[Mapping[str, Any]] = []
        self._cuts: list[int] = []
        self._began: int | None = None
        self._step = 0
        self._lock = threading.Lock()
        self._due = threading.Event()
        self._beside = Beside("trainhouse-data-reads", self._run)
        self._started = False
        self._loaders = 0
        self._unknown = False

    def watch(self, loader: Loader, dataset: MapStyle) -> None:
        """Reports what this loader gives from now on, and has it leave out what the job leaves out."""
        parts = list(zip(dataset.datasets, dataset.weights, strict=True)) if isinstance(dataset, Mixture) else [(dataset, 1)]
        if self._loaders >= MOST_LOADERS or len(parts) > MOST_PARTS:
            return
        number, self._loaders = self._loaders, self._loaders + 1  # alike on all ranks
        skipped = tuple(each for each in self._context.skip_data if each.loader == number)
        loader.skip((each.first_position, each.end_position) for each in skipped)
        if not self._reports:
            return
        stream = _Stream(number, self._context.epoch, loader, parts)
        stream.skipped = skipped
        loader.reads = stream.recorder
        with self._lock:
            self._streams.append(stream)
            if self._began is not None:
                self._begin(stream, self._began)

    def track(self, parts: Iterable[object]) -> None:
        """Notes which loaders' positions are in checkpoints."""
        loaders = [part for part in parts if isinstance(part, Loader)]
        recorders = [loader.reads for loader in loaders if loader.reads is not None]
        self._unknown = len(recorders) < len(loaders)
        for stream in self._streams:
            stream.tracked = any(stream.recorder is recorder for recorder in recorders)

    def positions_of(self, first_step: int, end_step: int) -> list[float]:
        """By loader, the first position that some steps used and the one after the last; zeros of loaders that checkpoints do not have.
        Zeros alone of any rank but rank 0, and where checkpoints have a loader that is not reported."""
        pairs = [(0, 0)] * MOST_LOADERS
        with self._lock:
            for stream in self._streams:
                if stream.tracked and not self._unknown:
                    pairs[stream.fields["loader"]] = stream.positions_of(first_step, end_step)
        return [float(number) for pair in pairs for number in pair]

    def begin(self, step: int) -> None:
        """Training begins with so many steps behind it. What was read before belongs to the first step."""
        if self._began is not None or not self._reports:
            return
        with self._lock:
            self._began = self._step = step
            self._cuts.append(step)
            for stream in self._streams:
                self._begin(stream, step)

    def _begin(self, stream: _Stream, step: int) -> None:
        """Takes over what the restored checkpoint knows of the loader, and reports it again."""
        number = stream.fields["loader"]
        known = self._restored[number] if number < len(self._restored) else None
        stream.counted = step
        if known is not None and known["order"] == stream.identity:
            runs = [_from_list(run) for run in known["runs"]]
            stream.recorder.runs[:0] = runs
            since = runs[0].first_step if len(runs) >= MOST_RUNS_KEPT else 0  # of those before it not all is known
            bounds = [first for first, _ in stretches(0, step, self._cuts) if first >= since] if step else []
            stream.counted = bounds[-REPORTED_AGAIN:][0] if bounds else step
        self._report_runs(stream, always=True)
        if stream.skipped:
            self._emit(stream, skipped=[each.model_dump() for each in stream.skipped])
        if not self._started:
            self._started = True
            self._beside.start()

    def passed(self, step: int) -> None:
        """Another step is finished: `step` of them now."""
        if self._streams:
            with self._lock:
                for stream in self._streams:
                    stream.recorder.finished(step - 1)
                self._step = step

    def saving(self, step: int) -> None:
        """A checkpoint of so many steps is about to be staged: writes what they read before it exists, and has the shards counted."""
        if not self._streams:
            return
        with self._lock:
            if not self._cuts or self._cuts[-1] < step:
                oldest = min((s.stretch.first_step if s.stretch else s.counted for s in self._streams), default=step)
                self._cuts = [*(cut for cut in self._cuts[:-REPORTED_AGAIN] if cut >= oldest), *self._cuts[-REPORTED_AGAIN:], step]
            for stream in self._streams:
                self._report_runs(stream)
        self._due.set()

    def state_dict(self) -> dict[str, Any]:
        """The newest runs of each loader, for the attempt that goes on from here. Rank 0's counts."""
        if not self._streams:
            return {SCOPE: FIRST}
        with self._lock:
            loaders = [{"order": stream.identity, "runs": _as_lists(stream.recorder.runs[-MOST_RUNS_KEPT:])} for stream in self._streams]
            return {SCOPE: FIRST, "job": self._context.job_id, "cuts": self._cuts[-REPORTED_AGAIN:], "loaders": loaders}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over the runs of the job's own earlier attempts; another job's are its own."""
        if self._reports and state.get("job") == self._context.job_id:
            self._restored = list(state["loaders"])
            self._cuts = [int(cut) for cut in state["cuts"]]

    def close(self) -> None:
        """Reports what is finished, and prints the steps whose shards are not. Blocks for as long as counting them takes, LAST_WAIT_S at
        most."""
        self._due.set()
        if self._beside.stop(LAST_WAIT_S):
            try:
                self._report()
            except SpoolError:
                pass  # the program's own last line has the reason
        uncounted = [stream.counted for stream in self._streams if stream.has_shards and stream.counted < self._step]
        if uncounted:
            # Into the job's log, and so into SQL: beside it, that a step has positions there and no shards shows it.
            print(
                f"trainhouse: the shards that steps {min(uncounted)} to {self._step - 1} read were not all counted before "
                "the program ended; of these steps `step_data` may have positions alone",
                file=sys.stderr,
                flush=True,
            )

    def _run(self) -> None:
        while not self._beside.ended_in(0.0):
            self._due.wait(self._report_s)
            self._due.clear()
            try:
                self._report()
            except SpoolError:
                pass  # the program's own next line has the reason, in view of its user

    def _report(self) -> None:
        for stream in list(self._streams):
            with self._lock:
                self._report_runs(stream)
                runs, end, cuts = list(stream.recorder.runs), self._step, tuple(self._cuts)
            if stream.has_shards:
                self._report_shards(stream, runs, end, cuts)
            with self._lock:
                stream.forget()

    def _report_runs(self, stream: _Stream, always: bool = False) -> None:
        runs = stream.unreported()
        for at in range(0, len(runs) or int(always), MOST_READ_RUNS):
            self._emit(stream, runs=[_as_fields(run) for run in runs[at : at + MOST_READ_RUNS]])
        stream.reported = runs[-1] if runs else stream.reported

    def _report_shards(self, stream: _Stream, runs: Sequence[Run], end: int, cuts: Sequence[int]) -> None:
        """Counts the shards of the steps since the last time, stretch by stretch."""
        for first, stop in stretches(stream.counted, end, cuts):
            within = [part for run in runs if (part := run.within(first, stop)) is not None]
            if within:
                if stream.stretch is None or stream.stretch.first_step != first:
                    stream.stretch = Stretch(within[-1].epoch, first)
                stream.stretch.add(within, stop, stream.order, stream.ends)
                self._report_stretch(stream, stream.stretch)
            stream.counted = stop

    def _report_stretch(self, stream: _Stream, stretch: Stretch) -> None:
        """Reports the shards with anything new. Those of an event that cannot be written stay new, for the next time."""
        shards: list[dict[str, Any]] = []
        count, new = 0, set[int]()
        for number in sorted(stretch.changed):
            (name, part), read = stream.names[number], stretch.shards[number]
            if not name:
                stretch.changed.discard(number)
                continue
            if len(shards) == MOST_READ_SHARDS or count + len(read.runs) > MOST_STEP_RUNS:
                self._emit_stretch(stream, stretch, shards)
                stretch.changed -= new
                shards, count, new = [], 0, set()
            first_steps, steps = zip(*read.runs, strict=True)
            shards.append({"shard": name, "part": part, "samples": read.samples, "first_steps": first_steps, "steps": steps})
            count += len(read.runs)
            new.add(number)
        if shards:
            self._emit_stretch(stream, stretch, shards)
            stretch.changed -= new

    def _emit_stretch(self, stream: _Stream, stretch: Stretch, shards: Sequence[Mapping[str, Any]]) -> None:
        self._emit(
            stream,
            stretch={"epoch": stretch.epoch, "first_step": stretch.first_step, "end_step": stretch.end_step, "shards": shards},
        )

    def _emit(self, stream: _Stream, **found: Any) -> None:
        about = stream.fields | {"began_step": self._began or 0, "tracked": stream.tracked, "at_ms": time.time_ns() // 1_000_000}
        self._sink.event("DataRead", about | found)


def _as_fields(run: Run) -> dict[str, Any]:
    fields = {"epoch": run.epoch, "first_step": run.first_step, "steps": run.steps, "first_position": run.begin, "per_step": run.per_step}
    return fields | {"padded": run.padded}


def _as_lists(runs: Iterable[Run]) -> list[list[int]]:
    return [[run.epoch, run.first_step, run.steps, run.begin, run.per_step, int(run.padded)] for run in runs]


def _from_list(values: Sequence[int]) -> Run:
    epoch, first_step, steps, begin, per_step, padded = map(int, values)
    return Run(epoch, first_step, steps, begin, per_step, bool(padded))
