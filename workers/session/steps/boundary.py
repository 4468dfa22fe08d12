"""Step boundary: agreement with the other ranks, save, stop, report.

Holds: all ranks agree at the same steps (the stride to the next agreement is itself agreed), so none waits for one that does not come.
What the step alone decides needs no agreement. No state is saved whose loss diverged: before each save all ranks agree that none did.
Where more samples of the job's dataset are bad than it allows, on all ranks together, they save and leave.
"""

import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any, NoReturn

from trainhouse.checkpointing.chain.best_checkpoint import Score
from trainhouse.checkpointing.interval import Measured
from trainhouse.events import Divergence, OnDivergence, RankActivity
from trainhouse.events.runtime.clock import steady_s
from trainhouse.workers.data.data_loader import Excess, Loader
from trainhouse.workers.session import step_schedule
from trainhouse.workers.session.context import Context
from trainhouse.workers.session.errors import EXIT_BAD_DATA, EXIT_DIVERGED, EXIT_STOPPED, Stopped
from trainhouse.workers.session.logging.sink import Sink
from trainhouse.workers.session.measuring.step_figures import Amounts, StepFigures
from trainhouse.workers.session.measuring.trace_recorder import TraceRecorder
from trainhouse.workers.session.process_groups import Gang
from trainhouse.workers.session.saving.checkpoint_saver import Saver
from trainhouse.workers.session.saving.survivor_save import Survival
from trainhouse.workers.session.saving.tracked_state import Tracked
from trainhouse.workers.session.step_schedule import Wishes
from trainhouse.workers.session.steps import divergence
from trainhouse.workers.session.steps.agent_requests import RequestFile
from trainhouse.workers.session.steps.bad_samples import BadSamples
from trainhouse.workers.session.steps.data_reads import DataReads
from trainhouse.workers.session.steps.progress import Progress
from trainhouse.workers.session.steps.untracked import Untracked
from trainhouse.workers.session.steps.worktime import WorkTime

SIGTERM_EXIT = 128 + 15
TERMINATED_WAIT_S = 5.0
"""Of the seconds between SIGTERM and SIGKILL, for the upload under way."""
LAST_WAIT_S = 600.0


