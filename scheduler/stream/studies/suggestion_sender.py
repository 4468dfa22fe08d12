"""Sender of values for the trials that are to begin: asks the samplers, and gives their answer to the tuner as an input.

Holds: only the process that decides asks. Projects have equal shares of the time, and the studies of one of its share. A suggestion is
computed in another process, whose time and memory are bounded: where it goes beyond, the study ends with the reason. Studies whose
suggestions are slow have a process of their own, so that they never keep the others waiting. What was sent and did not count, since the
study changed meanwhile, is asked again.
Never: decides; imports Optuna.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

import structlog

from trainhouse.events import EventId, TrialSuggested
from trainhouse.events.model.study import SamplerName
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.envelope import envelope_of
from trainhouse.events.wire.topics import STUDY_REQUESTS
from trainhouse.scheduler.core.errors import LogUnavailableError
from trainhouse.scheduler.core.studies.study_state import StudyEntry, TunerState, Wanted, told, wanted
from trainhouse.scheduler.core.studies.suggestion_turns import SuggestionTurns
from trainhouse.scheduler.core.studies.trial_jobs import trial_job_id
from trainhouse.scheduler.stream.cancellation import still_wanted
from trainhouse.scheduler.stream.interfaces import Clock, Log
from trainhouse.scheduler.stream.journal.follower import Follower
from trainhouse.scheduler.stream.studies.sampler_process import Ended, SamplerEndedError
from trainhouse.scheduler.stream.studies.suggestion import Suggestion
from trainhouse.scheduler.stream.studies.suggestion_frames import Answer, Question

SOURCE: Final = "trainhouse/sampler"
LOOK_S: Final = 1.0
AGAIN_S: Final = 10.0
SLOW_S: Final = 1.0
"""A study of which a suggestion took so long is among the slow ones from then on."""
MOST_QUICK_S: Final = 5.0
MOST_SLOW_S: Final = 300.0
MOST_DEATHS: Final = 3
IDLE_S: Final = 600.0
Key = tuple[str, str]
log_ = structlog.get_logger(__name__)


class Samplers(Protocol):
    """Process of samplers."""

    async def suggest(self, question: Question) -> Answer:
        """Asks. Raises SamplerEndedError."""

    async def end(self) -> None:
        """Ends the process, if there is one."""


@dataclass(slots=True)
class _Lane:
    """Studies that share one process of samplers. `most_s`: of a processor for one suggestion; `used_s`: when it was asked last."""

    samplers: Samplers
    most_s: float
    turns: SuggestionTurns = field(default_factory=SuggestionTurns)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    used_s: float | None = None


@dataclass(slots=True)
class SuggestionSender:
    """Suggestions of one process. `state`: the tuner's where this process decides; `samplers`: makes a process of samplers.
    `_sent_s`: when values of a trial were sent, or could not be; `_deaths`: processes in a row that ended on a study's suggestion."""

    log: Log
    clock: Clock
    state: Callable[[], TunerState | None]
    samplers: Callable[[], Samplers]
    _quick: _Lane = field(init=False)
    _slow: _Lane = field(init=False)
    _slow_studies: set[Key] = field(default_factory=set)
    _sent_s: dict[tuple[str, str, int], float] = field(default_factory=dict)
    _deaths: dict[Key, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._quick, self._slow = _Lane(self.samplers(), MOST_QUICK_S), _Lane(self.samplers(), MOST_SLOW_S)

    async def after_record(self, _: Follower[TunerState]) -> None:
        """Looks at once."""
        for lane in (self._quick, self._slow):
            lane.changed.set()

    async def run(self) -> None:
        """Looks after each record, and now and then, until cancelled."""
        async with asyncio.TaskGroup() as lanes:
            lanes.create_task(self._run(self._quick))
            lanes.create_task(self._run(self._slow))

    async def _run(self, lane: _Lane) -> None:
        try:
            while True:
                still_wanted()
                lane.changed.clear()
                if await self._send_next(lane):
                    continue
                if lane.used_s is not None and self.clock.steady_s() - lane.used_s > IDLE_S:
                    await lane.samplers.end()
                    lane.used_s = None
                try:
                    async with asyncio.timeout(LOOK_S):
                        await lane.changed.wait()
                except TimeoutError:
                    continue
        finally:
            await lane.samplers.end()

    async def _send_next(self, lane: _Lane) -> bool:
        """Sends values for one trial that is to begin and has none on its way; whether there was one."""
        state = self.state()
        found = [] if state is None else wanted(state)
        self._forget(found, state)
        waiting = [each for each in found if self._lane(state, each) is lane and self._is_due(each)]
        each = lane.turns.next(waiting)
        entry = state.study(each.project, each.study) if each is not None and state is not None else None
        if each is None or entry is None:
            return False
        suggestion = await self._suggested(lane, entry, each)
        if suggestion is None:
            return True
        try:
            await self._send(each, suggestion)
        except LogUnavailableError as error:
            log_.warning("brokers away", error=str(error))
            return False
        self._sent_s[_trial(each)] = self.clock.steady_s()
        return True

    async def _suggested(self, lane: _Lane, entry: StudyEntry, each: Wanted) -> Suggestion | None:
        """Returns a suggestion, or why there is none; None: it is asked for again."""
        key = (each.project, each.study)
        trials = await asyncio.to_thread(told, entry, each.told)
        begun_s = lane.used_s = self.clock.steady_s()
        try:
            answer = await lane.samplers.suggest(Question(entry.spec, trials, each.trial, lane.most_s))
        except SamplerEndedError as error:
            log_.warning("no suggestion", study=entry.key, trial=each.trial, cause=error.cause.value, error=str(error))
            lane.turns.took(each, self.clock.steady_s() - begun_s)
            return self._after_end(lane, entry, each, error)
        lane.turns.took(each, answer.cpu_s)
        self._deaths.pop(key, None)
        if answer.cpu_s > SLOW_S:
            self._slow_studies.add(key)
        return answer.suggestion

    def _after_end(self, lane: _Lane, entry: StudyEntry, each: Wanted, error: SamplerEndedError) -> Suggestion | None:
        """The reason that a study has no suggestion; None: it is asked for again, by a process that has computed nothing before, or by that
        of slow studies."""
        key, name = (each.project, each.study), f"sampler {entry.spec.sampler.name}"
        way_out = f"after {len(entry.trials)} trials; take fewer trials or parameters, or another sampler (random and qmc always answer)"
        if lane is self._quick and error.cause is Ended.TIME:
            self._slow_studies.add(key)
            self._slow.changed.set()
            return None
        if error.cause is Ended.TIME:
            return Suggestion(failure=f"{name} took over {lane.most_s:g} s of a processor for one suggestion {way_out}")
        if not error.was_new:
            return None
        if error.cause is Ended.MEMORY:
            return Suggestion(failure=f"{name}: {error} for one suggestion {way_out}")
        self._deaths[key] = self._deaths.get(key, 0) + 1
        if self._deaths[key] < MOST_DEATHS:
            self._sent_s[_trial(each)] = self.clock.steady_s()
            return None
        return Suggestion(failure=f"{name}: {error}, {MOST_DEATHS} times in a row, {way_out}")

    def _forget(self, found: list[Wanted], state: TunerState | None) -> None:
        trials = {_trial(each) for each in found}
        self._sent_s = {key: at_s for key, at_s in self._sent_s.items() if key in trials}
        if state is not None:
            studies = {(each.project, each.study) for each in state.studies.values()}
            self._slow_studies &= studies
            self._deaths = {key: count for key, count in self._deaths.items() if key in studies}
            for lane in (self._quick, self._slow):
                lane.turns.keep(project for project, _ in studies)

    def _lane(self, state: TunerState | None, each: Wanted) -> _Lane:
        entry = state.study(each.project, each.study) if state is not None else None
        is_slow = (each.project, each.study) in self._slow_studies or (entry is not None and entry.spec.sampler.name is SamplerName.GP)
        return self._slow if is_slow else self._quick

    def _is_due(self, each: Wanted) -> bool:
        return self.clock.steady_s() - self._sent_s.get(_trial(each), float("-inf")) >= AGAIN_S

    async def _send(self, each: Wanted, found: Suggestion) -> None:
        about = {"project": each.project, "study": each.study, "trial": each.trial, "told": each.told}
        answer = {"values": found.values, "versions": found.versions, "exhausted": found.exhausted, "failure": found.failure}
        event = TrialSuggested.model_validate(about | answer)
        job_id = trial_job_id(each.project, each.study, each.trial)
        envelope = envelope_of(event, id=EventId.parse(f"{job_id}:suggested:{each.told}"), source=SOURCE, now_ms=self.clock.now_ms())
        await self.log.send(STUDY_REQUESTS, event.subject().encode(), encode(envelope))


def _trial(each: Wanted) -> tuple[str, str, int]:
    return each.project, each.study, each.trial
