"""The views of studies on the real engine: states of trials, values that count, what early stopping saved, and no value of `env`."""

from __future__ import annotations

from pathlib import Path

import orjson

from tests.support.study_story import DONE, WHY_FAILED, WHY_STOPPED, Story, spec_of, status_of, story
from tests.support.tables.alert_tables import tables_in
from trainhouse.events.model.study_decisions import StudyChanged, StudyPriced, StudyState, TrialBegan, TrialEnded, TrialState
from trainhouse.events.wire import topics


def test_views_say_what_the_tuner_decided(tmp_path: Path) -> None:
    told, other = story(), Story("vision", "digits")
    other.begin()
    with tables_in(tmp_path / "clickhouse") as tables:
        tables.put(topics.STUDY_HISTORY, told.decisions)
        tables.put(topics.STUDY_HISTORY, [*told.decisions[:7], *other.decisions])
        tables.put(topics.STUDIES, [status_of(told)])
        tables.put(topics.STUDIES, [told.status().model_copy(update={"number": 1})])
        studies = tables.ask("SELECT * FROM studies ORDER BY project", {})
        trials = tables.ask("SELECT * FROM trials WHERE project = 'default' AND study = 'digits' ORDER BY trial", {})
        values = tables.ask("SELECT trial, step, metric, value FROM trial_values ORDER BY trial, step", {})
        cost = {row["state"]: row for row in tables.ask("SELECT * FROM study_cost WHERE study = 'digits'", {})}
        rates = tables.ask(
            "SELECT trial FROM trials WHERE toFloat64(parameters['lr']) > 0.015 AND parameters['opt'] = 'adam' ORDER BY trial", {}
        )
        shown = tables.ask("SELECT * FROM studies_rows, study_facts", {})
    [study, begun] = studies
    assert (study["state"], study["user"], study["metrics"], study["modes"]) == ("RUNNING", "ana", ["val_loss"], ["min"])
    assert (study["sampler"], study["early_stopping"], study["parallel"]) == ("tpe", "asha", 2)
    assert (study["budget_trials"], study["budget_device_s"], study["budget_wall_s"]) == (6, None, None)
    assert study["trials"] == {"COMPLETE": 2, "STOPPED": 1, "FAILED": 1, "RUNNING": 1, "WAITING": 1}, "the newest status counts"
    assert (study["best"], study["device_s"]) == ([0], 255.0)
    assert (begun["project"], begun["state"], begun["trials"], begun["best"]) == ("vision", "RUNNING", {}, []), "it has no status yet"
    assert [(row["trial"], row["state"], row["value"], row["step"], row["best"]) for row in trials] == [
        (0, "COMPLETE", 0.4, 30, 1),
        (1, "COMPLETE", 0.5, 30, 0),
        (2, "STOPPED", 0.9, 10, 0),
        (3, "FAILED", None, None, 0),
        (4, "RUNNING", 0.65, 10, 0),
        (5, "WAITING", None, None, 0),
    ]
    assert [row["reason"] for row in trials] == [DONE, DONE, WHY_STOPPED, WHY_FAILED, "", ""]
    assert [row["stopped_early"] for row in trials] == [0, 0, 1, 0, 0, 0]
    assert trials[1]["parameters"] == {"lr": "0.02", "opt": "sgd", "nesterov": "true"}
    assert trials[1]["parameters_json"] == '{"lr":0.02,"opt":"sgd","nesterov":true}'
    assert trials[1]["values"] == {"val_loss": 0.5} and trials[1]["optuna"] == "4.6.0" and trials[1]["job_id"] == told.job_id(1)
    assert trials[4]["began_at"] is not None and trials[4]["ended_at"] is None and trials[5]["began_at"] is None
    assert values == [
        {"trial": trial, "step": step, "metric": "val_loss", "value": value}
        for trial, step, value in ((0, 10, 0.7), (0, 30, 0.4), (1, 10, 0.8), (1, 30, 0.5), (2, 10, 0.9), (4, 10, 0.65))
    ]
    assert (cost["COMPLETE"]["trials"], cost["COMPLETE"]["device_s"], cost["COMPLETE"]["saved_device_s"]) == (2, 220.0, None)
    assert (cost["STOPPED"]["device_s"], cost["STOPPED"]["saved_device_s"]) == (30.0, 80.0), "110 s is the mean of the complete ones"
    assert rates == [{"trial": 2}, {"trial": 3}]
    assert "/data/digits" not in str(shown) and "***" in study["spec"], "names of variables alone"


