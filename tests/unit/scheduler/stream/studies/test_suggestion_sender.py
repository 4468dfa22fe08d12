"""Suggestions in fair turns: a study whose suggestions are slow, large or deadly keeps no other one waiting, and ends with the reason."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.fakes.journal_fakes import FakeBroker, FakeLog, LoopClock, call_directly, run_virtually
from tests.support.here_samplers import HereSamplers
from tests.support.study_requests import Tuner, study_spec
from trainhouse.events import StudyChanged, StudyCreated, TrialSuggested, decode
from trainhouse.events.wire.topics import STUDY_REQUESTS
from trainhouse.scheduler.core.protocol.machine import Input
from trainhouse.scheduler.core.studies.study_state import Wanted
from trainhouse.scheduler.core.studies.suggestion_turns import SuggestionTurns
from trainhouse.scheduler.stream.studies import suggestion_sender
from trainhouse.scheduler.stream.studies.sampler_process import Ended, SamplerEndedError
from trainhouse.scheduler.stream.studies.suggestion_frames import Question
from trainhouse.scheduler.stream.studies.suggestion_sender import MOST_DEATHS, MOST_SLOW_S, SuggestionSender


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncio.to_thread", call_directly)


@dataclass
class World:
    """A tuner whose studies' trials run for ever, and the sender of their suggestions. `seconds`: of a suggestion by study; `raised`: what
    the first suggestions of a study end with."""

    seconds: dict[str, float] = field(default_factory=dict)
    raised: dict[str, list[SamplerEndedError]] = field(default_factory=dict)
    tuner: Tuner = field(default_factory=Tuner)
    broker: FakeBroker = field(default_factory=FakeBroker)
    began_s: dict[str, list[float]] = field(default_factory=dict)
    read: int = 0

    def create(self, project: str, study: str, **changes: Any) -> None:
        spec = study_spec(parallel=64, budget={"trials": 64}, job=_job(study), **changes)
        self.tuner.ask(StudyCreated(project=project, study=study, spec=spec))

    def samplers(self) -> HereSamplers:
        return HereSamplers(self.lasts)

    def lasts(self, question: Question) -> float:
        study = question.spec.job.name
        if self.raised.get(study):
            raise self.raised[study].pop(0)
        seconds = self.seconds.get(study, 0.01)
        if seconds > question.cpu_s:
            raise SamplerEndedError(Ended.TIME, True, "too long")
        return seconds

    def take(self) -> None:
        """What was sent goes to the tuner."""
        stored = [each for (topic, _), log in self.broker.logs.items() if topic == STUDY_REQUESTS for each in log]
        for each in stored[self.read :]:
            envelope = decode(each.entry.value or b"", each.entry.headers)
            self.tuner.record([Input(1000 + self.read, envelope)])
            self.read += 1
            assert isinstance(envelope.event, TrialSuggested)
            self.began_s.setdefault(envelope.event.study, []).append(asyncio.get_running_loop().time())

    def run(self, for_s: float) -> None:
        async def story() -> None:
            sender = SuggestionSender(FakeLog(self.broker), LoopClock(), lambda: self.tuner.state, self.samplers)
            running = asyncio.create_task(sender.run())
            until_s = asyncio.get_running_loop().time() + for_s
            while asyncio.get_running_loop().time() < until_s:
                await asyncio.sleep(0.01)
                before = self.read
                self.take()
                if self.read != before:
                    await sender.after_record(None)  # type: ignore[arg-type]  # it is not looked at
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running

        run_virtually(story())

    def why_ended(self, study: str) -> str:
        changed = [each for each in self.tuner.decisions if isinstance(each, StudyChanged) and each.study == study]
        return changed[0].reason if changed else ""


def _job(name: str) -> dict[str, Any]:
    return {"name": name, "runtime": {"command": ["x"]}, "resources": {"device_type": "cpu"}}


def test_a_slow_study_of_one_project_keeps_no_other_waiting() -> None:
    world = World(seconds={"slow": 40.0})
    world.create("vision", "slow")
    world.create("speech", "quick")
    world.run(60)
    assert len(world.began_s["quick"]) == 64 and world.began_s["quick"][-1] < 15, "it waited for one try among the quick ones at most"
    assert len(world.began_s["slow"]) == 1, "and goes on among the slow ones"


def test_many_studies_of_one_project_leave_another_its_half() -> None:
    world = World()
    for number in range(20):
        world.create("vision", f"vision-{number}")
    world.create("speech", "speech")
    world.run(1.0)
    counts = Counter({study: len(times) for study, times in world.began_s.items()})
    others = [counts[f"vision-{number}"] for number in range(20)]
    assert 2 * counts["speech"] >= 0.8 * sum(counts.values()) and counts["speech"] < 64
    assert max(others) - min(others) <= 1, others


def test_a_suggestion_that_takes_too_long_ends_its_study_with_the_reason() -> None:
    world = World(seconds={"slow": MOST_SLOW_S + 1})
    world.create("vision", "slow")
    world.run(20)
    assert "random" in world.why_ended("slow") and f"took over {MOST_SLOW_S:g} s of a processor" in world.why_ended("slow")


def test_one_that_is_too_large_ends_its_study_by_a_process_of_its_own_alone() -> None:
    by_others, alone = (SamplerEndedError(Ended.MEMORY, was_new, "it had 5000 MiB of memory") for was_new in (False, True))
    world = World(raised={"large": [by_others]})
    world.create("vision", "large")
    world.run(2)
    assert "MiB" not in world.why_ended("large") and len(world.began_s["large"]) == 64, "others had filled it"
    world = World(raised={"large": [by_others, alone]})
    world.create("vision", "large")
    world.run(2)
    assert "5000 MiB" in world.why_ended("large")


def test_a_process_that_dies_again_and_again_ends_the_study() -> None:
    died = SamplerEndedError(Ended.DIED, True, "the process of samplers ended with -9")
    world = World(raised={"deadly": [died] * MOST_DEATHS})
    world.create("vision", "deadly")
    world.create("vision", "other")
    world.run(MOST_DEATHS * suggestion_sender.AGAIN_S)
    assert "deadly" in world.began_s and world.began_s["deadly"][0] >= (MOST_DEATHS - 1) * suggestion_sender.AGAIN_S, "with pauses"
    assert f"{MOST_DEATHS} times in a row" in world.why_ended("deadly") and world.began_s["other"][-1] < suggestion_sender.AGAIN_S


def test_turns_are_fair_by_time_and_who_was_away_has_nothing_saved_up() -> None:
    turns, took = SuggestionTurns(), Counter[str]()
    here = [Wanted("a", "x", 0, 1), Wanted("b", "y", 0, 1)]
    costs = {"a": 10.0, "b": 1.0, "c": 1.0}
    for _ in range(220):
        each = turns.next(here)
        assert each is not None
        turns.took(each, costs[each.project])
        took[each.project] += 1
    assert abs(took["a"] * 10 - took["b"]) <= 10
    late = Counter[str]()
    for _ in range(20):
        each = turns.next([*here, Wanted("c", "z", 0, 1)])
        assert each is not None
        turns.took(each, costs[each.project])
        late[each.project] += 1
    assert late["c"] <= 13 and late["c"] >= 8, late
    assert turns.next([]) is None
