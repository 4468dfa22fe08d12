"""Laws of the tuner over any order of observations, repeats, requests and restarts."""

import math
from collections import Counter
from typing import Any

import orjson
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.support.profiles import examples
from tests.support.study_requests import OF_STUDY, Tuner, job_of, study_spec
from trainhouse.events import (
    Event,
    EventId,
    JobState,
    JobSubmitted,
    StudyChanged,
    StudyPauseRequested,
    StudyPriced,
    StudyPriceObserved,
    StudyResumeRequested,
    StudyState,
    StudyStopRequested,
    TrialBegan,
    TrialEnded,
    TrialJobObserved,
    TrialStarted,
    TrialState,
    TrialSuggested,
    TrialValueObserved,
    envelope_of,
)
from trainhouse.events.wire.journal import decision_bytes
from trainhouse.events.wire.topics import JOBS
from trainhouse.scheduler.core.protocol.machine import Input
from trainhouse.scheduler.core.studies.study_machine import TunerMachine
from trainhouse.scheduler.core.studies.study_state import told, wanted

TRIALS = 8
STATES = (*[JobState.RUNNING] * 4, JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.REJECTED)
PRICES = (0.0, 360.0, 3600.0)
BUDGETS: list[dict[str, Any]] = [{}, {"device_s": 20}, {"wall_s": 50}, {"cost": 8.0}, {"cost": 4.0}, {"cost": 8.0, "device_s": 40}]
LOSSES = st.sampled_from([0.1, 0.2, 0.5, float("nan"), float("inf")])


