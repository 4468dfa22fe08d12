"""A trial that ended as a tracked run: the events that record it. Pure.

Holds: ids of the run, its events and its points follow from the trial, so that any gateway may send them again, and they count once.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from trainhouse.events import Event, JobId, JobState
from trainhouse.events.model.tracking import (
    ExperimentChanged,
    ParametersLogged,
    TagsChanged,
    TrackedRunBegun,
    TrackedRunChanged,
    experiment_id_of,
)
from trainhouse.events.wire.points import Point, records_of
from trainhouse.events.wire.topics import TRACKED_METRICS, TRACKING
from trainhouse.gateway.optuna.log_operations import State
from trainhouse.gateway.optuna.trial_fold import EndedTrial

CLIENT: Final = "optuna"
STREAM: Final = "optuna-trial"
REPORTED: Final = "intermediate_value"
MOST_KEY_CHARS: Final = 250
MOST_TEXT_CHARS: Final = 2000
MOST_NAMED: Final = 100
"""Parameters, or tags, of one event: brokers bound its size."""
MOST_PARAMETERS: Final = 1000
_STATES: Final = {State.COMPLETE: JobState.SUCCEEDED, State.PRUNED: JobState.CANCELLED, State.FAIL: JobState.FAILED}
Record = tuple[str, Event, str]
"""Topic, event and its id."""


def run_id_of(project: str, log: str, trial_id: int) -> JobId:
    """The run of a trial of a log."""
    return JobId.parse(f"optuna-{_digest(project, log, str(trial_id))}")


def records(project: str, log: str, ended: EndedTrial) -> list[Record]:
    """Events of a trial's run, in the order in which they are to be sent."""
    trial, at_ms = ended.trial, ended.ended_ms
    run_id = run_id_of(project, log, trial.trial_id)
    experiment = _cleaned(f"{project}/{ended.study}", 500)
    of: dict[str, Any] = {"experiment_id": experiment_id_of(experiment), "project": project}
    name = f"trial {trial.number}"
    started_ms = min(trial.started_ms, at_ms)
    tags = {"mlflow.runName": name, "optuna.storage": log, "optuna.study": ended.study, "optuna.trial": str(trial.number)}
    tags |= {"optuna.state": ended.state.name} | {f"optuna.attr.{key}": _json(value) for key, value in trial.attributes.items()}
    begun = TrackedRunBegun(
        job_id=run_id, experiment=experiment, name=name, user=trial.user[:256], client=CLIENT, started_at_ms=started_ms, **of
    )
    events: list[Event] = [
        ExperimentChanged(name=experiment, user=trial.user[:128], created=True, at_ms=started_ms, **of),
        begun,
        TagsChanged(job_id=run_id, tags=_named(tags), at_ms=at_ms),
    ]
    params = list(trial.params.items())[:MOST_PARAMETERS]
    pieces = [dict(params[first : first + MOST_NAMED]) for first in range(0, len(params), MOST_NAMED)]
    events += [ParametersLogged(job_id=run_id, parameters=_named(piece), at_ms=at_ms) for piece in pieces]
    events.append(TrackedRunChanged(job_id=run_id, state=_STATES[ended.state], ended_at_ms=at_ms, at_ms=at_ms))
    points = records_of(run_id, _points(ended), STREAM)
    return [
        *((TRACKED_METRICS, each, f"{run_id}:0:0:{each.stream}:{each.start}") for each in points),
        *((TRACKING, each, f"{run_id}:{number}") for number, each in enumerate(events)),
    ]


def _points(ended: EndedTrial) -> list[Point]:
    """Reports by their steps, then the values at the last of these."""
    reports = sorted((step, *report) for step, report in ended.trial.reports.items() if 0 <= step < 2**63)
    points = [Point(REPORTED, float(value), step, at_ms) for step, value, at_ms in reports if value is not None]
    last, count = points[-1].step if points else 0, len(ended.values)
    names = ended.metrics if len(ended.metrics) == count else ("value",) if count == 1 else [f"value_{n}" for n in range(count)]
    keys = [_cleaned(name, MOST_KEY_CHARS) for name in names]
    return points + [Point(key, float(value), last, ended.ended_ms) for key, value in zip(keys, ended.values, strict=True)]


def _named(given: Mapping[str, Any]) -> dict[str, str]:
    """Texts by keys as a run has them, so many at most; the first of two that would have one key stays."""
    found = dict[str, str]()
    for key, value in list(given.items())[:MOST_NAMED]:
        found.setdefault(_cleaned(key, MOST_KEY_CHARS), _sound(value if isinstance(value, str) else _text(value))[:MOST_TEXT_CHARS])
    return found


def _cleaned(text: str, most_chars: int) -> str:
    """A name without control characters, which is not empty."""
    return "".join(char if char >= " " else " " for char in _sound(text))[:most_chars] or "-"


def _sound(text: str) -> str:
    """Text that UTF-8 can have: JSON may escape halves of characters."""
    return text.encode("utf-8", "replace").decode()


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _text(value: Any) -> str:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else _json(value)


def _digest(*parts: str) -> str:
    return hashlib.sha256("".join(f"{len(part)}:{part}" for part in parts).encode()).hexdigest()[:24]
