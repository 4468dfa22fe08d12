"""A session that follows a training loop of another library: the loop reports where it is, and the session's boundaries run there.

Holds: a boundary runs where the library is between two steps with nothing of either still to do: evaluation and logs of the step before are
done, and no batch of the next one is used yet. One loop a process: a job's checkpoints are of one.
Never: saves by itself; all rules are those of `Session.steps`.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from trainhouse.checkpointing.state import rng
from trainhouse.events.model.parallelism import Parallelism
from trainhouse.workers.launcher import ports
from trainhouse.workers.session.errors import InvalidUseError
from trainhouse.workers.session.session import Session

EVALUATION_LIMIT_S = 3600.0


@dataclass(frozen=True)
class LoopSettings:
    """Settings of a followed loop. `save_every_steps` goes before what the spec says about checkpoints; an evaluation of more than
    `evaluation_limit_s` counts as hanging."""

    save_every_steps: int | None = None
    evaluation_limit_s: float = EVALUATION_LIMIT_S


class FollowedLoop:
    """The loop of one `fit` or `train`, seen from the session."""

    def __init__(self, session: Session, settings: LoopSettings) -> None:
        self.session = session
        self.randomness: dict[str, Any] | None = None
        self.finished = False
        self._settings = settings
        self._steps: Iterator[int] | None = None
        self._evaluation = ExitStack()
        self._evaluating = False
        self._tracked = False

    def track(self, **parts: Any) -> int:
        """Name what checkpoints hold, and put back the newest one; the number of finished steps. Blocks. Raises InvalidUseError.

        `randomness` is then the generators' state to go on with, None where nothing was restored: the library draws from them on its way
        to the first step.
        """
        if self._tracked:
            raise InvalidUseError("this process has trained before: a job's checkpoints are of one training loop; submit a job for each")
        self._tracked = True
        step = self.session.track(**parts)
        self.randomness = rng.capture() if step else None
        return step

    def begin(self, total: int | None) -> None:
        """The first step begins, unless it has."""
        if self._steps is None:
            self._steps = self.session.steps(total, save_every_steps=self._settings.save_every_steps)
            next(self._steps, None)

    def passed(self, step: int) -> None:
        """`step` steps are finished: the boundaries up to there run. Raises Stopped when this rank is to leave."""
        while self._steps is not None and self.session.step < step:
            if next(self._steps, None) is None:
                self._steps = None

    def end(self, step: int) -> None:
        """No step comes after `step` of them: keep the result, also where the library ends before its last step."""
        self.finished = True
        if self._steps is not None:
            self.session.save()
            self.passed(step)
        if self._steps is not None:
            self._steps.close()  # type: ignore[attr-defined]  # it is a generator
            self._steps = None

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Record those that are numbers."""
        numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float) and not isinstance(value, bool)}
        if numbers:
            self.session.log(**numbers)

    def evaluate(self) -> None:
        """An evaluation begins, unless one is under way."""
        if not self._evaluating:
            self._evaluation.enter_context(self.session.busy("evaluation", limit_s=self._settings.evaluation_limit_s))
            self._evaluating = True

    def evaluated(self) -> None:
        """It is over."""
        self._evaluating = False
        self._evaluation.close()


def follow(name: str, session: Session | None, settings: LoopSettings, seeded: Callable[[], bool]) -> FollowedLoop | None:
    """The session's loop, with a session of its own where the program has none; None, with one line, outside of Trainhouse.

    Blocks until all ranks are there. `seeded`: whether the program has seeded the generators, and so goes on with them as they are.
    """
    if session is not None:
        return FollowedLoop(session, settings)
    if ports.JOB_ID not in os.environ:
        if os.environ.get("RANK", "0") == "0":
            print(f"{name}: this is no job of Trainhouse, so nothing is saved or recorded", file=sys.stderr, flush=True)
        return None
    before = rng.capture() if seeded() else None
    started = Session.start()
    if before is not None:
        rng.restore(before)
    return FollowedLoop(started, settings)


def check_layout(layout: Parallelism, trainer: str, tensor_parallel: bool = False) -> None:
    """Refuses a layout that the trainer would train as replicas; `tensor_parallel`: it splits layers itself. Raises InvalidUseError."""
    sizes = {"tp": 1 if tensor_parallel else layout.tp, "pp": layout.pp}
    unused = [f"{name} = {size}" for name, size in sizes.items() if size > 1]
    if unused:
        raise InvalidUseError(
            f"parallelism: {', '.join(unused)}, but {trainer} trains each rank as a replica or a shard of one; lay the ranks out by dp and "
            "fsdp alone, or train by a loop of your own, as workers/examples/gpt.py does"
        )


def warn_once(loop: FollowedLoop, sentence: str) -> None:
    """Print for the user, by one rank."""
    if loop.session.rank == 0:
        print(f"trainhouse: {sentence}", file=sys.stderr, flush=True)
