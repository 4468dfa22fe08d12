"""Tables on a terminal of 80 columns: every word stays readable."""

from collections.abc import Callable

import pytest

from trainhouse.cli.jobs import job_table
from trainhouse.cli.shared import output

Captured = pytest.CaptureFixture[str]
WIDTH = 80
JOB = {
    "job_id": "train-1m8a3sg4r7yy7",
    "submission_id": "s",
    "name": "train",
    "state": "REJECTED",
    "user": "root",
    "project": "default",
    "world_size": 99,
    "step": 2000,
    "total_steps": 2000,
    "loss": 3.022e-12,
    "steps_per_s": 1194.0,
    "elapsed_s": 7.7,
    "submitted_at_ms": 1_795_635_855_000,
    "updated_at_ms": 0,
    "reason": "the gang can never be held: it needs 99 devices; pool default has 2 of type cpu in all",
}


def shown(capsys: Captured, show: Callable[[], None]) -> tuple[list[str], str]:
    """Runs `show` with a terminal of WIDTH columns as standard output; its lines that are not empty, and standard error."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout.isatty", lambda: True)
        patch.setenv("COLUMNS", str(WIDTH))
        patch.setenv("TERM", "dumb")
        show()
    printed = capsys.readouterr()
    return [line.rstrip() for line in printed.out.splitlines() if line.strip()], printed.err


def test_the_list_of_jobs_has_whole_words(capsys: Captured) -> None:
    lines, remarks = shown(capsys, lambda: job_table.show([JOB]))
    assert max(map(len, lines)) <= WIDTH
    for word in ("job", "state", "step", "reason", "train-1m8a3sg4r7yy7", "REJECTED", "2000/2000", "devices;"):
        assert any(word in line.split() for line in lines), word
    assert "user, project" in remarks, "a remark names the columns that are left out"


def test_a_table_that_cannot_fit_has_one_line_a_cell(capsys: Captured) -> None:
    names, rows = [f"column{i}" for i in range(12)], [[f"value-{i}-{row}" for i in range(12)] for row in range(2)]
    lines, _ = shown(capsys, lambda: output.table(names, rows, drop=()))
    assert lines[0].split() == ["column0", "value-0-0"]
    assert lines[-1].split() == ["column11", "value-11-1"]
    assert len(lines) == 24


def test_a_table_that_fits_has_one_line_a_row(capsys: Captured) -> None:
    lines, remarks = shown(capsys, lambda: output.table(("a", "b"), [("1", "2")]))
    assert [lines[0].split(), lines[-1].split()] == [["a", "b"], ["1", "2"]]
    assert not remarks


def test_cells_show_what_a_terminal_would_obey_as_escapes(capsys: Captured) -> None:
    output.table(("a", "b"), [("x\x1b[31mred\x1b]0;t\x07\nline2", "grün ✓")])
    printed = capsys.readouterr().out
    assert "x\\x1b[31mred\\x1b]0;t\\x07\\nline2" in printed and "grün ✓" in printed
