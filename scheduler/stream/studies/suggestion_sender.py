"""Sender of values for the trials that are to begin: asks the sampler, and gives its answer to the tuner as an input.

Holds: only the process that decides asks; in another thread, one suggestion at a time, studies in turns. What was sent and did not count,
since the study changed meanwhile, is asked again. Optuna is imported with the first suggestion, and not before.
Never: decides.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

from trainhouse.events import EventId, TrialSuggested
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.envelope import envelope_of
from trainhouse.events.wire.topics import STUDY_REQUESTS
from trainhouse.scheduler.core.errors import LogUnavailableError
from trainhouse.scheduler.core.studies.study_state import StudyEntry, TunerState, Wanted, told, wanted
from trainhouse.scheduler.core.studies.trial_jobs import trial_job_id
from trainhouse.scheduler.stream.cancellation import still_wanted
from trainhouse.scheduler.stream.interfaces import Clock, Log
from trainhouse.scheduler.stream.journal.follower import Follower

SOURCE: Final = "trainhouse/sampler"
LOOK_S: Final = 1.0
AGAIN_S: Final = 10.0
log_ = structlog.get_logger(__name__)


@dataclass(slots=True)
class SuggestionSender:
    """Suggestions of one process. `state`: the tuner's where this process decides. `_sent_s`: when values of a trial were sent."""

    log: Log
    clock: Clock
    state: Callable[[], TunerState | None]
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _sent_s: dict[tuple[str, str, int], float] = field(default_factory=dict)

    async def after_record(self, _: Follower[TunerState]) -> None:
        """Looks at once."""
        self._changed.set()

    async def run(self) -> None:
        """Looks after each record, and now and then, until cancelled."""
        while True:
            still_wanted()
            self._changed.clear()
            try:
                await self.send_wanted()
            except LogUnavailableError as error:
                log_.warning("brokers away", error=str(error))
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def send_wanted(self) -> None:
        """Sends values for each trial that is to begin and has none on its way. Raises LogUnavailableError."""
        state = self.state()
        found = [] if state is None else wanted(state)
        keys = {(each.project, each.study, each.trial) for each in found}
        self._sent_s = {key: at_s for key, at_s in self._sent_s.items() if key in keys}
        for each in found:
            key = (each.project, each.study, each.trial)
            if self.clock.steady_s() - self._sent_s.get(key, float("-inf")) < AGAIN_S:
                continue
            entry = state.study(each.project, each.study) if state is not None else None
            if entry is not None:
                await self._send(entry, each)
                self._sent_s[key] = self.clock.steady_s()

    async def _send(self, entry: StudyEntry, each: Wanted) -> None:
        def suggested() -> TrialSuggested:
            from trainhouse.scheduler.stream.studies.optuna_sampler import suggest

            found = suggest(entry.spec, told(entry, each.told), each.trial)
            about = {"project": each.project, "study": each.study, "trial": each.trial, "told": each.told}
            answer = {"values": found.values, "versions": found.versions, "exhausted": found.exhausted, "failure": found.failure}
            return TrialSuggested.model_validate(about | answer)

        event = await asyncio.to_thread(suggested)
        job_id = trial_job_id(each.project, each.study, each.trial)
        envelope = envelope_of(event, id=EventId.parse(f"{job_id}:suggested:{each.told}"), source=SOURCE, now_ms=self.clock.now_ms())
        await self.log.send(STUDY_REQUESTS, event.subject().encode(), encode(envelope))
