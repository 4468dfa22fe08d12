"""`data join`: files in, a file out, with errors that say what to change."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
import typer

from trainhouse.cli.data.join_command import join
from trainhouse.cli.shared.exit_codes import CliError

LABELS = "user,time,clicked\na,2026-01-02T00:00:00.000000001,1\na,2026-01-01T12:00:00,0\nb,2026-01-02T00:00:00,1\n"
FEATURES = '{"user": "a", "time": "2026-01-02T00:00:00.000000002", "age": 31}\n{"user": "a", "time": "2026-01-01T12:00:00", "age": 30}\n'


def run(labels: Path, features: Path, out: Path, **more: object) -> None:
    defaults = {"label_time": "time", "feature_time": "time", "by": ["user"], "strictly": False, "max_age": None, "time_as": "feature_time"}
    join(labels, features, out, **(defaults | more))  # type: ignore[arg-type]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    (labels := tmp_path / "labels.csv").write_text(LABELS)
    (features := tmp_path / "features.jsonl").write_text(FEATURES)
    return labels, features


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_a_value_that_is_a_nanosecond_late_is_not_taken(files: tuple[Path, Path], tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"out.{ending}"
    run(*files, out)
    read = {"parquet": pl.read_parquet, "csv": pl.read_csv, "jsonl": pl.read_ndjson}[ending]
    assert read(out)["age"].to_list() == [30, 30, None]


def test_options_are_taken(files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.parquet"
    run(*files, out, strictly=True)
    assert pl.read_parquet(out)["age"].to_list() == [30, None, None]
    run(*files, out, max_age="12h")
    assert pl.read_parquet(out)["age"].to_list() == [None, 30, None]
    assert "1 with features, 2 without any that were known" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "why"),
    [({"label_time": "at"}, "the labels have no column at"), ({"max_age": "5"}, "a duration"), ({"max_age": "x"}, "length")],
)
def test_what_cannot_be_joined_is_refused(files: tuple[Path, Path], tmp_path: Path, more: dict[str, object], why: str) -> None:
    with pytest.raises((CliError, typer.Exit), match=why):
        run(*files, tmp_path / "out.csv", **more)


def test_files_of_other_kinds_are_refused(files: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(CliError, match="that ends in"):
        run(*files, tmp_path / "out.xlsx")
    with pytest.raises(CliError, match="read are files that end in"):
        run(tmp_path / "labels.xlsx", files[1], tmp_path / "out.csv")
    with pytest.raises(CliError, match="nowhere"):
        run(tmp_path / "nowhere.csv", files[1], tmp_path / "out.csv")