class Studies(RuleBasedStateMachine):
    """One study, whose jobs and requests do anything in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.tuner = Tuner()
        self.sent: list[tuple[Event, str]] = []
        self.final: set[str] = set()
        self.kept: dict[int, str] = {}

    @initialize(
        parallel=st.integers(1, 4),
        budget=st.sampled_from([{"trials": TRIALS} | each for each in BUDGETS]),
        stagnation=st.sampled_from([{}, {"stagnation": {"device_s": 4}}, {"stagnation": {"device_s": 10, "min_gain": 0.2}}]),
        stopping=st.sampled_from([{"name": "none"}, {"name": "asha", "min_step": 2}, {"name": "median", "min_step": 2, "min_trials": 1}]),
        max_failed=st.integers(0, 2),
        has_code=st.booleans(),
        per_hour=st.sampled_from([3600.0, 3600.0, 360.0, None]),
    )
    def begin(
        self,
        parallel: int,
        budget: dict[str, Any],
        stagnation: dict[str, Any],
        stopping: dict[str, Any],
        max_failed: int,
        has_code: bool,
        per_hour: float | None,
    ) -> None:
        self.parallel, self.budget, self.max_failed = parallel, budget, max_failed
        job = study_spec().job.model_dump(mode="json") | ({"code": {"uri": "s3://code", "sha256": "a" * 64}} if has_code else {})
        about = {"parallel": parallel, "budget": budget, "early_stopping": stopping, "max_failed": max_failed, "job": job}
        self.tuner.create("created", **about, **stagnation)
        if per_hour is not None:
            self.tuner.price(per_hour)
        self.suggested(0.1, False)

    def send(self, event: Event) -> None:
        event_id = f"event-{len(self.sent)}"
        self.sent.append((event, event_id))
        self.tuner.ask(event, event_id)

    @rule(lr=st.sampled_from([0.1, 0.2]), exhausted=st.sampled_from([False] * 9 + [True]))
    def suggested(self, lr: float, exhausted: bool) -> None:
        for each in wanted(self.tuner.state):
            about = OF_STUDY | {"trial": each.trial, "told": each.told, "values": {"lr": lr}, "exhausted": exhausted}
            self.send(TrialSuggested.model_validate(about))

    @rule(which=st.integers(0, TRIALS - 1), state=st.sampled_from(STATES), device_s=st.sampled_from([0.0, 1.0, 5.0, 30.0]))
    def job_observed(self, which: int, state: JobState, device_s: float) -> None:
        trial = which % max(1, len(self.submitted()))
        job = job_of(trial)
        if job not in self.submitted() or job in self.final:
            return
        if state.final:
            self.final.add(job)
        about = OF_STUDY | {"trial": trial, "job_id": job, "state": state, "device_s": device_s, "at_ms": self.tuner.now_ms}
        self.send(TrialJobObserved.model_validate(about))

    @rule(trial=st.integers(0, TRIALS - 1), step=st.integers(0, 20), loss=LOSSES)
    def value_observed(self, trial: int, step: int, loss: float) -> None:
        about = OF_STUDY | {"trial": trial, "job_id": job_of(trial), "step": step, "values": {"loss": loss}}
        self.send(TrialValueObserved.model_validate(about))

    @rule(per_hour=st.sampled_from([*PRICES, *PRICES, None]), version=st.integers(0, 6), currency=st.sampled_from(["USD"] * 5 + ["EUR"]))
    def price_observed(self, per_hour: float | None, version: int, currency: str) -> None:
        about = {"pool": "default", "policy_version": version, "price": per_hour, "currency": currency}
        self.send(StudyPriceObserved.model_validate(OF_STUDY | about))

    @rule(kind=st.sampled_from([StudyPauseRequested, StudyResumeRequested, StudyResumeRequested, StudyStopRequested]))
    def asked(self, kind: type[Event]) -> None:
        self.send(kind.model_validate(OF_STUDY))

    @rule(data=st.data())
    def repeated(self, data: st.DataObject) -> None:
        if self.sent:
            picked = data.draw(st.lists(st.sampled_from(self.sent), min_size=1, max_size=3))
            now_ms = self.tuner.now_ms
            inputs = [envelope_of(event, id=EventId(event_id), source="tests", now_ms=now_ms) for event, event_id in picked]
            self.tuner.record([Input(self.tuner.asked + 1 + at, each) for at, each in enumerate(inputs)])

    @rule(after_s=st.sampled_from([0.1, 10.0, 60.0]))
    def ticked(self, after_s: float) -> None:
        self.tuner.tick(after_s)

    @rule()
    def killed(self) -> None:
        machine = TunerMachine()
        self.tuner.machine, self.tuner.state = machine, machine.load(self.tuner.machine.dump(self.tuner.state))

    def submitted(self) -> list[str]:
        return [str(each.job_id) for each in self.tuner.started() if each.taken_from is None]

    @invariant()
    def one_job_a_trial_and_one_cancellation(self) -> None:
        jobs = [str(each.job_id) for each in self.tuner.started()]
        of = [each.trial if each.taken_from is None else each.taken_from for each in self.tuner.started()]
        assert jobs == [job_of(number) for number in of] and len(jobs) <= TRIALS
        assert [each.trial for each in self.tuner.started()] == list(range(len(jobs)))
        assert max(Counter(self.tuner.cancelled()).values(), default=0) <= 1

    @invariant()
    def what_is_taken_over_is_of_a_complete_trial_with_equal_values(self) -> None:
        started = {each.trial: each for each in self.tuner.started()}
        ends = {each.trial: each for each in self.tuner.decisions if isinstance(each, TrialEnded)}
        for trial, each in started.items():
            if each.taken_from is not None:
                mine, other = ends[trial], ends[each.taken_from]
                assert started[each.taken_from].values == each.values and other.state is TrialState.COMPLETE
                assert (mine.state, repr(mine.values), mine.device_s) == (other.state, repr(other.values), 0.0)

    @invariant()
    def an_ended_study_runs_nothing(self) -> None:
        if self.tuner.has_ended():
            assert set(self.submitted()) <= self.final and not self.tuner.state.studies

    @invariant()
    def never_more_than_what_runs_beyond_the_budget(self) -> None:
        for entry in self.tuner.state.studies.values():
            assert len(entry.open) <= self.parallel
            over = "device_s" in self.budget and entry.spent_device_s >= self.budget["device_s"]
            over = over or ("cost" in self.budget and entry.spent_cost >= self.budget["cost"])
            if over or entry.counts.get("FAILED", 0) > self.max_failed:  # type: ignore[call-overload]
                assert not entry.wants_trial
                assert {entry.trials[number].job_id for number in entry.open} <= set(self.tuner.cancelled())

    @invariant()
    def each_device_second_has_the_price_that_held_when_it_was_observed(self) -> None:
        price, spent, cost = None, dict[int, float](), 0.0
        for decision in self.tuner.decisions:
            if isinstance(decision, StudyPriced):
                price = decision.price
            elif isinstance(decision, TrialBegan | TrialEnded):
                cost += (decision.device_s - spent.get(decision.trial, 0.0)) * (price or 0.0) / 3600
                assert decision.device_s >= spent.get(decision.trial, 0.0)
                spent[decision.trial] = decision.device_s
            elif isinstance(decision, TrialStarted) and "cost" in self.budget:
                assert price is not None and cost < self.budget["cost"], "none begins without a price, nor beyond the budget"
        for entry in self.tuner.state.studies.values():
            assert math.isclose(entry.spent_cost, cost, abs_tol=1e-9)

    @invariant()
    def a_stop_by_stagnation_has_its_numbers_and_gained_too_little(self) -> None:
        for each in self.tuner.decisions:
            if isinstance(each, StudyChanged) and each.reason.startswith("stagnation") and each.state is StudyState.DRAINING:
                assert each.stagnation is not None
                assert each.stagnation.to_device_s - each.stagnation.from_device_s >= each.stagnation.within_device_s
                assert each.stagnation.gain < each.stagnation.min_gain or each.stagnation.gain == 0

    @invariant()
    def what_is_told_of_the_past_stays(self) -> None:
        for entry in self.tuner.state.studies.values():
            now = repr(told(entry))
            assert self.kept.setdefault(entry.number, now) == now
            assert all(repr(told(entry, number)) == text for number, text in self.kept.items())

    def teardown(self) -> None:
        """The records give the same decisions, and the same state, again."""
        machine, state = TunerMachine(), TunerMachine().initial(0)
        for now_ms, inputs, decisions in self.tuner.records:
            assert _bytes(machine.decide(state, now_ms, inputs)) == _bytes(decisions)
            state = machine.fold(state, now_ms, inputs, decisions)
        assert machine.dump(state) == self.tuner.machine.dump(self.tuner.state)
        jobs = [each for _, _, decisions in self.tuner.records for each in machine.effects(1, 0, [], decisions) if each.topic == JOBS]
        submitted = [each for each in jobs if isinstance(each.event, JobSubmitted)]
        assert len({each.event_id for each in jobs}) == len(jobs) and len(submitted) == len(self.submitted())


def _bytes(decisions: list[Event]) -> list[bytes]:
    return [decision_bytes(each.event_type, orjson.loads(each.model_dump_json())) for each in decisions]


def test_any_order() -> None:
    run_state_machine_as_test(Studies, settings=settings(max_examples=examples(150), stateful_step_count=40, deadline=None))


def test_a_trial_begins_in_each_study_of_the_law() -> None:
    """The law is about something: its study begins, and has trials."""
    world = Studies()
    world.begin(2, {"trials": TRIALS, "cost": 8.0}, {}, {"name": "none"}, 1, False, 3600.0)
    assert any(isinstance(each, TrialStarted) for each in world.tuner.decisions)
