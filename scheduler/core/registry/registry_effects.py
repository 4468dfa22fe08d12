"""Effects of a record of the registry: decisions to the history of models, statuses to the public topic, and jobs that evaluate versions to
the topic of jobs.

Holds: the first two are keyed by project and model, jobs by their ids: a job that is submitted again is the same job. What waits for the
store is no effect: the process looks after it.
"""

import hashlib
from collections.abc import Iterable, Iterator

from trainhouse.events import Event, JobSubmitted, ModelEvaluationStarted, ModelRequestRefused, ModelStatus
from trainhouse.events.model.model_decisions import ModelDecision
from trainhouse.events.wire.topics import JOBS, MODEL_HISTORY, MODELS
from trainhouse.scheduler.core.intake.own_jobs import submission_of
from trainhouse.scheduler.core.protocol.machine import Effect
from trainhouse.scheduler.core.registry.registry_state import held_key


def registry_effects(decisions: Iterable[Event]) -> Iterator[Effect]:
    """The effects of a record's decisions, in their order."""
    for decision in decisions:
        match decision:
            case ModelRequestRefused():
                # With its time: what is to be asked again may be refused more than once.
                key = held_key(decision.digest, decision.request_id)[:460]
                yield Effect(MODEL_HISTORY, decision.subject(), decision, f"{key}:refused:{decision.at_ms}")
            case ModelDecision():
                yield Effect(MODEL_HISTORY, decision.subject(), decision, f"{_in_id(decision.subject())}:{decision.number}")
                if isinstance(decision, ModelEvaluationStarted):
                    job_id = str(decision.job_id)
                    yield Effect(JOBS, job_id, JobSubmitted(job_id=decision.job_id, spec=decision.spec), submission_of(job_id))
            case ModelStatus():
                yield Effect(MODELS, decision.subject(), decision, f"{_in_id(decision.subject())}:{decision.number}:status")


def _in_id(key: str) -> str:
    """A model's key as part of an event id, which is ASCII and short."""
    return f"model:{hashlib.sha256(key.encode()).hexdigest()[:32]}"