FIGURES = {
    "best": 0.4,
    "trial": 0,
    "gain": 0.01,
    "from_device_s": 100.0,
    "to_device_s": 400.0,
    "gain_rate": 0.01 / 300,
    "min_gain": 0.1,
    "within_device_s": 300.0,
}


def test_costs_and_the_figures_of_a_stop_are_in_sql(tmp_path: Path) -> None:
    told, plain = Story(spec=spec_of(budget={"cost": 12.5}, max_failed=4)), story("vision", "plain")
    told.begin()
    about = {"pool": "gpus", "policy_version": 3, "currency": "EUR"}
    told.decide(StudyPriced, price=36.0, **about)
    for trial in range(4):
        told.start(trial, 0.01)
    told.decide(StudyPriced, price=72.0, **about | {"policy_version": 4})
    told.decide(TrialEnded, trial=0, state=TrialState.COMPLETE, values={"val_loss": 0.4}, device_s=100.0, cost=1.0)
    told.decide(TrialEnded, trial=1, state=TrialState.COMPLETE, values={"val_loss": 0.5}, device_s=200.0, cost=4.0)
    told.decide(TrialEnded, trial=2, state=TrialState.STOPPED, values={"val_loss": 0.9}, device_s=50.0, cost=0.5)
    told.decide(TrialBegan, trial=3, device_s=10.0, cost=0.2)
    told.decide(StudyChanged, state=StudyState.DRAINING, reason="stagnation: …", stagnation=FIGURES)
    status = told.status(StudyState.DRAINING, reason="stagnation: …", cost=5.5, currency="EUR", price=72.0, stagnation=FIGURES)
    with tables_in(tmp_path / "clickhouse") as tables:
        tables.put(topics.STUDY_HISTORY, [*told.decisions, *plain.decisions])
        tables.put(topics.STUDIES, [status, status_of(plain)])
        studies = tables.ask("SELECT * FROM studies ORDER BY project", {})
        cost = tables.ask("SELECT * FROM study_cost WHERE project = 'default' ORDER BY state", {})
        unpriced = tables.ask("SELECT DISTINCT cost, currency, saved_cost FROM study_cost WHERE project = 'vision'", {})
        changes = tables.ask("SELECT * FROM study_changes WHERE project = 'default' ORDER BY number", {})
    [study, other] = studies
    assert (study["budget_cost"], study["cost"], study["currency"], study["price_per_gpu_hour"]) == (12.5, 5.5, "EUR", 72.0)
    assert study["max_failed"] == 4 and orjson.loads(study["stagnation_json"]) == FIGURES
    assert (other["budget_cost"], other["cost"], other["currency"], other["stagnation_json"]) == (None, None, "", "")
    assert [(row["state"], row["trials"], row["device_s"], row["cost"], row["currency"], row["saved_cost"]) for row in cost] == [
        ("COMPLETE", 2, 300.0, 5.0, "EUR", None),
        ("RUNNING", 1, 10.0, 0.2, "EUR", None),
        ("STOPPED", 1, 50.0, 0.5, "EUR", 2.0),
    ]
    assert unpriced == [{"cost": None, "currency": "", "saved_cost": None}]
    first, second, stop = changes
    assert [(row["change"], row["price_per_gpu_hour"], row["policy_version"]) for row in (first, second)] == [
        ("priced", 36.0, 3),
        ("priced", 72.0, 4),
    ]
    assert (first["pool"], first["currency"], first["gain"], stop["state"], stop["price_per_gpu_hour"]) == (
        "gpus",
        "EUR",
        None,
        "DRAINING",
        None,
    )
    names = {"gain_rate": "gain_per_device_s"}
    assert {name: stop[names.get(name, name)] for name in FIGURES} == FIGURES
