"""Ends of jobs that evaluate versions, from their statuses: the result that a job left in the store, or why there is none, to the registry.

Holds: a job is one of these by the registry's state alone, where its id and the hash of its spec are: another spec under the id gives no
result, and a refusal counts where it is of the registry's own submission. A status that comes before this process has folded the start of
its job waits for it, UNKNOWN_S at most.
Never: decides whether a result counts.
"""

import asyncio
from typing import Final

from trainhouse.events import EventId, ModelEvaluated, ModelEvaluationObserved
from trainhouse.events.model.bounds import short_text
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.envelope import envelope_of
from trainhouse.events.wire.topics import MODEL_REQUESTS
from trainhouse.scheduler.core.registry.evaluation_jobs import PREFIX, EvaluatedJob, is_end, why_no_result
from trainhouse.scheduler.core.registry.registry_state import RegistryState, RunningEvaluation
from trainhouse.scheduler.stream.interfaces import Entry
from trainhouse.scheduler.stream.model_interfaces import ContentRefusedError
from trainhouse.scheduler.stream.registry.status_requests import Room, StatusRequests, Waiting, status_of

SOURCE: Final = "trainhouse/jobs"
UNKNOWN_S: Final = 60.0
_WORD: Final = f'"{PREFIX}'.encode()
"""Stands in each status of such a job: of all others nothing is decoded."""


class EvaluationEnds(StatusRequests):
    """Ends of jobs that evaluate versions."""

    __slots__ = ()

    def wanted(self, entry: Entry) -> Waiting | None:
        status = status_of(entry, _WORD)
        return Waiting(status, self.clock.steady_s()) if status is not None and is_end(status) else None

    def is_answered(self, state: RegistryState, each: Waiting) -> bool:
        if str(each.status.job_id) in state.running:
            return False
        return each.is_out or self.clock.steady_s() - each.since_s >= UNKNOWN_S

    def room(self, state: RegistryState) -> Room:
        return _Running(state)

    async def send(self, state: RegistryState, each: Waiting) -> None:
        running = state.running[str(each.status.job_id)]
        failure, result = why_no_result(running, each.status), None
        if not failure:
            try:
                result = await asyncio.to_thread(self.store.evaluated, _job_of(state, running, each))
            except ContentRefusedError as refused:
                failure = str(refused)
        await self._answer(running, result, failure, each.status.finished_at_ms or 0)

    async def _answer(self, running: RunningEvaluation, result: ModelEvaluated | None, failure: str, at_ms: int) -> None:
        event = ModelEvaluationObserved.model_validate(
            {
                "project": running.project,
                "name": running.name,
                "version": running.version,
                "job_id": running.job.job_id,
                "evaluated": result,
                "failure": short_text(failure),
            }
        )
        envelope = envelope_of(event, id=EventId.parse(f"{running.job.job_id}:evaluated"), source=SOURCE, now_ms=at_ms)
        await self.log.send(MODEL_REQUESTS, event.subject().encode(), encode(envelope))


class _Running:
    """All that the registry waits for may be sent."""

    def __init__(self, state: RegistryState) -> None:
        self._state = state

    def has(self, each: Waiting) -> bool:
        return str(each.status.job_id) in self._state.running

    def take(self, each: Waiting) -> None:
        """Nothing is counted."""


def _job_of(state: RegistryState, running: RunningEvaluation, each: Waiting) -> EvaluatedJob:
    version = state.entry(running.project, running.name).get(running.version)
    assert version is not None  # nosec B101  # a job runs for a version that is there
    job, status = running.job, each.status
    ended_at_ms = status.finished_at_ms or status.updated_at_ms
    return EvaluatedJob(running.project, running.name, version.facts.content, job.suite, job.job_id, status.user, ended_at_ms)
