"""`models drift` on a terminal of 80 columns: a line a field and a line a window, names escaped."""

from typing import Any

import pytest

from tests.unit.cli.test_narrow_tables import WIDTH, shown
from trainhouse.cli.models.drift_command import show_fields, show_quality, show_version

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


def test_what_is_known_of_the_version_fits_a_line_each(capsys: Captured) -> None:
    chosen = {"project": "vision", "model": "digits", "version": 12, "semver": "1.10.3", "stage": "champion"}
    data = "support-chats-of-all-languages@sha256:" + "c" * 64
    fresh = [{"age_days": 40.24, "data": data, "data_age_days": 100.4, "versions_behind": behind} for behind in (0, 1, 12)]
    window = field("age") | {"start_ms": 1_795_635_855_000, "end_ms": 1_795_639_455_000, "predictions": 1500}
    about = {"reference": f"{data}/train", "reference_count": 20_000_000}
    lines, _ = shown(capsys, lambda: show_version(chosen, fresh, [window | about]))
    assert max(map(len, lines)) <= WIDTH
    assert lines[:2] == ["version  vision/digits@12 (1.10.3), champion", "age      40.2 days"]
    ends = ("100.4 days old, the newest", "100.4 days old, 1 version behind", "100.4 days old, 12 versions behind")
    assert all(line.startswith("data     support-chats-of-all") and line.endswith(end) for line, end in zip(lines[2:5], ends, strict=True))
    assert lines[5].startswith("window   2026-") and lines[6].endswith("…, 20000000 samples")
    unknown = {"age_days": 0.0, "data": "", "data_age_days": None, "versions_behind": None}
    lines, _ = shown(capsys, lambda: show_version(chosen, [unknown], []))
    assert lines[2:] == ["data     not known"]


def test_a_long_reason_goes_on_in_a_second_line_between_words(capsys: Captured) -> None:
    reason = "PSI 0.512 is above 0.118, KS 0.281 is above 0.044, Wasserstein distance 0.671 is above 0.1; new values: Bergen"
    lines, _ = shown(capsys, lambda: show_fields([field("age", reason=reason, **FIGURES)]))
    assert max(map(len, lines)) <= WIDTH and " ".join(line.strip() for line in lines[2:]) == f"input age: {reason}"