class Boundary:
    """The clockwork of one rank."""

    def __init__(self, context: Context, gang: Gang, saver: Saver, progress: Progress, sink: Sink) -> None:
        self.tracked = Tracked()
        self.asked_by_program = False
        self.score: Score | None = None
        """Of the state at the end of this step, which the program found the best one."""
        self.poor_norm: Callable[[], float | None] = lambda: None
        """A gradient norm that was not finite since the last call; asked at each agreement and before each save."""
        self.policy = context.policy
        self.work = WorkTime(lambda: progress.activity.now.data_wait_s)
        self.figures = StepFigures(context, progress, sink, gang.device)
        self.trace = TraceRecorder(context, progress, sink, gang.device)
        self._context = context
        self._gang = gang
        self._saver = saver
        self._progress = progress
        self._sink = sink
        self._requests = RequestFile(context.request)
        self._must_agree = saver.saves or context.request is not None
        self._watch = divergence.watch_for(context.divergence) if self._must_agree else None
        self._pid = os.getpid()
        self._terminated = False
        self._leaving = False
        self._failed = False
        self._stepping = False
        self._next_agreement = 0
        self._agreed_at: int | None = None
        self._began = (0.0, 0)
        self._busy_s = 0.0
        self._proved = False
        self._saved_at = self._committed_at = time.monotonic()
        self._saved_step: int | None = None
        self._prepared = False
        self._sound_step = -1
        self._on_its_way: tuple[int, float] | None = None
        self._measured = Measured(failures=context.attempt)
        reports = saver.saves and context.rank == 0
        self.untracked = Untracked(context.policy, self._report_untracked if reports else None)
        self._at_step = 0
        self.bad_samples = BadSamples(context, gang, sink, lambda: self._at_step)
        self.reads = DataReads(context, sink)
        self._counts_bad = context.job_id is not None and context.data is not None and context.data.dataset is not None
        self._too_much: Excess | None = None
        self._survival = Survival(context.rank, context.rank_folders, saver.save_for_all, saver.elsewhere)

    def track(self, tracked: Tracked) -> None:
        """Sets the state that is saved from now on."""
        self.tracked = tracked
        self.bad_samples.track((tracked.loader, *tracked.extra.values()))
        self.reads.track((tracked.loader, *tracked.extra.values()))
        if tracked:
            self.untracked.tracks()
        self.work.watch(tracked.models[0] if tracked.models else None)
        self.figures.watch(tracked)
        if self._saver.saves:
            self._survival.track(tracked)

    def _report_untracked(self, name: str, fields: Mapping[str, Any]) -> None:
        self._sink.event(name, fields, f"{self._context.job_id}:{self._context.epoch}:checkpoint-skipped")

    def rescue(self, error: BaseException) -> None:
        """The program ends with `error`: if it says that another rank is gone, the last finished step is saved for all. Blocks."""
        if self._watch is None or not self._watch.diverged:
            measured = self._measured
            cost_s = measured.save_cost_s + measured.upload_s if measured.saves else 0.0  # a guess is no reason to lose steps
            self._survival.rescue(error, time.monotonic() - self._committed_at, cost_s)

    def on_sigterm(self, number: int, frame: FrameType | None) -> None:
        """Signal handler: leave at the next boundary, without a save; at once when not between the first step and the last.

        A rank that leaves already is left alone: it has its own exit code, and what it still saves or says is worth its time.
        """
        if os.getpid() != self._pid:  # a child inherits the handler, but makes no steps that it could wait for
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self._terminated = True
        if not self._stepping and not self._leaving:
            self._leave(SIGTERM_EXIT)

    def ending(self, failed: bool = False) -> None:
        """The program ends, by its own doing or by an error (`failed`): from here on nothing stops it but SIGKILL."""
        self._leaving = True
        self._failed = self._failed or failed

    @property
    def last_wait_s(self) -> float:
        """Seconds that the end of this rank may wait for a save under way: for none where others of its gang may be gone."""
        if self._context.world_size > 1 and self._failed:
            return 0.0
        return TERMINATED_WAIT_S if self._terminated else LAST_WAIT_S

    def _leave(self, exit_code: int) -> NoReturn:
        self._leaving = True
        raise Stopped(exit_code)

    def begin(self, step: int, total: int | None, amounts: Amounts | None = None) -> None:
        """Training begins at `step`."""
        now = time.monotonic()
        self.untracked.begin()
        self._began = (now, step)
        self._saved_at = self._committed_at = now
        self._saved_step = step if step else None
        self._stepping = True
        self._next_agreement = step + 1
        if self._watch is not None:
            self._watch.begin(step)
        self.reads.begin(step)
        self._keep_own(step, now)
        self._progress.begin(step, total, now, _now_ms())
        self.figures.begin(step, now, amounts or Amounts())
        self._start_step(step)

    def passed(self, step: int) -> None:
        """Another step is finished: `step` of them now. Raises Stopped when this rank is to leave."""
        self._at_step = step
        self._end_step(step)
        self.reads.passed(step)
        self._keep_own(step, time.monotonic())
        if self._terminated:
            self._leave(SIGTERM_EXIT)
        due = self._must_agree and self._agreement_due(step)
        agreed = self._agree(step) if due else Wishes()
        if due and not agreed.uploading:
            self._settle()
        if agreed.save or self._too_much is not None or self.asked_by_program or step_schedule.save_by_step(self.policy, step):
            self._save(step, self.score)
            self.asked_by_program, self.score = False, None
        self._prepared = self._prepared or self._saver.prepare(self.tracked, step - self._began[1])
        self._leave_with_bad_data(step)
        if agreed.stop:
            self._settle()
            if agreed.save:
                self._save_last(step)
            self.report()
            self._leave(EXIT_STOPPED)
        self.untracked.look(step, time.monotonic())
        self._progress.tick(time.monotonic(), _now_ms())
        self._start_step(step)

    def end(self, step: int) -> None:
        """All steps are done: keep the result."""
        self._save(step)
        self._leave_with_bad_data(step)
        self._settle()
        self._save_last(step)
        self.report()

    def _leave_with_bad_data(self, step: int) -> None:
        """Leaves for a review, saved, where too many samples are bad. All ranks call it at the same step."""
        if self._too_much is not None:
            self._settle()
            self._save_last(step)
            self.report()
            self._leave(EXIT_BAD_DATA)

    def end_anew(self, step: int) -> None:
        """As `end`, of a state that has changed since this step was saved: saves it once more. All ranks call it at the same step."""
        self._settle()
        self._saved_step = None
        self.end(step)

    def _save_last(self, step: int) -> None:
        """Saves this step once more, if staging or uploading it failed: no later step will. All ranks call it at the same step.

        Raises ObjectStoreRefusedError where the store refused: the job would end as if its result were kept.
        """
        if self._saved_step != step:
            self._save(step)
            self._settle()
        if self._saved_step != step and (refusal := self._saver.refusal) is not None:
            raise refusal

    def left(self) -> None:
        """The program is out of the steps, however it came there."""
        self._stepping = False
        self.figures.left()
        self.trace.left(ending=self._failed or self._terminated or self._leaving)
        self._progress.activity.begin(RankActivity.DONE, time.monotonic(), _now_ms())

    def report(self) -> None:
        """Report now."""
        self._progress.report(time.monotonic(), _now_ms())

    def _save(self, step: int, score: Score | None = None) -> None:
        """Begin a save unless this very step is saved already, or on its way. All ranks call it at the same step."""
        if not self._saver.saves or not self.tracked or step == self._saved_step or (self._on_its_way and step == self._on_its_way[0]):
            return
        self._settle()
        if (self._watch is not None or self._counts_bad) and step != self._agreed_at:
            self._heed(self._gang.agree(self._known()), step)
        self.reads.saving(step)
        with self._saving():
            began = time.monotonic()
            staged = self._saver.save(self.tracked, step, self._progress.measured(), score)
            self._saved_at = time.monotonic()
        if staged:
            self._on_its_way = (step, began)
            self._proved = False
            self._measured = self._measured.saved(self._saved_at - began)

    def _settle(self) -> bool:
        """Waits for the save under way, if any; False if it failed. All ranks call it at the same step."""
        if self._on_its_way is None:
            return True
        (step, began), self._on_its_way = self._on_its_way, None
        with self._saving():
            saved = self._saver.settle()
        if saved is not None:
            self._saved_step, self._committed_at = step, began
            self._measured = self._measured.uploaded(saved.upload_s)
            if self._sound_step > step:
                self._saver.proved()
        return saved is not None

    @contextmanager
    def _saving(self) -> Iterator[None]:
        """Counts what is inside as a save's stall."""
        activity = self._progress.activity
        before = activity.begin(RankActivity.SAVING, time.monotonic(), _now_ms())
        self.report()
        try:
            yield
        finally:
            activity.resume(before, time.monotonic(), _now_ms())
        self.report()

    def _keep_own(self, step: int, now: float) -> None:
        self._survival.boundary(step, now)
        self._progress.saved_alone = self._survival.possible

    def _start_step(self, step: int) -> None:
        self.trace.boundary(step)
        self._busy_s = self._progress.activity.now.busy_s
        self.figures.step_begins(time.monotonic())
        self.work.begin()

    def _end_step(self, step: int) -> None:
        now = time.monotonic()
        self._progress.stepped(step, now, _now_ms())
        undisturbed = self._progress.activity.now.busy_s == self._busy_s
        self.work.end(undisturbed=undisturbed and not self.figures.counting and not self.trace.recording)
        self.figures.step_ends(step, now, undisturbed)
        self._progress.work_time_ms = self.work.ms
        loss = self._progress.logged_loss()
        if self._watch is not None and loss is not None:
            self._proved = self._watch.saw(loss, step - 1) or self._proved

    def _agreement_due(self, step: int) -> bool:
        alone = self._gang.control is None
        return step >= self._next_agreement or (alone and self._watch is not None and self._watch.diverged)

    def _known(self) -> Wishes:
        """Returns this rank's part of each agreement."""
        if self._watch is not None:
            since = self._began[1] if self._agreed_at is None else self._agreed_at
            self._watch.saw_norm(self.poor_norm(), min(since, self._at_step - 1), self._at_step - 1)
        diverged = self._watch is not None and self._watch.diverged
        return Wishes(
            proved=self._proved,
            doubted=diverged and not self._proved,
            diverged=self._context.rank if diverged else None,
            work_ms=self.work.ms if self._context.alike else None,
            uploading=self._saver.uploading,
            bad=self.bad_samples.due,
        )

    def _agree(self, step: int) -> Wishes:
        now = time.monotonic()
        request = self._requests.pending()
        measured = replace(self._measured, run_s=now - self._began[0])
        interval = step_schedule.interval_s(self.policy, measured) if self.tracked and self._saver.saves else None
        mine = replace(
            self._known(),
            save=bool(request and request.wants_save(_now_ms(), steady_s())) or (interval is not None and now - self._saved_at >= interval),
            stop=bool(request and request.then_stop),
            stride=step_schedule.stride_for((now - self._began[0]) / max(1, step - self._began[1])),
        )
        agreed = self._gang.agree(mine)
        self._next_agreement = step + agreed.stride
        self._heed(agreed, step)
        if request is not None and agreed.save >= mine.save:
            self._requests.answered()
        return agreed

    def _heed(self, agreed: Wishes, step: int) -> None:
        """Applies the ranks' agreement."""
        self._agreed_at = step
        self._progress.fastest_work_time_ms = agreed.work_ms
        if agreed.proved and not agreed.doubted:
            self._sound_step = step
            if self._on_its_way is None:
                self._saver.proved()
        if agreed.diverged is not None:
            self._halt(agreed.diverged, step)
        if agreed.bad:
            self._too_much = self.bad_samples.exchange()
            if self._too_much is not None:
                self.bad_samples.exceeded(self._too_much)

    def _halt(self, rank: int, step: int) -> NoReturn:
        """Leave without a save, and say why: every rank, so that whichever end is seen first, its reason came before."""
        watch = self._watch
        mine = (0.0, 0.0, 0.0) if watch is None or watch.diverged_at is None else (watch.diverged_at, watch.usual or 0.0, watch.by_norm)
        loss, usual, by_norm = self._gang.broadcast_from(rank, mine)
        good = self._saver.good_commit
        fields = {
            "rank": rank,
            "step": step,
            "loss": divergence.in_words(loss, by_norm > 0),
            "usual_loss": usual or None,
            "good_commit": good,
            "at_ms": _now_ms(),
        }
        if self._context.divergence is not None and self._context.divergence.action is OnDivergence.SKIP_DATA:
            fields["data"] = self._data_of(self._context.divergence, f"the loss was {fields['loss']}")
        self._sink.event("LossDiverged", fields)
        print(divergence.describe(rank, step, loss, usual or None, good, by_norm > 0), file=sys.stderr, flush=True)
        self.report()
        self._leave(EXIT_DIVERGED)

    def _data_of(self, policy: Divergence, reason: str) -> list[dict[str, Any]]:
        """Data of the steps in which the loss diverged, by loader, the same on all ranks; none where a loader cannot leave them out.
        Collective."""
        watch = self._watch
        mine = watch.bad_steps if watch is not None and watch.diverged else (math.inf, math.inf)
        bad_steps = self._gang.least(mine)  # of the rank that was first, as one spoils the others' next step
        first_step, end_step = divergence.skipped_steps(policy, *map(int, bad_steps))
        numbers = self._gang.broadcast_from(0, self.reads.positions_of(first_step, end_step))
        steps = {"epoch": self._context.epoch, "first_step": first_step, "end_step": end_step, "reason": reason}
        pairs = [(int(begin), int(end)) for begin, end in zip(numbers[::2], numbers[1::2], strict=True)]
        found = [
            steps | {"loader": number, "first_position": begin, "end_position": end}
            for number, (begin, end) in enumerate(pairs)
            if begin < end
        ]
        own = self.tracked.loader is not None and not isinstance(self.tracked.loader, Loader)
        return [] if own or not self._context.alike else found


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
