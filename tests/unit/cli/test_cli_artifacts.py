"""Artifacts on the command line: those of a job in `trainhouse status`, and the room that `trainhouse artifact put` needs."""

from typing import Any

import pytest

from trainhouse.cli.artifacts.storage_room import check_room
from trainhouse.cli.jobs.job_artifacts import MOST_LINES, artifacts_of, lines
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.client.errors import NotReachableError, QueryError
from trainhouse.client.sql import Table

SHA = "1f0c93ab42d1" + "0" * 52  # pragma: allowlist secret
GIB = 1 << 30


def row(name: str, action: str = "stored", kind: str = "tokenizer", size_bytes: int = 1_300_000) -> dict[str, Any]:
    return {"action": action, "name": name, "sha256": SHA, "kind": kind, "size_bytes": size_bytes, "files": 1}


def test_each_version_has_a_line() -> None:
    assert lines([row("bpe-32k"), row("gpt", "used", "model", 5 * GIB), row("empty", size_bytes=0)]) == [
        ("stored", "bpe-32k@1f0c93ab42d1  tokenizer, 1.2 MiB"),
        ("used", "gpt@1f0c93ab42d1  model, 5.0 GiB"),
        ("stored", "empty@1f0c93ab42d1  tokenizer, 0 B"),
    ]


def test_lines_fit_80_columns_whatever_names_there_are() -> None:
    shown = lines([row("n" * 128, kind="k" * 32, size_bytes=1 << 60), row("n" * 60)])
    assert all(len(f"{name:<12}{text}") <= 80 for name, text in shown)
    assert shown[0][1].startswith("nnn") and "…@1f0c93ab42d1  " in shown[0][1], "the hash and the kind stay"


def test_of_many_the_first_are_shown_and_the_others_counted() -> None:
    shown = lines([row(f"a{number}") for number in range(MOST_LINES + 3)])
    assert len(shown) == MOST_LINES + 1 and shown[-1] == ("", "and 3 more: `--json` has them")
    assert lines([]) == [] and lines(None) == []


class Client:
    def __init__(self, rows: list[dict[str, Any]] | None) -> None:
        self.rows = rows

    def artifacts(self, job_id: str) -> list[dict[str, Any]]:
        if self.rows is None:
            raise NotReachableError("no tables")
        return self.rows


def test_without_tables_they_are_not_known() -> None:
    assert artifacts_of(Client(None), "j-1") is None  # type: ignore[arg-type]
    assert artifacts_of(Client([]), "j-1") == []  # type: ignore[arg-type]


class Tables:
    def __init__(self, *rows: tuple[Any, ...], error: Exception | None = None) -> None:
        self.rows, self.error = rows, error

    def table(self, query: str, values: Any = None) -> Table:
        if self.error is not None:
            raise self.error
        assert values == {"project": "lm"}
        return Table(("storage_gib", "total_bytes"), self.rows)


@pytest.mark.parametrize("rows", [[], [(None, 5 * GIB)], [(2.0, GIB)], [(2.0, 2 * GIB - 10)]])
def test_what_fits_is_stored(rows: list[tuple[Any, ...]]) -> None:
    check_room(Tables(*rows), "lm", 10)  # type: ignore[arg-type]


@pytest.mark.parametrize(("used", "more"), [(2 * GIB, 1), (0, 3 * GIB), (3 * GIB, 10)])
def test_what_does_not_fit_is_refused_with_the_limit_and_the_way_out(used: int, more: int) -> None:
    with pytest.raises(CliError) as refused:
        check_room(Tables((2.0, used)), "lm", more)  # type: ignore[arg-type]
    text = str(refused.value)
    assert refused.value.code == Exit.REJECTED
    assert f"project lm has {used / GIB:.3g} GiB in the object store and may have 2, and" in text
    assert "delete artifacts" in text and "ask an operator for more" in text and text.endswith("nothing was stored")


def test_a_version_that_is_all_there_needs_no_room() -> None:
    check_room(Tables((2.0, 3 * GIB)), "lm", 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [NotReachableError("no tables"), QueryError("no such view")])
def test_where_the_tables_do_not_answer_the_limit_is_said_not_to_be_checked(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    check_room(Tables(error=error), "lm", 10)  # type: ignore[arg-type]
    assert "the storage limit of project lm is not checked: no" in capsys.readouterr().err
