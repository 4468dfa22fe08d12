"""What happens between two steps: agree with the other ranks, save, stop, report.

Holds: all ranks agree at the same steps (the stride to the next agreement is itself agreed), so none waits for one that does not come.
What the step alone decides needs no agreement.
"""

import time
from dataclasses import replace
from types import FrameType

from trainhouse.checkpointing.interval import Measured
from trainhouse.workers.session import due
from trainhouse.workers.session.context import Context
from trainhouse.workers.session.due import Wishes
from trainhouse.workers.session.errors import EXIT_STOPPED, Stopped
from trainhouse.workers.session.gang import Gang
from trainhouse.workers.session.progress import Progress
from trainhouse.workers.session.requests import RequestFile
from trainhouse.workers.session.saver import Saver
from trainhouse.workers.session.tracked import Tracked

SIGTERM_EXIT = 128 + 15


class Boundary:
    """The clockwork of one rank."""

    def __init__(self, context: Context, gang: Gang, saver: Saver, progress: Progress) -> None:
        self.tracked = Tracked()
        self.asked_by_program = False
        self.policy = context.policy
        self._gang = gang
        self._saver = saver
        self._progress = progress
        self._requests = RequestFile(context.request)
        self._must_agree = saver.saves or context.request is not None
        self._terminated = False
        self._stepping = False
        self._next_agreement = 0
        self._began = (0.0, 0)
        self._saved_at = time.monotonic()
        self._saved_step: int | None = None
        self._measured = Measured(failures=context.attempt)

    def on_sigterm(self, number: int, frame: FrameType | None) -> None:
        """Signal handler: leave at the next boundary, without a save; at once when not between the first step and the last."""
        self._terminated = True
        if not self._stepping:
            raise Stopped(SIGTERM_EXIT)

    def begin(self, step: int, total: int | None) -> None:
        """Training begins at `step`."""
        now = time.monotonic()
        self._began = (now, step)
        self._saved_at = now
        self._saved_step = step if step else None
        self._stepping = True
        self._next_agreement = step + 1
        self._progress.begin(step, total, now, _now_ms())

    def passed(self, step: int) -> None:
        """Another step is finished: `step` of them now. Raises Stopped when this rank is to leave."""
        if self._terminated:
            raise Stopped(SIGTERM_EXIT)
        agreed = self._agree(step) if self._must_agree and step >= self._next_agreement else Wishes()
        if agreed.save or self.asked_by_program or due.save_by_step(self.policy, step):
            self.save(step)
            self.asked_by_program = False
        if agreed.stop:
            self.report(step)
            raise Stopped(EXIT_STOPPED)
        self._progress.tick(step, time.monotonic(), _now_ms())

    def end(self, step: int) -> None:
        """All steps are done: keep the result."""
        self.save(step)
        self.report(step)

    def left(self) -> None:
        """The program is out of the steps, however it came there."""
        self._stepping = False

    def report(self, step: int) -> None:
        """Report progress now."""
        self._progress.report(step, time.monotonic(), _now_ms())

    def save(self, step: int) -> None:
        """Save unless this very step is saved already. All ranks call it at the same step."""
        if not self._saver.saves or not self.tracked or step == self._saved_step:
            return
        began = time.monotonic()
        self._progress.report(step, began, _now_ms(), saving=True)
        if self._saver.save(self.tracked, step):
            self._saved_step = step
            self._measured = self._measured.saved(time.monotonic() - began)
        ended = time.monotonic()
        self._progress.save_stall_s += ended - began
        self._saved_at = ended
        self._progress.report(step, ended, _now_ms())

    def _agree(self, step: int) -> Wishes:
        now = time.monotonic()
        request = self._requests.pending()
        measured = replace(self._measured, run_s=now - self._began[0])
        interval = due.interval_s(self.policy, measured) if self.tracked and self._saver.saves else None
        mine = Wishes(
            save=bool(request and request.wants_save(_now_ms())) or (interval is not None and now - self._saved_at >= interval),
            stop=bool(request and request.then_stop),
            stride=due.stride_for((now - self._began[0]) / max(1, step - self._began[1])),
        )
        agreed = self._gang.agree(mine)
        self._next_agreement = step + agreed.stride
        if request is not None and agreed.save >= mine.save:
            self._requests.answered()
        return agreed


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
