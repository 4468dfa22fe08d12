"""`models drift` on a terminal of 80 columns: a line a field and a line a window, names escaped."""

from typing import Any

import pytest

from tests.unit.cli.test_narrow_tables import WIDTH, shown
from trainhouse.cli.models.drift_command import show_fields, show_quality

Captured = pytest.CaptureFixture[str]
FIGURES = {"psi": 12.3456, "psi_limit": 0.1, "ks": 0.05, "ks_limit": 0.1, "wasserstein": 1.5, "wasserstein_limit": 0.2}


def field(name: str, verdict: str = "DRIFTED", reason: str = "", **figures: Any) -> dict[str, Any]:
    return {"side": "input", "field": name, "verdict": verdict, "reason": reason} | dict.fromkeys(FIGURES) | figures


def test_each_field_has_one_line_with_the_limits_that_it_exceeds(capsys: Captured) -> None:
    fields = [
        field("json.customer_age_in_years_at_the_time_of_the_order", reason="PSI 12.346", **FIGURES),
        field("json.\x1b[2Jname", "MISSING"),
    ]
    lines, _ = shown(capsys, lambda: show_fields(fields))
    header, long, short, reason = lines
    assert header.split() == ["side", "field", "verdict", "PSI", "KS", "W"] and max(map(len, (header, long, short))) <= WIDTH
    assert long.split()[2:] == ["DRIFTED", "12.35", ">", "0.10", "0.050", "1.50", ">", "0.20"]
    assert short.split() == ["input", r"json.\x1b[2Jname", "MISSING"]
    assert reason == f"input {fields[0]['field']}: PSI 12.346"


def test_a_window_has_its_figures_beside_offline_and_champion(capsys: Captured) -> None:
    row = {"start_ms": 1_795_635_855_000, "end_ms": 1_795_639_455_000, "metric": "accuracy", "labels": 200, "live": 0.8, "live_low": 0.75}
    more = {"live_high": 0.85, "offline": 0.9, "offline_low": None, "offline_high": None, "champion": 2, "champion_live": 0.81}
    lines, _ = shown(capsys, lambda: show_quality([row | more, row | more | {"offline": None, "champion_live": None}]))
    assert max(map(len, lines)) <= WIDTH
    assert lines[1].split()[-5:] == ["200", "0.8", "±0.05", "0.9", "0.81"]
    assert lines[2].split()[-3:] == ["200", "0.8", "±0.05"]
