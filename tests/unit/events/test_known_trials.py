"""Trials that a study knows from its start: which fit, which are left out and why, and what a spec refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import ValidationError

from tests.support.told_trials import CONDITIONAL, study_spec
from trainhouse.events.model.known_trials import MOST_KNOWN, metrics_fault, taken_of_rows, taken_of_study
from trainhouse.events.model.study_space import Parameter

SPACE = {name: Parameter.model_validate(each) for name, each in CONDITIONAL.items()}
ADAM: dict[str, Any] = {"optimizer": "adam", "lr": 0.01}
SGD: dict[str, Any] = {"optimizer": "sgd", "lr": 0.01, "momentum": 0.5, "nesterov": True, "damping": 0.1}


def row(trial: int, parameters: dict[str, Any], loss: float | None = 0.5, state: str = "COMPLETE", step: int | None = 9) -> dict[str, Any]:
    values = {} if loss is None else {"loss": loss, "seconds": 3.0}
    return {"trial": trial, "state": state, "parameters": parameters, "values": values, "step": step}


def test_trials_that_fit_are_taken_with_their_numbers_and_the_others_named() -> None:
    taken = taken_of_study(
        SPACE,
        ["loss"],
        "digits",
        [
            row(0, ADAM),
            row(1, SGD, 0.4, "STOPPED"),
            row(2, ADAM | {"lr": 2.0}),
            row(3, ADAM | {"width": 8}),
            row(4, {"optimizer": "adam"}),
            row(5, ADAM, None),
            row(6, ADAM | {"momentum": 0.5}),
            row(7, ADAM, 0.1, "FAILED"),
            row(8, ADAM, 0.1, "RUNNING"),
            row(9, ADAM | {"optimizer": "lion"}),
            row(10, ADAM, math.nan),
        ],
    )
    assert [(each.trial, each.study, each.stopped_at, dict(each.metrics)) for each in taken.known] == [
        (0, "digits", None, {"loss": 0.5}),
        (1, "digits", 9, {"loss": 0.4}),
    ]
    assert taken.left_out == [
        "trial 2: lr = 2.0 is not between 1e-05 and 1.0",
        "trial 3: its width is no parameter of `space`",
        "trial 4: it has no lr",
        "trial 5: it has no value of loss",
        "trial 6: its momentum does not exist beside its other values",
        "trial 9: optimizer = 'lion' is none of its choices",
        "trial 10: its loss is nan",
    ]


def test_rows_are_points_by_the_names_of_their_columns() -> None:
    rows = [SGD | {"loss": 0.5, "job_id": "a-1"}, ADAM | {"momentum": None, "nesterov": None, "damping": None, "loss": 0.4}, ADAM]
    taken = taken_of_rows(SPACE, ["loss"], [*rows, ADAM | {"lr": [1], "loss": 1.0}])
    assert [dict(each.values) for each in taken.known] == [SGD, ADAM] and taken.known[0].trial is None
    assert taken.left_out[0] == "row 3: it has no value of loss" and taken.left_out[1].startswith("row 4: values.lr: ")


def test_the_newest_count_where_there_are_too_many() -> None:
    taken = taken_of_study(SPACE, ["loss"], "digits", [row(number, ADAM) for number in range(MOST_KNOWN + 2)])
    assert [taken.known[0].trial, taken.known[-1].trial, len(taken.known)] == [2, MOST_KNOWN + 1, MOST_KNOWN]
    assert taken.left_out == [f"the first 2 that fit: the newest {MOST_KNOWN} count"]


def test_another_metric_or_direction_is_named() -> None:
    earlier = {"metrics": ["loss", "seconds"], "modes": ["min", "max"]}
    assert metrics_fault([("seconds", "max"), ("loss", "min")], earlier) == ""
    assert metrics_fault([("accuracy", "max")], earlier) == "its metric is loss, seconds, and the new study's accuracy"
    assert metrics_fault([("loss", "max")], earlier) == "its loss is best at its min, and the new study's at its max"


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({"values": ADAM | {"lr": 0.0}, "metrics": {"metric_0": 1.0}}, "known.1: lr = 0.0 is not between 1e-05 and 1.0; leave it out"),
        ({"values": ADAM, "metrics": {"other": 1.0}}, "known.1: it has no value of metric_0"),
        ({"values": ADAM, "metrics": {"metric_0": math.inf}}, "known.1: its metric_0 is inf"),
    ],
)
def test_a_spec_refuses_what_does_not_fit(known: dict[str, Any], words: str) -> None:
    fits = {"values": SGD, "metrics": {"metric_0": 1.0}}
    spec = study_spec(CONDITIONAL, known=[fits])
    assert type(spec).model_validate_json(spec.model_dump_json()) == spec
    assert "known" not in study_spec(CONDITIONAL).model_dump(), "specs of before stay as they were"
    with pytest.raises(ValidationError, match=words):
        study_spec(CONDITIONAL, known=[fits, known])


def test_known_trials_count_for_what_a_gaussian_process_can_do() -> None:
    space: dict[str, dict[str, Any]] = {"x": {"low": 0.0, "high": 1.0}}
    known = [{"values": {"x": 0.5}, "metrics": {"metric_0": 1.0}}] * 10
    study_spec(space, "gp", budget={"trials": 990}, known=known)
    with pytest.raises(ValidationError, match="1000 trials, the 10 of `known` among them,"):
        study_spec(space, "gp", budget={"trials": 991}, known=known)
