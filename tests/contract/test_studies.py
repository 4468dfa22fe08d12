"""The views of studies on the real engine: states of trials, values that count, what early stopping saved, and no value of `env`."""

from __future__ import annotations

from pathlib import Path

from tests.support.study_story import DONE, WHY_FAILED, WHY_STOPPED, Story, status_of, story
from tests.support.tables.alert_tables import tables_in
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
