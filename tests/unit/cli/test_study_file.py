"""A study's file: what is read of it, and problems with their file, line and field."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.studies.study_file import WrittenStudy, read_study
from trainhouse.events.model.study_space import NumberKind

WHOLE = """\
name: digits
space:
  lr: {low: 1e-4, high: 0.1, log: true}
  layers: {low: 1, high: 8}
  width: {low: 16, high: 256, step: 16}
  opt: {choices: [adam, sgd]}
  momentum: {low: 0.0, high: 0.99, when: {opt: [sgd]}}
metrics: val_loss
sampler: tpe
early_stopping: {name: asha, min_step: 10, max_step: 270}
parallel: 4
budget: {trials: 24, device_s: 7200}
job:
  gang: 2
  hyperparameters: {epochs: 3}
  runtime:
    command: [python, train.py, --lr, "{lr}", --opt, "{opt}"]
"""


def read(folder: Path, text: str, name: str | None = None, project: str | None = None) -> WrittenStudy:
    path = folder / "study.yaml"
    path.write_text(text)
    return read_study(path, name, project, "ana")


def test_a_whole_file_becomes_a_spec_with_what_the_job_has_of_the_study(tmp_path: Path) -> None:
    written = read(tmp_path, WHOLE)
    assert (written.name, written.project) == ("digits", "default")
    spec = written.spec
    assert (spec.job.name, spec.job.user, spec.job.project, spec.job.gang.ranks) == ("digits", "ana", "default", 2)
    kinds = {name: parameter.kind for name, parameter in spec.space.items() if not parameter.choices}
    assert kinds == {"lr": NumberKind.FLOAT, "layers": NumberKind.INT, "width": NumberKind.INT, "momentum": NumberKind.FLOAT}
    assert spec.space["lr"].low == 1e-4 and spec.space["layers"].value_count == 8
    assert [each.name for each in spec.metrics] == ["val_loss"] and spec.sampler.name == "tpe"
    assert (spec.budget.trials, spec.budget.device_s, spec.early_stopping.reduction) == (24, 7200, 3)


def test_options_go_on_top_of_the_file(tmp_path: Path) -> None:
    written = read(tmp_path, WHOLE, "wide", "vision")
    assert (written.name, written.project, written.spec.job.name, written.spec.job.project) == ("wide", "vision", "wide", "vision")


@pytest.mark.parametrize(
    ("before", "after", "line", "part"),
    [
        ("low: 1, high: 8", "low: 9, high: 8", 4, "space.layers: low = 9 is above high = 8"),
        ("low: 1e-4", "low: 0.0", 3, "log needs low above 0"),
        ("[adam, sgd]", "[]", 6, "write `low` and `high`, or `choices`"),
        ("{opt: [sgd]}", "{opt: [rmsprop]}", 7, "opt is never rmsprop"),
        ("{opt: [sgd]}", "{lr: [0.1]}", 7, "no parameter of choices before it"),
        ("budget: {trials: 24, device_s: 7200}", "budget: {}", 12, "name at least one bound"),
        ("trials: 24", "trials: 0", 12, "budget.trials: Input should be greater than or equal to 1"),
        ("sampler: tpe", "sampler: grid", 3, "space.lr: a grid needs parameters whose values can be counted"),
        ("sampler: tpe", "sampler: best", 9, "sampler.name"),
        ("sampler: tpe", "sampler: gp", 7, "space.momentum.when: gp takes no conditional parameters"),
        ("metrics: val_loss", "metrics: [val_loss, time]", 10, "early_stopping is for one metric"),
        ("metrics: val_loss", "metric: val_loss", 8, "metric: no such field; did you mean 'metrics'?"),
        ("parallel: 4", "parallel: 4\nenqueue: [{}, {lr: 2.0}]", 12, "enqueue.1: lr = 2.0 is not between 0.0001 and 0.1"),
        ("parallel: 4", "parallel: 4\nenqueue: [{opt: rmsprop}]", 12, "enqueue.0: opt = 'rmsprop' is none of its choices"),
        ("parallel: 4", "parallel: 4\nenqueue: [{width: 17}]", 12, "enqueue.0: width = 17 is not on its step: the nearest value is 16"),
        ('"{opt}"', '"{momentum}"', 17, "{momentum}, which not every trial has (space.momentum.when)"),
        ('"{opt}"', '"{optimizer}"', 17, "{optimizer}, which is neither in `space` nor in job.hyperparameters"),
        ("{epochs: 3}", "{lr: 3}", 3, "lr is in `space` and in job.hyperparameters"),
        ("gang: 2", "gangs: 2", 14, "job.gangs: no such field; did you mean 'gang'?"),
        ("gang: 2", "gang: 2\n  project: vision", 15, "job.project is vision, and the study's project is default; leave it out"),
        ("name: digits", "name: [a]", 1, "name: "),
        ("name: digits", "name: a/b", 1, "name: "),
        ("parallel: 4", "parallel: 4\nparallel: 5", 12, "parallel is given twice"),
        ("  runtime:\n    command:", "  runtimes:\n    command:", 13, "job.runtime: required, but missing"),
    ],
)
def test_a_problem_has_its_file_its_line_and_its_field(tmp_path: Path, before: str, after: str, line: int, part: str) -> None:
    assert before in WHOLE
    with pytest.raises(CliError) as caught:
        read(tmp_path, WHOLE.replace(before, after, 1))
    assert caught.value.code is Exit.USAGE
    found = [each for each in str(caught.value).splitlines() if part in each]
    assert found and f"study.yaml:{line}: " in found[0], str(caught.value)


def test_a_study_has_a_name(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="use --name"):
        read(tmp_path, WHOLE.replace("name: digits\n", ""))
    assert read(tmp_path, WHOLE.replace("name: digits\n", ""), "typed").name == "typed"


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(CliError) as caught:
        read_study(tmp_path / "none.yaml", None, None, "ana")
    assert caught.value.code is Exit.NOT_FOUND
