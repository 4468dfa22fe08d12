"""Projects as files and the roles of tokens: what is refused, with which line, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainhouse.cli.shared.exit_codes import CliError
from trainhouse.cli.stack.project_access import as_yaml, read
from trainhouse.cli.stack.token import role_for

MEMBERS = {"vision": {"ana": "maintainer", "bo": "submitter", "vera": "viewer"}, "speech": {"bo": "viewer"}}


def file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "vision.yaml"
    path.write_text(text)
    return path


def test_a_file_is_a_project_and_goes_back_to_a_file(tmp_path: Path) -> None:
    text = "name: vision\nmembers: {ana: maintainer}\npurposes:\n  defects: faults on the line\n  safety:\nlimits: {storage_gib: 5}\n"
    project, told = read(file(tmp_path, text))
    assert told == text and project.purposes["safety"].description == "" and project.limits.highest_priority == 1
    again, _ = read(file(tmp_path, as_yaml(project)))
    assert again == project


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("name: vision\nmembers:\n  ana: emperor\n", 3, "members.ana"),
        ("name: vision\n\nlimits:\n  highest_priority: 101\n", 4, "less than or equal to 100"),
        ("name: vision\nlimits:\n  storage: 5\n", 3, "no such field"),
        ("name: vision\nmember: {}\n", 2, "did you mean 'members'"),
        ("name: vision\nname: speech\n", 2, "given twice"),
        ("purposes: {a: b}\n", 1, "name: required"),
        ("name: vision\npurposes:\n  a: [1]\n", 3, "purposes.a"),
    ],
)
def test_a_fault_is_told_with_its_line(tmp_path: Path, text: str, line: int, told: str) -> None:
    with pytest.raises(CliError) as refused:
        read(file(tmp_path, text))
    assert f"vision.yaml:{line}:" in str(refused.value) and told in str(refused.value)


@pytest.mark.parametrize(
    ("sub", "projects", "wanted", "role"),
    [
        ("ana", ["vision"], None, "submitter"),
        ("vera", ["vision"], None, "viewer"),
        ("bo", ["vision", "speech"], None, "viewer"),
        ("bo", ["vision"], "viewer", "viewer"),
        ("eve", ["undeclared"], None, "submitter"),
        ("eve", ["vision"], "operator", "operator"),
        ("bot", ["*"], None, "submitter"),
    ],
)
def test_a_token_has_the_role_of_its_holders_memberships(sub: str, projects: list[str], wanted: str | None, role: str) -> None:
    assert role_for(sub, projects, wanted, MEMBERS) == role


@pytest.mark.parametrize(
    ("sub", "projects", "wanted", "told"),
    [
        ("vera", ["vision"], "submitter", "cannot be more"),
        ("bo", ["vision", "speech"], "submitter", "viewer of project speech"),
        ("eve", ["vision"], None, "no member of project vision"),
        ("eve", ["undeclared", "vision"], "viewer", "members add vision eve"),
    ],
)
def test_a_token_that_would_be_more_than_its_holder_is_not_made(sub: str, projects: list[str], wanted: str | None, told: str) -> None:
    with pytest.raises(CliError, match=told):
        role_for(sub, projects, wanted, MEMBERS)


def test_a_file_that_is_too_large_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    with pytest.raises(CliError) as refused:
        read(file(tmp_path, "name: vision\n" + "# a long story\n" * 4_000))
    assert "bytes, and at most 49152" in str(refused.value) and "nothing was sent" in str(refused.value)
