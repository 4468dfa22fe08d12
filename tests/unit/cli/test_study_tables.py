"""Studies and trials on terminals of 80, 100 and 160 columns, and what lines about them say."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.support.study_story import BEGAN_MS, DONE, WHY_FAILED, WHY_STOPPED
from tests.unit.cli.test_narrow_tables import shown
from tests.unit.cli.test_table_widths import on_terminal
from trainhouse.cli.shared.exit_codes import Exit, explain
from trainhouse.cli.studies import study_commands, study_tables
from trainhouse.client.errors import UnknownStudyError
from trainhouse.client.studies.study_reads import StudyReads

Captured = pytest.CaptureFixture[str]
PARAMETERS: dict[str, Any] = {"lr": 0.012345678, "opt": "adam", "nesterov": True}
BEST = {"trial": 3, "job_id": "study-digits-0123456789abcdef-3", "values": {"val_loss": 0.41234567}, "parameters": PARAMETERS}
STUDY: dict[str, Any] = {
    "project": "speech-recognition",
    "study": "digits-with-wide-layers",
    "state": "DRAINING",
    "reason": "24 trials have begun, as many as its budget has",
    "user": "somebody",
    "metrics": ["val_loss"],
    "modes": ["min"],
    "sampler": "tpe",
    "early_stopping": "asha",
    "parallel": 4,
    "budget_trials": 24,
    "budget_device_s": 7200.0,
    "budget_wall_s": 86_400.0,
    "budget_cost": 40.0,
    "spent_cost": 12.5,
    "currency": "USD",
    "trials": {"COMPLETE": 12, "STOPPED": 8, "FAILED": 1, "RUNNING": 3},
    "best": [BEST],
    "device_s": 5025.0,
    "created_at_ms": BEGAN_MS,
    "updated_at_ms": BEGAN_MS + 60_000,
    "cost": [{"state": "COMPLETE", "saved_device_s": None}, {"state": "STOPPED", "saved_device_s": 2400.0}],
}


def trial(number: int, state: str, value: float | None, reason: str = "", **parameters: Any) -> dict[str, Any]:
    return {
        "trial": number,
        "state": state,
        "metric": "val_loss",
        "value": value,
        "step": None if value is None else 270,
        "parameters": PARAMETERS | parameters,
        "best": number == 3,
        "job_id": f"study-digits-0123456789abcdef-{number}",
        "device_s": 212.5,
        "reason": reason,
    }


TRIALS = [
    trial(0, "COMPLETE", 0.7, DONE),
    trial(1, "STOPPED", 0.9, WHY_STOPPED, momentum=0.9),
    trial(2, "FAILED", None, WHY_FAILED),
    trial(3, "COMPLETE", 0.41234567),
    trial(4, "WAITING", None),
]


@pytest.mark.parametrize("width", [80, 100, 160])
def test_the_list_of_studies_fits_and_has_names_states_and_the_best(capsys: Captured, width: int) -> None:
    other = STUDY | {"study": "pareto", "project": "default", "metrics": ["val_loss", "seconds"], "best": [BEST, BEST], "state": "ENDED"}
    lines = on_terminal(capsys, width, lambda: study_tables.show_studies([STUDY, other]))
    assert max(map(len, lines)) <= width, "\n".join(lines)
    words = " ".join(lines).split()
    assert {"digits-with-wide-layers", "DRAINING", "21/24", "0.4123", "pareto", "ENDED"} <= set(words), lines
    assert len(lines) == 3, "a line a study"


@pytest.mark.parametrize("width", [80, 100, 160])
def test_trials_fit_and_have_states_values_and_parameters(capsys: Captured, width: int) -> None:
    lines = on_terminal(capsys, width, lambda: study_tables.show_trials(TRIALS))
    assert max(map(len, lines)) <= width, "\n".join(lines)
    assert {"trial", "state", "val_loss", "lr", "opt"} <= set(lines[0].split()), lines[0]
    rows = [line.split() for line in lines]
    assert ["3", "*", "COMPLETE", "0.4123"] in [row[:4] for row in rows], lines
    assert any(row[:2] == ["4", "WAITING"] for row in rows)
    assert "exited" not in lines[1], "that it succeeded is no reason for anything"
    assert "0.01235" in " ".join(lines) and "adam" in " ".join(lines)


def test_at_80_columns_it_is_said_what_is_left_out(capsys: Captured) -> None:
    _, remarks = shown(capsys, lambda: study_tables.show_trials(TRIALS))
    assert "leave no room for" in remarks and "job" in remarks and "* the best" in remarks


def test_a_study_says_how_far_it_is(capsys: Captured) -> None:
    lines, _ = shown(capsys, lambda: study_tables.show_study(STUDY))
    assert max(map(len, lines)) <= 80
    text = " ".join(" ".join(lines).split())
    assert "val_loss (min); sampler tpe; early stopping by asha; 4 at the same time" in text
    assert "trials: 21/24 ended; 12 COMPLETE, 8 STOPPED, 1 FAILED, 3 RUNNING" in text
    assert "device time: 1h23m of 2h; early stopping saved about 40m" in text
    assert "DRAINING: 24 trials have begun, as many as its budget has" in text
    assert "cost of ended trials: 12.50 USD of 40.00 USD" in text
    without, _ = shown(capsys, lambda: study_tables.show_study(STUDY | {"budget_cost": None, "spent_cost": None, "currency": ""}))
    assert not any("cost" in line for line in without)


def test_counts_are_those_of_the_trials_that_are_shown_with_them() -> None:
    shown = study_tables.as_of_trials(STUDY, TRIALS)
    assert shown["trials"] == {"COMPLETE": 2, "STOPPED": 1, "FAILED": 1, "WAITING": 1} and shown["device_s"] == 5 * 212.5


def test_the_best_has_its_values_as_people_write_them(capsys: Captured) -> None:
    lines, _ = shown(capsys, lambda: study_tables.show_best(STUDY | {"best": [BEST | {"parameters": PARAMETERS | {"drop": None}}]}))
    assert lines[0].startswith("trial 3: val_loss 0.4123  (job study-digits-")
    assert [line.strip() for line in lines[1:]] == ["lr: 0.012345678", "opt: adam", "nesterov: true", "drop: null"]


def test_progress_is_one_line_with_the_best_and_the_counts() -> None:
    line = study_tables.progress(STUDY)
    assert line == (
        "DRAINING: 24 trials have begun, as many as its budget has  12 COMPLETE, 8 STOPPED, 1 FAILED, 3 RUNNING; "
        "best val_loss 0.4123 (trial 3); device time 1h23m"
    )
    assert (
        study_tables.progress(STUDY | {"best": [], "trials": {}, "reason": "", "state": "RUNNING"})
        == "RUNNING  none yet; device time 1h23m"
    )
    assert "2 trials that no other one beats" in study_tables.progress(STUDY | {"best": [BEST, BEST]})


def test_the_best_come_first_and_those_without_a_value_last() -> None:
    chosen = [row["trial"] for row in study_commands._chosen(TRIALS, "min", 4, best_first=True)]
    assert chosen == [3, 0, 1, 2]
    assert [row["trial"] for row in study_commands._chosen(TRIALS, "max", 2, best_first=True)] == [1, 0]
    assert [row["trial"] for row in study_commands._chosen(TRIALS, "min", 2, best_first=False)] == [3, 4], "the newest"


def test_a_parameter_may_be_called_as_a_column_is(capsys: Captured) -> None:
    rows = [trial(0, "COMPLETE", 0.7) | {"parameters": {"step": 0.5, "state": "wide"}}]
    lines = on_terminal(capsys, 160, lambda: study_tables.show_trials(rows))
    assert "step =" in lines[0] and "state =" in lines[0] and "wide" in lines[1]


def test_nothing_there_is_said(capsys: Captured) -> None:
    _, remarks = shown(capsys, lambda: study_tables.show_studies([]))
    assert "trainhouse study create" in remarks
    _, remarks = shown(capsys, lambda: study_tables.show_trials([]))
    assert "no trial has begun" in remarks


class _NoRows:
    def table(self, query: str, values: Any) -> Any:
        return self

    def dicts(self) -> list[Any]:
        return []


def test_a_study_that_is_not_there_is_named_with_the_way_out_and_an_exit_code_of_its_own() -> None:
    with pytest.raises(UnknownStudyError) as caught:
        StudyReads(sql=cast(Any, _NoRows())).study("vision", "lr")
    explained = explain(caught.value)
    assert explained is not None and explained.code is Exit.NOT_FOUND
    assert str(explained) == "project vision has no study lr; `trainhouse study list` shows what there is"


def test_reasons_are_no_wider_than_a_usual_terminal_where_there_is_none(capsys: Captured) -> None:
    reason = "asha: 0.98765 at step 270 is number 9 of 12 (min), of which 4 go on, from 0.41234; and more words about it than a line has"
    study_tables.show_study(STUDY | {"reason": reason})
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and reason.split(": ")[1] in " ".join(line.strip() for line in lines)
    study_tables.show_trials([trial(0, "FAILED", None, reason)])
    head, row = capsys.readouterr().out.splitlines()
    assert len(row) - head.index("reason") <= 60 and "asha: 0.98765 at step 270 is number 9 of 12 (min)" in row
