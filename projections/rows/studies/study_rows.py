"""Decisions about studies to `study_facts`, what a study is to `studies_rows`, and its newest status to `study_statuses_rows`.

Holds: an event that is read twice makes the same rows.
Never: the value of a variable of a spec's `env`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from trainhouse.events.model.study_decisions import (
    StagnationFigures,
    StudyBegun,
    StudyChanged,
    StudyDecision,
    StudyPriced,
    StudyRequestRefused,
    StudyStatus,
    TrialBegan,
    TrialEnded,
    TrialPutOff,
    TrialResubmitted,
    TrialStarted,
    TrialStopping,
    TrialValueRecorded,
)
from trainhouse.events.model.study_space import Value
from trainhouse.events.security.sensitive import without_values
from trainhouse.events.wire.envelope import Envelope
from trainhouse.projections.record import Record, Row, clamp_ms

_TEXTS: Final = ("request_id", "state", "user", "reason", "job_id", "parameters_json", "optuna", "numpy", "currency", "pool", "stagnation")
_COUNTS: Final = ("step", "told", "enqueued", "early", "device_s", "policy_version")
_EMPTY: Final[dict[str, Any]] = dict.fromkeys(_TEXTS, "") | dict.fromkeys(_COUNTS, 0) | {"trial": -1, "cost": None, "price": None}


def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The rows of one decision; nothing for other events."""
    event = envelope.event
    if not isinstance(event, StudyDecision | StudyRequestRefused):
        return
    number = event.number if isinstance(event, StudyDecision) else 0
    named = {"project": event.project, "study": event.study, "number": number, "at": clamp_ms(event.at_ms)}
    empty = _EMPTY | {"metrics": [], "figures": [], "parameters": {}}
    yield Row("study_facts", empty | named | _values(event))
    if isinstance(event, StudyBegun):
        spec = event.spec.model_copy(update={"job": without_values(event.spec.job)})
        metrics = {"metrics": [each.name for each in spec.metrics], "modes": [each.mode.value for each in spec.metrics]}
        about = {"project": event.project, "study": event.study, "user": event.user, "created_at": clamp_ms(event.at_ms)}
        yield Row("studies_rows", about | metrics | {"spec": spec.model_dump_json(), "spec_sha256": event.spec_sha256})


def status(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The newest status of a study; nothing for other events."""
    event = envelope.event
    if not isinstance(event, StudyStatus):
        return
    best = [each.model_dump(mode="json") for each in event.best]
    yield Row(
        "study_statuses_rows",
        {
            "project": event.project,
            "study": event.study,
            "number": event.number,
            "state": event.state.value,
            "reason": event.reason,
            "best": [each.trial for each in event.best],
            "best_json": orjson.dumps(best).decode(),
            "trial_states": [state.value for state in event.trials],
            "trial_counts": list(event.trials.values()),
            "device_s": event.device_s,
            "cost": event.cost,
            "price": event.price,
            "currency": event.currency,
            "stagnation": _figures_json(event.stagnation),
            "created_at": clamp_ms(event.created_at_ms),
            "updated_at": clamp_ms(event.updated_at_ms),
        },
    )


def _values(event: StudyDecision | StudyRequestRefused) -> dict[str, Any]:
    match event:
        case StudyBegun():
            return {"fact": "begun", "request_id": str(event.request_id), "user": event.user}
        case TrialStarted():
            of_sampler = {
                "told": event.told,
                "enqueued": int(event.enqueued),
                "optuna": event.versions.optuna,
                "numpy": event.versions.numpy,
            }
            values = {"parameters": _texts(event.values), "parameters_json": orjson.dumps(dict(event.values)).decode()}
            return {"fact": "trial-started", "trial": event.trial, "job_id": str(event.job_id)} | values | of_sampler
        case TrialPutOff():
            return {"fact": "trial-put-off", "trial": event.trial, "reason": event.reason}
        case TrialResubmitted():
            return {"fact": "trial-resubmitted", "trial": event.trial, "job_id": str(event.job_id)}
        case TrialBegan():
            return {"fact": "trial-began", "trial": event.trial, "device_s": event.device_s, "cost": event.cost}
        case TrialValueRecorded():
            return {"fact": "value", "trial": event.trial, "step": event.step} | _figures(event.values)
        case TrialStopping():
            about = {"trial": event.trial, "job_id": str(event.job_id), "early": int(event.early), "step": event.step or 0}
            return {"fact": "trial-stopping", "reason": event.reason} | about
        case TrialEnded():
            about = {"trial": event.trial, "state": event.state.value, "reason": event.reason}
            return {"fact": "trial-ended", "device_s": event.device_s, "cost": event.cost} | about | _figures(event.values)
        case StudyPriced():
            return {"fact": "priced"} | event.model_dump(mode="json", include={"pool", "policy_version", "price", "currency"})
        case StudyChanged():
            about = {"state": event.state.value, "reason": event.reason, "request_id": str(event.request_id or ""), "user": event.user}
            return {"fact": "changed", "stagnation": _figures_json(event.stagnation)} | about
        case StudyRequestRefused():
            return {"fact": "refused", "request_id": str(event.request_id), "reason": event.reason, "user": event.user}
    raise ValueError(f"{event.event_type} is no decision that has a row")


def _figures_json(figures: StagnationFigures | None) -> str:
    return "" if figures is None else figures.model_dump_json()


def _figures(values: Mapping[str, float]) -> dict[str, Any]:
    return {"metrics": list(values), "figures": list(values.values())}


def _texts(values: Mapping[str, Value]) -> dict[str, str]:
    """Values as a command line has them: text without quotes."""
    return {name: value if isinstance(value, str) else orjson.dumps(value).decode() for name, value in values.items()}
