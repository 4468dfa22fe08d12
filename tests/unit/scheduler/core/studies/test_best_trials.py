"""Best trials of a study: what comparing every pair gives."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tests.support.told_trials import told_trial
from trainhouse.events.model.spec import MetricMode
from trainhouse.events.model.study import Objective
from trainhouse.events.model.study_decisions import TrialState
from trainhouse.scheduler.core.studies.best import best_with
from trainhouse.scheduler.core.studies.trial_record import ToldTrial

VALUES = st.one_of(st.integers(-3, 3).map(float), st.sampled_from([math.nan, math.inf, -math.inf]))
LOSS = Objective(name="loss")
ACCURACY = Objective(name="accuracy", mode=MetricMode.MAX)
SIZE = Objective(name="size")


def best_trials(metrics: list[Objective], trials: list[ToldTrial]) -> list[int]:
    """The best ones after these have ended, in this order."""
    best: list[ToldTrial] = []
    for ended in trials:
        numbers = best_with(metrics, best, ended)
        assert numbers == sorted(numbers)
        best = [trial for trial in [*best, ended] if trial.number in numbers]
    return [trial.number for trial in sorted(best, key=lambda trial: trial.number)]


def beats(one: ToldTrial, other: ToldTrial, metrics: list[Objective]) -> bool:
    """Whether one is nowhere worse and somewhere better."""
    assert one.objectives is not None and other.objectives is not None
    pairs = [
        (mine, theirs) if metric.mode is MetricMode.MAX else (-mine, -theirs)
        for mine, theirs, metric in zip(one.objectives, other.objectives, metrics, strict=True)
    ]
    return all(mine >= theirs for mine, theirs in pairs) and any(mine > theirs for mine, theirs in pairs)


@st.composite
def studies(draw: st.DrawFn) -> tuple[list[Objective], list[ToldTrial]]:
    metrics = [LOSS, ACCURACY, SIZE][: draw(st.integers(1, 3))]
    states = st.sampled_from(list(TrialState))
    results = st.none() | st.tuples(*[VALUES] * len(metrics))
    drawn = draw(st.lists(st.tuples(states, results), max_size=12))
    trials = [told_trial(number, {}, state, *(result or ())) for number, (state, result) in enumerate(drawn)]
    return metrics, draw(st.permutations(trials))


@given(studies())
def test_best_trials_are_those_that_no_other_one_beats(study: tuple[list[Objective], list[ToldTrial]]) -> None:
    metrics, trials = study
    counting = [
        trial
        for trial in trials
        if trial.state in (TrialState.COMPLETE, TrialState.STOPPED) and trial.objectives and all(map(math.isfinite, trial.objectives))
    ]
    front = sorted(trial.number for trial in counting if not any(beats(other, trial, metrics) for other in counting))
    best = best_trials(metrics, trials)
    assert best == (front[:1] if len(metrics) == 1 else front)


def test_no_trials_no_best() -> None:
    assert best_trials([LOSS], []) == []
    assert best_trials([LOSS], [told_trial(0, {}, TrialState.COMPLETE, math.nan), told_trial(1, {}, TrialState.FAILED, 1.0)]) == []
