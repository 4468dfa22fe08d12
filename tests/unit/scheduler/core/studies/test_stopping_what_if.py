"""Early stopping decided anew: the study's own rule decides as the tuner did, another one as brute force, what is unknown is named."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.study_requests import OF_STUDY, Tuner
from tests.support.trial_facts import facts_of
from trainhouse.events import Event, JobState, StudyStopRequested, TrialState, TrialStopping
from trainhouse.events.model.spec import MetricMode
from trainhouse.events.model.study import EarlyStopping, Objective, StoppingName
from trainhouse.scheduler.core.studies.stopping import rung_step, why_stopped
from trainhouse.scheduler.core.studies.stopping_what_if import FactKind, TrialFact, WhatIf, decide_anew

LOSS = (Objective(name="loss"),)
VALUES = st.one_of(st.integers(-3, 3).map(float), st.sampled_from([math.nan, math.inf, -math.inf, 0.5]))
RULES = st.builds(
    EarlyStopping,
    name=st.sampled_from(list(StoppingName)),
    min_step=st.integers(1, 3),
    max_step=st.none() | st.integers(5, 30),
    reduction=st.integers(2, 4),
    min_trials=st.integers(1, 3),
)
MOVES = st.lists(
    st.tuples(st.sampled_from(["log", "log", "log", "log", "end", "suggest", "run", "stop"]), st.integers(0, 9), st.integers(1, 6), VALUES),
    min_size=5,
    max_size=60,
)
FINAL = (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


def played(stopping: EarlyStopping, moves: Sequence[tuple[str, int, int, float]], stops: bool = True) -> tuple[Tuner, list[Any]]:
    """Lets the tuner's machine decide about trials that log, end and are stopped in any order; returns it with the study before its end."""
    tuner = Tuner()
    tuner.create(parallel=10, budget={"trials": 10}, max_failed=10, early_stopping=stopping.model_dump(mode="json"))
    steps = dict.fromkeys(range(10), 0)
    entries = []
    for word, trial, step, value in moves:
        if tuner.has_ended():
            break
        cancelled = any(isinstance(each, TrialStopping) and each.trial == trial for each in tuner.decisions)
        match word:
            case "suggest":
                tuner.suggest()
            case "run":
                tuner.job(trial, JobState.RUNNING, device_s=float(steps[trial]))
            case "log":
                steps[trial] += step
                tuner.log(trial, steps[trial], value)
            case "end":
                tuner.job(trial, FINAL[2] if cancelled else FINAL[step % 2], device_s=float(10 * steps[trial] + trial))
            case "stop" if stops and step == 6:
                tuner.ask(StudyStopRequested.model_validate(OF_STUDY))
        if not tuner.has_ended():
            entries.append(tuner.study)
    return tuner, entries


@given(RULES, MOVES)
def test_the_own_rule_over_the_own_history_decides_as_the_tuner_did(stopping: EarlyStopping, moves: Any) -> None:
    tuner, entries = played(stopping, moves)
    found = decide_anew(LOSS, stopping, facts_of(tuner.decisions))
    early = {each.trial: (each.step, each.reason) for each in tuner.decisions if isinstance(each, TrialStopping) and each.early}
    assert {each.trial: (each.stop.step, each.stop.why) for each in found.trials if each.stop is not None} == early
    assert found.unknown == [] and found.doubtful == []
    for each in found.trials:
        assert (each.state, each.device_s, repr(each.value)) == (each.recorded_state, each.recorded_device_s, repr(each.recorded_value))
    assert found.best == found.recorded_best and found.device_s == found.recorded_device_s
    if not tuner.has_ended():
        entry = entries[-1]
        assert [found.recorded_best] == (list(entry.best) or [None])
        assert len(found.trials) == len(entry.trials)
        ours = [TrialState.RUNNING if not each.state.final else each.state for each in entry.trials]
        assert [each.recorded_state for each in found.trials] == ours
        assert [each.recorded_device_s for each in found.trials] == [each.device_s for each in entry.trials]


@given(RULES, MOVES)
def test_another_rule_over_whole_curves_decides_as_a_tuner_that_had_it(stopping: EarlyStopping, moves: Any) -> None:
    """A study without early stopping has whole curves. A tuner that has the other rule, and whose jobs end as soon as they are cancelled,
    sees of each curve what comes before its stop."""
    whole, _ = played(EarlyStopping(name=StoppingName.NONE), moves, stops=False)
    facts = facts_of(whole.decisions)
    found = decide_anew(LOSS, stopping, facts)
    tuner = Tuner()
    tuner.create(parallel=10, budget={"trials": 10}, max_failed=10, early_stopping=stopping.model_dump(mode="json"))
    for fact in facts:
        if tuner.has_ended():
            break
        match fact.kind:
            case FactKind.STARTED:
                tuner.suggest()
            case FactKind.VALUE if fact.value is not None:
                for each in tuner.log(fact.trial, fact.step, fact.value):
                    if isinstance(each, TrialStopping) and each.early:
                        tuner.job(fact.trial, JobState.CANCELLED)
            case FactKind.ENDED:
                tuner.job(fact.trial, JobState.SUCCEEDED if fact.state is TrialState.COMPLETE else JobState.FAILED)
    early = {each.trial: (each.step, each.reason) for each in tuner.decisions if isinstance(each, TrialStopping) and each.early}
    assert {each.trial: (each.stop.step, each.stop.why) for each in found.trials if each.stop is not None} == early
    assert found.unknown == [] and found.doubtful == [] and found.recorded_device_s >= found.device_s
    if not tuner.has_ended():
        assert [found.best] == (list(tuner.study.best) or [None])
        assert [each.state for each in found.trials] == [
            each.state if each.state.final else TrialState.RUNNING for each in tuner.study.trials
        ]


