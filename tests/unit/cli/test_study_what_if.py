"""`trainhouse study what-if`: short forms of rules, tables of 80 columns, and JSON, over a study that the tuner's machine decided about."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.support.study_requests import PROJECT, STUDY, Tuner, study_spec
from tests.support.trial_facts import fact_rows
from tests.unit.cli.test_narrow_tables import shown
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.studies import study_commands
from trainhouse.cli.studies.what_if_report import other_rule
from trainhouse.client.studies.study_reads import StudyReads
from trainhouse.events import JobState
from trainhouse.events.model.study import EarlyStopping
from trainhouse.events.model.study_shorthand import spelled_out, stopping_fields, stopping_text

Captured = pytest.CaptureFixture[str]
OWN = EarlyStopping(min_step=10, max_step=90)
CURVES = {0: [0.9, 0.5, 0.2], 1: [0.8, 0.6], 2: [0.95], 3: [0.7, 0.4, 0.1]}
"""Of loss, at the steps 1, 3 and 9. Trials 1 and 2 were ended early."""


@pytest.mark.parametrize(
    ("text", "rule", "short"),
    [
        ("asha:4", EarlyStopping(reduction=4, min_step=10, max_step=90), "asha:4,min_step=10,max_step=90"),
        ("asha", EarlyStopping(min_step=10, max_step=90), "asha:3,min_step=10,max_step=90"),
        ("asha: 2, min_step=1", EarlyStopping(reduction=2, min_step=1, max_step=90), "asha:2,min_step=1,max_step=90"),
        (
            "median:7,max_step=30",
            EarlyStopping.model_validate({"name": "median", "min_trials": 7, "min_step": 10, "max_step": 30}),
            "median:7,min_step=10,max_step=30,reduction=3",
        ),
        ("none", EarlyStopping.model_validate({"name": "none", "min_step": 10, "max_step": 90}), "none"),
    ],
)
def test_a_rule_in_short_has_what_it_names_and_else_what_the_study_has(text: str, rule: EarlyStopping, short: str) -> None:
    assert other_rule(text, OWN) == rule
    assert stopping_text(rule.model_dump(mode="json")) == short
    assert other_rule(short, EarlyStopping()).name == rule.name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pbt", "name: Input should be 'none', 'asha' or 'median' (got 'pbt')"),
        ("asha:x", "reduction: Input should be a valid integer"),
        ("asha:1", "reduction: Input should be greater than or equal to 2 (got '1')"),
        ("none:3", "number: no such field"),
        ("asha:3,min_stop=4", "min_stop: no such field; did you mean 'min_step'?"),
        ("asha:3,min_step=100", "max_step = 90 is below min_step = 100"),
        ("", "name: Input should be"),
        ("asha:", "reduction: Input should be a valid integer"),
        ("median:²", "min_trials: Input should be a valid integer"),
    ],
)
def test_what_is_no_rule_is_refused_with_the_field_and_the_way_out(text: str, words: str) -> None:
    with pytest.raises(CliError) as caught:
        other_rule(text, OWN)
    assert words in str(caught.value) and "write asha:3" in str(caught.value) and caught.value.code is Exit.USAGE


def test_a_study_takes_the_same_short_forms() -> None:
    assert spelled_out({"early_stopping": "asha:4,min_step=2"})["early_stopping"] == {"name": "asha", "reduction": 4, "min_step": 2}
    assert stopping_fields("median") == {"name": "median"}


class Recorded(StudyReads):
    """Reads of a study that ended."""

    def study(self, project: str, name: str) -> Any:
        assert (project, name) == (PROJECT, STUDY)
        spec = study_spec(early_stopping=RULE, budget={"trials": 4}).model_dump(mode="json")
        return {"project": project, "study": name, "spec": spec, "metrics": ["loss"], "modes": ["min"]}

    def facts(self, project: str, name: str) -> Any:
        return fact_rows(tuner().decisions)


RULE = {"name": "asha", "min_step": 3, "max_step": 9}


def tuner() -> Tuner:
    """A study of four trials, of which the first logs all before the others begin."""
    made = Tuner()
    made.create(parallel=4, budget={"trials": 4}, early_stopping=RULE)
    made.fill()
    for trial, curve in CURVES.items():
        for step, loss in zip((1, 3, 9), curve, strict=False):
            made.log(trial, step, loss)
        stopped = len(curve) < 3
        if trial == 2:
            made.log(trial, 3, 0.94)
        made.job(trial, JobState.CANCELLED if stopped else JobState.SUCCEEDED, device_s=30.0 if stopped else 90.0)
    return made


def run(monkeypatch: pytest.MonkeyPatch, rule: str, *, json: bool = False) -> None:
    monkeypatch.setattr("trainhouse.client.studies.study_reads.study_reads", Recorded)
    study_commands.what_if(STUDY, rule, PROJECT, json, None)


def test_both_stand_beside_each_other_in_80_columns(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    lines, remarks = shown(capsys, lambda: run(monkeypatch, "asha:3,min_step=1"))
    assert max(map(len, lines)) <= 80, "\n".join(lines)
    rows = [line.split() for line in lines]
    assert ["device", "time", "4m", "3m40s"] in rows, "trial 2 ends at step 1 of 3, so after 10 s of its 30"
    assert ["trials", "stopped", "2", "2"] in rows
    assert ["best", "loss", "0.1", "(trial", "3)", "0.1", "(trial", "3)"] in rows
    [trial_2] = [row for row in rows if row[:1] == ["2"]]
    assert trial_2[:7] == ["2", "STOPPED", "STOPPED", "1", "0.95", "30s", "10s"]
    assert "UNKNOWN" not in remarks


def test_trials_that_ended_too_early_to_say_are_named_and_counted(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    lines, remarks = shown(capsys, lambda: run(monkeypatch, "none"))
    assert "2 UNKNOWN: trials 1, 2." in " ".join(remarks.split())
    assert any(line.split()[:5] == ["device", "time", "4m", "at", "least"] for line in lines), lines


def test_the_studys_own_rule_changes_nothing(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    lines, remarks = shown(capsys, lambda: run(monkeypatch, "asha"))
    assert "no trial would have ended otherwise" in remarks and len(lines) == 5


def test_json_has_the_study_and_a_line_for_each_trial(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    run(monkeypatch, "none", json=True)
    about, *trials = [orjson.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert about["recorded"]["best"] == {"trial": 3, "value": 0.1} and about["unknown"] == [1, 2] and about["doubtful"] == []
    assert (about["recorded"]["device_s"], about["recorded"]["stopped"], about["what_if"]["stopped"]) == (240.0, 2, 0)
    assert about["what_if"]["early_stopping"]["name"] == "none"
    assert [each["trial"] for each in trials] == [0, 1, 2, 3]
    assert trials[1]["what_if"] == {"state": None, "device_s": 30.0, "value": None} and trials[1]["stopped_at"] is None
    run(monkeypatch, "asha", json=True)
    _, *trials = [orjson.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["stopped_at"] and each["stopped_at"]["step"] for each in trials] == [None, 3, 3, None]
    assert "asha: 0.6 at step 3 is number 2 of 2" in trials[1]["stopped_at"]["why"]


def test_a_study_of_several_metrics_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Several(Recorded):
        def study(self, project: str, name: str) -> Any:
            found = super().study(project, name)
            return found | {"spec": found["spec"] | {"metrics": [{"name": "loss"}, {"name": "seconds"}]}}

    monkeypatch.setattr("trainhouse.client.studies.study_reads.study_reads", Several)
    with pytest.raises(CliError, match="for one metric, and the study has 2"):
        study_commands.what_if(STUDY, "asha", PROJECT, False, None)
