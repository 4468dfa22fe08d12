"""Questions to the process of samplers and its answers, as bytes: eight of the length, then JSON.

Holds: what is read back equals what was written, numbers that are none included, and the order of trials and parameters.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from typing import Any, Final

import orjson

from trainhouse.events.model.study import SamplerVersions, StudySpec
from trainhouse.events.model.study_decisions import TrialState
from trainhouse.scheduler.core.studies.trial_record import ToldTrial
from trainhouse.scheduler.stream.studies.suggestion import Suggestion

LENGTH_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Question:
    """A suggestion that is asked for. `cpu_s`: most seconds of a processor for it."""

    spec: StudySpec
    trials: Sequence[ToldTrial]
    number: int
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Answer:
    """A suggestion, and the seconds of a processor that it took."""

    suggestion: Suggestion
    cpu_s: float


def question_frame(question: Question) -> bytes:
    """Returns the bytes of a question."""
    trials = [[each.number, dict(each.values), each.state, _numbers(each.objectives), _curve(each)] for each in question.trials]
    return _frame([question.spec.model_dump_json(), trials, question.number, question.cpu_s])


def read_question(data: bytes) -> Question:
    """Reads it back."""
    spec, raw, number, cpu_s = orjson.loads(data)
    trials = [
        ToldTrial(
            place,
            values,
            TrialState(state),
            None if objectives is None else tuple(map(float, objectives)),
            tuple((step, float(value)) for step, value in curve),
        )
        for place, values, state, objectives, curve in raw
    ]
    return Question(_spec(spec), trials, number, cpu_s)


def answer_frame(answer: Answer) -> bytes:
    """Returns the bytes of an answer."""
    found = answer.suggestion
    return _frame([found.values, found.exhausted, found.versions.optuna, found.versions.numpy, found.failure, answer.cpu_s])


def read_answer(data: bytes) -> Answer:
    """Reads it back."""
    values, exhausted, optuna, numpy, failure, cpu_s = orjson.loads(data)
    return Answer(Suggestion(values, exhausted, SamplerVersions(optuna=optuna, numpy=numpy), failure), cpu_s)


def next_frame(read: Callable[[int], bytes]) -> bytes | None:
    """Returns the bytes of the next frame; None: there is none."""
    head = read(LENGTH_BYTES)
    return read(int.from_bytes(head, "big")) if len(head) == LENGTH_BYTES else None


@lru_cache(maxsize=4)
def _spec(text: str) -> StudySpec:
    return StudySpec.model_validate_json(text)


def _frame(value: Any) -> bytes:
    body = orjson.dumps(value)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def _curve(trial: ToldTrial) -> list[list[int | float | str]]:
    return [[step, _number(value)] for step, value in trial.curve]


def _numbers(values: Sequence[float] | None) -> list[float | str] | None:
    return None if values is None else [_number(each) for each in values]


def _number(value: float) -> float | str:
    """JSON has no NaN and no infinity."""
    return value if isfinite(value) else str(value)