def brute_force(
    stopping: EarlyStopping, curves: Sequence[Sequence[tuple[int, float]]], order: Sequence[int]
) -> dict[int, tuple[int, float]]:
    """Step and value at which each trial ends: tables of rungs, without any short cut. All trials run from the start to the end."""
    tables: dict[int, dict[int, float]] = {}
    stopped: dict[int, tuple[int, float]] = {}
    at = dict.fromkeys(range(len(curves)), 0)
    for trial in order:
        if trial in stopped or at[trial] == len(curves[trial]):
            continue
        step, value = curves[trial][at[trial]]
        at[trial] += 1
        for rung in itertools.count():
            rungs_at = rung_step(stopping, rung)
            if rungs_at is None or rungs_at > step:
                break
            table = tables.setdefault(rung, {})
            if trial in table:
                continue
            others = list(table.values())
            table[trial] = value
            if trial not in stopped and why_stopped(stopping, MetricMode.MIN, rung, value, others, len(stopped)):
                stopped[trial] = step, value
    return stopped


@st.composite
def histories(draw: Any, most: int = 6) -> tuple[list[list[tuple[int, float]]], list[int]]:
    """Curves, and the order in which their values arrive."""
    curves = draw(st.lists(st.lists(VALUES, min_size=1, max_size=6), min_size=1, max_size=most))
    numbered = [list(enumerate(curve, 1)) for curve in curves]
    order = draw(st.permutations([trial for trial, curve in enumerate(numbered) for _ in curve]))
    return numbered, list(order)


def facts(
    curves: Sequence[Sequence[tuple[int, float]]], order: Sequence[int], cut: dict[int, int] | None = None, device_s: float = 10.0
) -> list[TrialFact]:
    """A history of trials that all run from the start. `cut`: reports after which the study's rule ended a trial."""
    cut = cut or {}
    found = [TrialFact(number, FactKind.STARTED, number) for number in range(len(curves))]

    def put(kind: FactKind, trial: int, **more: Any) -> None:
        found.append(TrialFact(len(found), kind, trial, **more))

    at = dict.fromkeys(range(len(curves)), 0)
    for trial in order:
        if at[trial] >= cut.get(trial, len(curves[trial])):
            continue
        step, value = curves[trial][at[trial]]
        put(FactKind.VALUE, trial, step=step, value=value)
        at[trial] += 1
        if at[trial] == cut.get(trial):
            put(FactKind.STOPPING, trial, step=step, early=True)
    for trial, curve in enumerate(curves):
        share = cut.get(trial, len(curve)) / len(curve)
        state = TrialState.STOPPED if trial in cut else TrialState.COMPLETE
        put(FactKind.ENDED, trial, state=state, device_s=device_s * share)
    return found


@given(RULES, histories())
def test_stops_costs_and_the_best_are_those_of_brute_force(stopping: EarlyStopping, history: Any) -> None:
    curves, order = history
    found = decide_anew(LOSS, stopping, facts(curves, order))
    stopped = brute_force(stopping, curves, order)
    assert repr({each.trial: (each.stop.step, each.value) for each in found.trials if each.stop}) == repr(dict(sorted(stopped.items())))
    made = [stopped[trial][0] if trial in stopped else len(curve) for trial, curve in enumerate(curves)]
    assert found.device_s == pytest.approx(sum(10 * steps / len(curve) for steps, curve in zip(made, curves, strict=True)))
    counted = [(stopped[trial][1] if trial in stopped else curve[-1][1], trial) for trial, curve in enumerate(curves)]
    assert found.best == min((each for each in counted if math.isfinite(each[0])), default=(0, None))[1]
    assert (
        found.recorded_best
        == min(((curve[-1][1], n) for n, curve in enumerate(curves) if math.isfinite(curve[-1][1])), default=(0, None))[1]
    )


