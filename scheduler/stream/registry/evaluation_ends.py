"""Ends of jobs that evaluate versions, from their statuses: the result that a job left in the store, or why there is none, to the registry.

Holds: a job is one of these by the registry's state alone, where its id and the hash of its spec are: another spec under the id gives no
result, and a refusal counts where it is of the registry's own submission. The start of a job is in the registry's journal before the job is
submitted: a status of an unknown job waits until this process has folded the journal that there was when the status was seen, no longer.
Never: decides whether a result counts.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from trainhouse.events import EventId, ModelEvaluated, ModelEvaluationObserved
from trainhouse.events.model.bounds import short_text
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.envelope import envelope_of
from trainhouse.events.wire.topics import MODEL_REQUESTS, REGISTRY
from trainhouse.scheduler.core.errors import LogUnavailableError
from trainhouse.scheduler.core.registry.evaluation_jobs import PREFIX, EvaluatedJob, is_end, why_no_result
from trainhouse.scheduler.core.registry.registry_state import RegistryState, RunningEvaluation
from trainhouse.scheduler.stream.interfaces import Entry
from trainhouse.scheduler.stream.model_interfaces import ContentRefusedError
from trainhouse.scheduler.stream.registry.status_requests import Room, StatusRequests, Waiting, log_, status_of

SOURCE: Final = "trainhouse/jobs"
_WORD: Final = f'"{PREFIX}'.encode()
"""Stands in each status of such a job: of all others nothing is decoded."""


@dataclass(slots=True)
class EvaluationEnds(StatusRequests):
    """Ends of jobs that evaluate versions. `folded_to`: offset of the registry's journal that comes next, in what `state` gives."""

    folded_to: Callable[[], int] = field(kw_only=True)

    def wanted(self, entry: Entry) -> Waiting | None:
        status = status_of(entry, _WORD)
        return Waiting(status) if status is not None and is_end(status) else None

    def is_answered(self, state: RegistryState, each: Waiting) -> bool:
        if str(each.status.job_id) in state.running:
            return False
        return each.is_out or (each.known_at is not None and self.folded_to() >= each.known_at)

    async def look(self, state: RegistryState) -> None:
        unknown = [each for each in self.waiting if each.known_at is None and str(each.status.job_id) not in state.running]
        if not unknown:
            return
        try:
            end = (await self.log.ends(REGISTRY, [0]))[0]
        except LogUnavailableError as error:  # they wait for the next round
            log_.warning("end of the registry's journal unknown", error=str(error))
            return
        for each in unknown:
            each.known_at = end

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
