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
from trainhouse.events.model.training import Training
from trainhouse.workers.launcher import ports
from trainhouse.workers.session.context import Context
from trainhouse.workers.session.errors import InvalidUseError
from trainhouse.workers.session.session import Session

EVALUATION_LIMIT_S = 3600.0
_followed: list[Context] = []
"""Attempts whose training this process has begun to follow."""


@dataclass(frozen=True)
class LoopSettings:
    """Settings of a followed loop. `save_every_steps` goes before what the spec says about checkpoints; an evaluation of more than
    `evaluation_limit_s` counts as hanging."""

    save_every_steps: int | None = None
    evaluation_limit_s: float = EVALUATION_LIMIT_S


class FollowedLoop:
    """The loop of one `fit` or `train`, seen from the session."""

    def __init__(self, session: Session, settings: LoopSettings) -> None:
        check_training(session.training)
        self.session = session
        self.randomness: dict[str, Any] | None = None
        self.finished = False
        self.logs_loss = False
        self._settings = settings
        self._steps: Iterator[int] | None = None
        self._evaluation = ExitStack()
        self._evaluating = False

    def track(self, **parts: Any) -> int:
        """Names what checkpoints hold, and puts back the newest one; the number of finished steps. Blocks. Raises InvalidUseError.

        `randomness` is then the generators' state to go on with, None where nothing was restored: the library draws from them on its way
        to the first step.
        """
        _refuse_another(self.session._context)
        _followed.append(self.session._context)
        step = self.session.track(**parts)
        self.randomness = rng.capture() if step else None
        return step

    def begin(self, total: int | None) -> None:
        """Begins the session's steps at the first step; ends an evaluation whose exception the script has caught."""
        self.evaluated()
        if self._steps is None:
            self._steps = self.session.steps(total, save_every_steps=self._settings.save_every_steps)
            next(self._steps, None)

    def passed(self, step: int) -> None:
        """Runs the boundaries up to `step` finished steps. Raises Stopped when this rank is to leave."""
        while self._steps is not None and self.session.step < step:
            if next(self._steps, None) is None:
                self._steps = None

    def end(self, step: int) -> None:
        """Saves the result of `step` steps, also where the library ends before its last step."""
        self.finished = True
        if self._steps is not None and self.session.step == step:
            self.session._boundary.end_anew(step)  # it has run already, and saved the step as one that others follow, if at all
        elif self._steps is not None:
            self.session.save()
            self.passed(step)
        if self._steps is not None:
            self._steps.close()  # type: ignore[attr-defined]  # it is a generator
            self._steps = None

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Records those that are numbers, or tensors and arrays of one."""
        numbers = {name: number for name, value in metrics.items() if (number := number_of(value)) is not None}
        if numbers:
            self.session.log(**numbers)

    def evaluate(self) -> None:
        """Announces an evaluation to the session, unless one is under way."""
        if not self._evaluating:
            self._evaluation.enter_context(self.session.busy("evaluation", limit_s=self._settings.evaluation_limit_s))
            self._evaluating = True

    def evaluated(self) -> None:
        """Ends the announcement of an evaluation."""
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
    _refuse_another(Context.from_env(os.environ))
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


def check_training(training: Training) -> None:
    """Refuses settings that a trainer would not carry out: it has its own for all but determinism. Raises InvalidUseError."""
    asked = sorted(training.model_copy(update={"deterministic": False, "accumulation": None}).model_dump(exclude_defaults=True))
    asked += ["accumulation"] if training.global_batch is None and (training.accumulation or 1) > 1 else []
    if asked:
        raise InvalidUseError(
            f"training.{asked[0]}: the trainer computes its steps by its own settings; give it there (TrainingArguments, Trainer(...)), "
            "and leave it out of the spec"
        )


def number_of(value: Any) -> int | float | None:
    """The plain number of a number, tensor or array of one element; None for anything else."""
    if callable(item := getattr(value, "item", None)):
        try:
            value = item()
        except (RuntimeError, ValueError):  # of several elements
            return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _refuse_another(attempt: Context) -> None:
    """Refuses a second training of an attempt: its first checkpoint would be taken for that of the first. Raises InvalidUseError."""
    if attempt in _followed:
        raise InvalidUseError("this process has trained before: a job's checkpoints are of one training loop; submit a job for each")


def warn_once(loop: FollowedLoop, sentence: str) -> None:
    """Prints a sentence for the user, by one rank."""
    if loop.session.rank == 0:
        print(f"trainhouse: {sentence}", file=sys.stderr, flush=True)
