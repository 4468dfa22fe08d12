"""Measured figures in `trainhouse status`: from the newest metrics, and none invented."""

from collections.abc import Sequence
from typing import Any

import pytest

from trainhouse.cli.jobs.measured_figures import figures, figures_of, lines
from trainhouse.client.errors import NotReachableError

NONE = {"gpu_utilization": None, "mfu": None, "tokens_per_s": None, "estimated_remaining_hours": None}


def row(metric: str, value: float | None) -> dict[str, Any]:
    return {"metric": metric, "step": 7, "value": value}


def test_figures_and_their_lines() -> None:
    found = figures(5400.0, [row("mfu", 0.412), row("system/device_utilization_pct", 87.0), row("tokens_per_s", 12345.6), row("loss", 1.0)])
    assert found == {"gpu_utilization": 0.87, "mfu": 0.412, "tokens_per_s": 12345.6, "estimated_remaining_hours": 1.5}
    assert lines(found) == [("GPU use", "87%"), ("MFU", "41.2%"), ("tokens", "12,346 tokens/s")]


def test_what_is_not_known_is_null_and_has_no_line() -> None:
    found = figures(None, [row("mfu", float("nan")), row("tokens_per_s", None)])
    assert found == NONE and lines(found) == []


class Tables:
    def __init__(self, rows: list[dict[str, Any]] | None) -> None:
        self.rows = rows

    def last_metrics(self, job_id: str, names: Sequence[str]) -> list[dict[str, Any]]:
        if self.rows is None:
            raise NotReachableError("no tables")
        return [row for row in self.rows if row["metric"] in names]


@pytest.mark.parametrize(
    ("state", "hours", "rows", "mfu"),
    [
        ("RUNNING", 0.5, [row("mfu", 0.3)], 0.3),
        ("RUNNING", 0.5, [row("mfu", 41.0)], 0.41),
        ("SUCCEEDED", None, [], None),
        ("RUNNING", 0.5, None, None),
    ],
)
def test_of_a_job(state: str, hours: float | None, rows: list[dict[str, Any]] | None, mfu: float | None) -> None:
    status = {"job_id": "j-1", "state": state, "step": 3, "eta_s": 1800.0}
    assert figures_of(Tables(rows), status) == NONE | {"mfu": mfu, "estimated_remaining_hours": hours}  # type: ignore[arg-type]
