"""`models show` on a terminal of 80 columns: a line a version, whose approvals and results stay."""

from typing import Any

import pytest

from tests.unit.cli.test_narrow_tables import WIDTH, shown
from trainhouse.cli.models import registry_commands
from trainhouse.client.quick.quick_models import VersionRow

Captured = pytest.CaptureFixture[str]
JOB = "train-1m8a3sg4r7yy7"
EVALUATED_BY = "evaluate-digits-2-0123456789abcdef"


def version(number: int, jobs: tuple[str, ...] = (), approvers: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "version": number,
        "semver": f"1.{number}.0",
        "stage": "staging",
        "emergency": False,
        "job_id": JOB,
        "commit": 12,
        "registered_at_ms": 1_795_635_855_000,
        "registered_by": "somebody",
        "approvers": list(approvers),
        "evaluation_jobs": [{"job_id": each} for each in jobs],
    }


def test_a_version_keeps_its_evidence_beside_a_job_that_evaluates_it(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [VersionRow(version(1), 0), VersionRow(version(2, (EVALUATED_BY,), ("ana",)), 3)]
    monkeypatch.setattr(registry_commands, "_version_rows", lambda owner, model: rows)
    lines, remarks = shown(capsys, lambda: registry_commands.show("digits"))
    assert len(lines) == 3 and max(map(len, lines)) <= WIDTH
    assert all(word in lines[0] for word in ("version", "stage", "evaluations", "approved by", "evaluated by"))
    assert lines[2].split() == ["2", "staging", "3", "ana", EVALUATED_BY]
    assert "semver, checkpoint, registered, by" in remarks and "evaluat" not in remarks and "approved" not in remarks


def test_without_jobs_that_evaluate_there_is_no_column_of_them(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_commands, "_version_rows", lambda owner, model: [VersionRow(version(1, approvers=("ana",)), 1)])
    lines, _ = shown(capsys, lambda: registry_commands.show("digits"))
    assert len(lines) == 2 and len(lines[1]) <= WIDTH and "…" not in lines[1] and f"{JOB}@12" in lines[1]
    assert "evaluated by" not in lines[0] and lines[1].split()[-2:] == ["1", "ana"]