@given(RULES, histories(4), st.data())
def test_what_is_not_doubtful_is_so_whatever_the_missing_values_were(stopping: EarlyStopping, history: Any, data: st.DataObject) -> None:
    """Curves are cut off; whatever is put in place of what is missing, and whenever it came, each decision that counts as known stays."""
    curves, order = history
    long = [trial for trial, curve in enumerate(curves) if len(curve) > 1]
    cut = (
        {trial: data.draw(st.integers(1, len(curves[trial]) - 1)) for trial in data.draw(st.lists(st.sampled_from(long), unique=True))}
        if long
        else {}
    )
    found = decide_anew(LOSS, stopping, facts(curves, order, cut))
    assert set(found.unknown) <= set(cut)
    certain = {each.trial: each for each in found.trials if not each.is_doubtful}
    # Another end of each curve that was cut, whose reports come at any time after its last known one.
    other = [
        curve[: cut.get(trial, len(curve))] + [(step, data.draw(VALUES)) for step, _ in curve[cut.get(trial, len(curve)) :]]
        for trial, curve in enumerate(curves)
    ]
    if stopping.name is StoppingName.MEDIAN:
        stopping = stopping.model_copy(update={"min_trials": 1})
        found = decide_anew(LOSS, stopping, facts(curves, order, cut))
        certain = {each.trial: each for each in found.trials if not each.is_doubtful}
    whole = decide_anew(LOSS, stopping, facts(other, order))
    for trial, each in certain.items():
        then = whole.trials[trial].stop
        assert (each.stop and (each.stop.step, each.stop.rung)) == (then and (then.step, then.rung)), (trial, each, whole.trials[trial])


def test_a_curve_that_ends_before_the_other_rule_decides_is_named() -> None:
    curves = [
        [(1, 0.5), (2, 0.4), (3, 0.3)],
        [(1, 0.6), (2, 0.6), (3, 0.6)],
        [(1, 0.55), (2, 0.5), (3, 0.5)],
        [(1, 0.9), (2, 0.8), (3, 0.7)],
    ]
    order = [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    recorded = facts(curves, order, {1: 1})
    none = decide_anew(LOSS, EarlyStopping(name=StoppingName.NONE), recorded)
    assert (none.unknown, none.doubtful, none.best, none.recorded_best) == ([1], [], 0, 0)
    assert none.trials[1].device_s == none.trials[1].recorded_device_s == pytest.approx(10 / 3)
    late = decide_anew(LOSS, EarlyStopping(min_step=3, max_step=3), recorded)
    assert late.unknown == [1], "it was ended at step 1"
    # At step 3 of trial 2 the best one of two, or of three, goes on: it is none of them, whatever trial 1 would have had there.
    assert [each.stop and each.stop.step for each in late.trials] == [None, None, 3, 3] and late.doubtful == []
    # Of four the best two go on: whether trial 3 is among them depends on trial 1.
    half = decide_anew(LOSS, EarlyStopping(min_step=3, max_step=3, reduction=2), recorded)
    assert half.unknown == [1] and half.doubtful == []
    soon = decide_anew(LOSS, EarlyStopping(min_step=1, max_step=1), recorded)
    assert soon.unknown == [] and [each.stop and each.stop.step for each in soon.trials] == [None, 1, 1, 1]
    assert soon.trials[1].device_s == soon.trials[1].recorded_device_s, "it ends where it did"
    assert soon.device_s == pytest.approx(10 + 3 * 10 / 3)


def test_what_rests_on_missing_values_is_doubtful() -> None:
    curves = [[(1, 0.5), (2, 0.4)], [(1, 0.6), (2, 0.6)], [(1, 0.7), (2, 0.45)], [(1, 0.7), (2, 0.42)]]
    recorded = facts(curves, [0, 0, 1, 1, 2, 2, 3, 3], {1: 1})
    half = decide_anew(LOSS, EarlyStopping(min_step=2, max_step=2, reduction=2), recorded)
    # Trial 3 is the second of three, of which one goes on; with trial 1 there two of four do, and it may be one of them.
    assert half.unknown == [1] and half.doubtful == [3] and half.trials[3].stop is not None
    assert half.trials[2].stop is not None and not half.trials[2].is_doubtful


def test_reports_beyond_a_rung_are_counted() -> None:
    curves = [[(2, 0.5), (5, 0.4)], [(3, 0.4)]]
    found: WhatIf = decide_anew(LOSS, EarlyStopping(min_step=2, reduction=2, max_step=4), facts(curves, [0, 0, 1]))
    assert found.late_reports == 2


def test_a_study_of_several_metrics_has_no_early_stopping() -> None:
    with pytest.raises(ValueError, match="for one metric, and the study has 2"):
        decide_anew([Objective(name="a"), Objective(name="b")], EarlyStopping(), [])


def test_some_examples_of_the_laws_end_trials_early() -> None:
    """The laws are about something."""
    assert examples(1) >= 0
    moves = [("suggest", 0, 1, 0.0)] * 3 + [("log", 0, 1, 0.1), ("log", 1, 1, 0.2), ("end", 1, 1, 0.0), ("log", 2, 1, 0.05)]
    tuner, _ = played(EarlyStopping(min_step=1), moves)
    stops: list[Event] = [each for each in tuner.decisions if isinstance(each, TrialStopping)]
    assert len(stops) == 1 and decide_anew(LOSS, EarlyStopping(min_step=1), facts_of(tuner.decisions)).trials[1].state is TrialState.STOPPED
