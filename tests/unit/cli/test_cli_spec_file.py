"""Specs in YAML: errors name the line, numbers are what people wrote."""

from pathlib import Path

import pytest

from trainhouse.cli.jobs.spec_build import Typed, fields_of, specs_of
from trainhouse.cli.jobs.spec_file import MAX_SPEC_BYTES, SpecFile, read
from trainhouse.cli.shared.exit_codes import CliError, Exit

GOOD = """\
name: gpt
gang: 2
runtime:
  command: [python, train.py, --lr, "{lr}"]
hyperparameters:
  lr: 1e-3
  warmup: 10
limits:
  restarts: 1
"""


def specs(text: str, typed: Typed | None = None):  # type: ignore[no-untyped-def]
    file = SpecFile("spec.yaml", text)
    return specs_of(fields_of(typed or Typed(), file.data, "ada"), file)


def test_a_whole_spec() -> None:
    (spec,) = specs(GOOD)
    assert spec.gang.ranks == 2
    assert spec.user == "ada"
    assert spec.hyperparameters == {"lr": 0.001, "warmup": 10}
    assert isinstance(spec.hyperparameters["lr"], float)


def test_options_go_on_top_and_a_sweep_on_top_of_them() -> None:
    found = specs(GOOD, Typed(priority=3, restarts=7, hyperparameters=("warmup=20",), sweeps=("lr=0.1,0.2",)))
    assert [s.hyperparameters for s in found] == [{"lr": 0.1, "warmup": 20}, {"lr": 0.2, "warmup": 20}]
    assert {(s.priority, s.limits.restarts, s.name) for s in found} == {(3, 7, "gpt lr=0.1"), (3, 7, "gpt lr=0.2")}


def test_a_misspelt_key_is_told_with_its_line_and_its_neighbour() -> None:
    with pytest.raises(CliError) as caught:
        specs(GOOD.replace("restarts", "restart"))
    assert caught.value.code == Exit.USAGE
    assert "spec.yaml:9: limits.restart: no such field; did you mean 'restarts'?" in str(caught.value)


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(CliError) as caught:
        specs("gang: 0\npriority: 101\nruntime: {command: [x]}\n")
    assert "spec.yaml:1: gang.ranks" in str(caught.value)
    assert "spec.yaml:2: priority" in str(caught.value)


def test_a_missing_command_is_told() -> None:
    with pytest.raises(CliError, match=r"runtime\.command: required, but missing"):
        specs("name: x\nruntime: {}\n")


@pytest.mark.parametrize(
    ("text", "line"),
    [("a: [1\nb: 2\n", 2), ("a: 1\na: 2\n", 2), ("x: {a: 1, a: 2}\n", 1), ("a: b: c\n", 1)],
)
def test_broken_yaml_names_the_line(text: str, line: int) -> None:
    with pytest.raises(CliError, match=rf"spec\.yaml:{line}: .*no valid YAML"):
        SpecFile("spec.yaml", text)


@pytest.mark.parametrize("text", ["", "- a\n", "just text\n"])
def test_what_is_no_mapping_is_no_spec(text: str) -> None:
    with pytest.raises(CliError, match="no mapping"):
        SpecFile("spec.yaml", text)


def test_files_that_cannot_be_a_spec(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="cannot be read") as caught:
        read(tmp_path / "nothing.yaml")
    assert caught.value.code == Exit.NOT_FOUND
    large = tmp_path / "large.yaml"
    large.write_bytes(b"a" * (MAX_SPEC_BYTES + 1))
    with pytest.raises(CliError, match="at most"):
        read(large)
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CliError, match="no UTF-8"):
        read(binary)
