"""Stagnation of a study: what looking at every trial gives, and the numbers that the stop carries."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.support.profiles import examples
from tests.support.study_requests import OF_STUDY, Tuner, study_spec
from tests.support.told_trials import told_trial
from tests.unit.scheduler.core.studies.test_study_machine import of
from trainhouse.events import JobState, StagnationRule, StudyChanged, StudyPauseRequested, StudyState, StudyStatus, TrialState
from trainhouse.events.model.spec import MetricMode
from trainhouse.scheduler.core.studies.stagnation import Gain, stagnation_figures, why_stagnant, with_gain

LOSSES = st.one_of(st.integers(-6, 6).map(float), st.sampled_from([math.nan, math.inf]))


def stagnates(rule: StagnationRule, sign: float, ended: list[tuple[float, float]]) -> bool:
    """Whether over the newest device-seconds of a rule the best value gained too little, one trial after another."""
    total = sum(device_s for _, device_s in ended)
    spent, before, now = 0.0, None, None
    for value, device_s in ended:
        spent += device_s
        if math.isfinite(value):
            now = value if now is None else min(now, value, key=lambda each: sign * each)
        if spent <= total - rule.device_s:
            before = now
    if before is None or now is None:
        return False
    gain = sign * (before - now)
    return gain < rule.min_gain or gain == 0


@settings(max_examples=examples(300), deadline=None)
@given(
    ended=st.lists(st.tuples(LOSSES, st.integers(0, 5).map(float)), max_size=12),
    within=st.integers(1, 12),
    least=st.integers(0, 4),
    mode=st.sampled_from(list(MetricMode)),
)
def test_a_study_ends_when_its_best_value_gains_too_little(
    ended: list[tuple[float, float]], within: int, least: int, mode: MetricMode
) -> None:
    rule, sign = StagnationRule(device_s=within, min_gain=least), 1.0 if mode is MetricMode.MIN else -1.0
    gains, spent = tuple[Gain, ...](), 0.0
    for number, (value, device_s) in enumerate(ended):
        spent += device_s
        gains = with_gain(gains, mode, told_trial(number, {}, TrialState.COMPLETE, value), spent)
        figures = stagnation_figures(rule, mode, gains, spent)
        assert bool(why_stagnant("loss", figures)) == stagnates(rule, sign, ended[: number + 1])
        if figures is not None and why_stagnant("loss", figures):
            assert figures.gain_rate < rule.min_gain / rule.device_s or figures.gain == 0
            values = [each for each, _ in ended[: number + 1] if math.isfinite(each)]
            assert figures.best == min(values, key=lambda each: sign * each) and ended[figures.trial][0] == figures.best


def stagnant(tuner: Tuner, *losses: float, device_s: float = 10.0) -> list[Any]:
    decided: list[Any] = []
    for loss in losses:
        tuner.fill()
        trial = len(tuner.study.trials) - len(tuner.study.open)
        decided = tuner.succeed(trial, loss, device_s)
    return decided


def test_the_stop_carries_its_numbers_in_decision_reason_and_status() -> None:
    tuner = Tuner()
    tuner.create(budget={"trials": 50}, stagnation={"device_s": 20, "min_gain": 0.1})
    stagnant(tuner, 0.9, 0.5, 0.45)
    assert tuner.study.state is StudyState.RUNNING
    decided = stagnant(tuner, 0.6)
    changed = of(StudyChanged, decided)
    assert changed.state is StudyState.DRAINING
    assert changed.stagnation.model_dump() == {
        "best": 0.45,
        "trial": 2,
        "gain": pytest.approx(0.05),
        "from_device_s": 20.0,
        "to_device_s": 40.0,
        "gain_rate": pytest.approx(0.0025),
        "min_gain": 0.1,
        "within_device_s": 20.0,
    }
    assert changed.reason == (
        "stagnation: the best loss is 0.45 (trial 2) and gained 0.05 over 20 device-seconds, 20 to 40: 0.0025 for each; "
        "asked for is at least 0.1 in 20, 0.005 for each"
    )
    statuses = [each for each in decided if isinstance(each, StudyStatus)]
    assert statuses[-1].reason == changed.reason and statuses[-1].stagnation == changed.stagnation
    assert len(tuner.cancelled()) == 1 and tuner.fill() == 0, "what runs is cancelled: it gains too little, too"
    tuner.job(4, JobState.CANCELLED, device_s=5.0)
    assert tuner.has_ended()


def test_gains_are_the_same_after_a_restart_and_a_paused_study_ends_too() -> None:
    tuner = Tuner()
    tuner.create(budget={"trials": 50}, stagnation={"device_s": 20})
    stagnant(tuner, 0.9, float("nan"), 0.5)
    again = tuner.machine.load(tuner.machine.dump(tuner.state)).studies[tuner.study.key]
    assert again.gains == tuner.study.gains == (Gain(0, 10.0, 0.9), Gain(2, 30.0, 0.5))
    tuner.ask(StudyPauseRequested.model_validate(OF_STUDY))
    tuner.succeed(3, 0.7, 25.0)
    assert tuner.has_ended()
    last = [each for each in tuner.decisions if isinstance(each, StudyChanged)][-1]
    assert "asked for is any gain in 20" in last.reason


def test_a_study_whose_last_trials_run_lets_them_end() -> None:
    tuner = Tuner()
    tuner.create(budget={"trials": 4}, stagnation={"device_s": 10})
    stagnant(tuner, 0.5, 0.6)
    assert tuner.has_ended() or tuner.study.state is StudyState.DRAINING
    other = Tuner()
    other.create(budget={"trials": 2}, stagnation={"device_s": 10})
    other.fill()
    other.succeed(0, 0.5, 5.0)
    assert not other.cancelled(), "its trials have begun, and end"
    other.succeed(1, 0.6, 50.0)
    assert other.has_ended() and not other.cancelled()


@pytest.mark.parametrize("rule", [{"device_s": 0}, {}, {"device_s": 10, "min_gain": -1}, {"device_s": 10, "min_gain": float("nan")}])
def test_a_rule_needs_device_seconds_and_a_gain_that_is_none_below_nothing(rule: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="stagnation"):
        study_spec(stagnation=rule)


def test_several_metrics_have_no_gain() -> None:
    with pytest.raises(ValidationError, match="stagnation is for one metric"):
        study_spec(metrics=[{"name": "loss"}, {"name": "cost"}], stagnation={"device_s": 10})
