"""What a study spent, on what, and which bound comes next: as a document, and on a terminal."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.study_story import BEGAN_MS
from tests.unit.cli.test_narrow_tables import shown
from tests.unit.cli.test_table_widths import on_terminal
from trainhouse.cli.studies import study_why
from trainhouse.projections.study_spending import spending

Captured = pytest.CaptureFixture[str]
FIGURES = {
    "best": 0.4123,
    "trial": 7,
    "gain": 0.002,
    "from_device_s": 3600.0,
    "to_device_s": 5000.0,
    "gain_rate": 1.43e-06,
    "min_gain": 0.01,
    "within_device_s": 2000.0,
}
STUDY: dict[str, Any] = {
    "project": "speech-recognition",
    "study": "digits-with-wide-layers",
    "state": "RUNNING",
    "reason": "",
    "parallel": 4,
    "budget_trials": 40,
    "budget_device_s": 20_000.0,
    "budget_wall_s": 7200.0,
    "budget_cost": 40.0,
    "max_failed": 3,
    "currency": "USD",
    "price_per_gpu_hour": 18.0,
    "stagnation": FIGURES,
    "created_at_ms": BEGAN_MS,
    "updated_at_ms": BEGAN_MS + 60_000,
}


def cost(
    state: str, trials: int, device_s: float, amount: float | None, saved: tuple[float | None, float | None] = (None, None)
) -> dict[str, Any]:
    return {
        "state": state,
        "trials": trials,
        "device_s": device_s,
        "cost": amount,
        "saved_device_s": saved[0],
        "saved_cost": saved[1],
        "ran_trials": trials,
    }


COST = [
    cost("COMPLETE", 10, 3000.0, 15.0),
    cost("FAILED", 1, 100.0, 0.5),
    cost("RUNNING", 3, 200.0, 1.0),
    cost("STOPPED", 8, 600.0, 3.0, (1800.0, 9.0)),
    cost("WAITING", 1, 0.0, 0.0),
]
NOW_MS = BEGAN_MS + 3_600_000


def test_what_was_spent_is_the_sum_of_what_it_was_spent_on() -> None:
    found = spending(STUDY, COST, 400.0, NOW_MS)
    assert [(each["on"], each["trials"], each["device_s"], each["cost"]) for each in found["on"]] == [
        ("finished", 10, 3000.0, 15.0),
        ("stopped early", 8, 600.0, 3.0),
        ("failed", 1, 100.0, 0.5),
        ("running", 3, 400.0, 2.0),
        ("waiting", 1, 0.0, 0.0),
    ], "what the tuner has not seen of running trials has the price that holds now"
    assert found["spent"] == {"device_s": 4100.0, "cost": 20.5, "currency": "USD", "price_per_gpu_hour": 18.0}
    assert sum(each["share"] for each in found["on"]) == pytest.approx(1.0)
    assert found["saved"]["device_s"] == 1800.0 and found["saved"]["cost"] == 9.0
    assert found["saved"]["how"] == (
        "an estimate: each of 8 trials that were stopped early is taken to have gone on as long as the mean of 10 complete ones, "
        "300 device-seconds; what it had itself is left out"
    )
    assert found["reason"] == "no bound is reached: 3 of its trials run and 1 wait, at most 4 at the same time"


def test_the_bound_that_comes_next_is_the_first_at_the_pace_so_far() -> None:
    found = spending(STUDY, COST, 400.0, NOW_MS)
    bounds = {each["bound"]: each for each in found["bounds"]}
    assert {name: (each["used"], each["of"]) for name, each in bounds.items()} == {
        "trials": (23.0, 40),
        "device_s": (4100.0, 20_000.0),
        "cost": (20.5, 40.0),
        "wall_s": (3600.0, 7200.0),
        "failed": (1.0, 4),
        "stagnation": (1400.0, 2000.0),
    }
    assert found["next"] == found["bounds"][0]["bound"] == "stagnation"
    assert bounds["stagnation"]["expected_at_ms"] == NOW_MS + round(1000 * 600 / (4100 / 3600))
    assert bounds["wall_s"]["expected_at_ms"] == BEGAN_MS + 7_200_000, "exactly"
    assert bounds["cost"]["expected_at_ms"] == NOW_MS + round(1000 * 19.5 / (20.5 / 3600))
    ended = spending(STUDY | {"state": "ENDED", "reason": "stagnation: …"}, COST, None, NOW_MS)
    assert ended["next"] is None and ended["reason"] == "stagnation: …"
    assert [each["used"] for each in ended["bounds"] if each["bound"] == "wall_s"] == [60.0], "until it ended"


def test_without_prices_trials_or_complete_ones_it_is_said() -> None:
    fields = {"budget_cost": None, "price_per_gpu_hour": None, "currency": "", "stagnation": None, "budget_wall_s": None}
    found = spending(STUDY | fields, [], None, BEGAN_MS)
    assert found["spent"]["cost"] is None and found["on"] == [] and found["next"] is None
    assert found["saved"]["how"] == "nothing: no trial was stopped early"
    waits = spending(STUDY | {"price_per_gpu_hour": None}, [], None, NOW_MS)
    assert waits["reason"] == "no trial begins before the tuner knows the price of its devices"
    unknown = spending(STUDY, [cost("STOPPED", 2, 60.0, None)], None, NOW_MS)
    assert unknown["saved"]["device_s"] is None and "no complete trial" in unknown["saved"]["how"]


@pytest.mark.parametrize("width", [80, 100, 160])
def test_it_fits_a_terminal(capsys: Captured, width: int) -> None:
    document = spending(STUDY, COST, 400.0, NOW_MS)
    lines = on_terminal(capsys, width, lambda: study_why.show_why(document))
    assert max(map(len, lines)) <= width, "\n".join(lines)


def test_a_person_reads_what_was_spent_saved_and_comes_next(capsys: Captured) -> None:
    lines, _ = shown(capsys, lambda: study_why.show_why(spending(STUDY, COST, 400.0, NOW_MS)))
    text = " ".join(" ".join(lines).split())
    assert "spent: 1h8m of device time, 20.50 USD (a device's hour is 18.00 USD)" in text
    assert "finished 10 50m 73 % 15.00 USD" in text and "failed 1 1m40s 2 % 0.50 USD" in text
    assert "early stopping saved about 30m of device time, 9.00 USD; an estimate: each of 8 trials" in text
    assert "gained 0.002 over the last 1400 device-seconds of trials that ended, 1.43e-06 for each; asked for is at least 0.01" in text
    assert "next, at the pace since its creation: stagnation, about 2026-" in text
    assert "cost 20.50 USD 40.00 USD 51 %" in text


def test_a_study_without_prices_shows_no_money(capsys: Captured) -> None:
    fields = {"budget_cost": None, "price_per_gpu_hour": None, "currency": "", "stagnation": None}
    rows = [cost("COMPLETE", 1, 30.0, None)]
    lines, remarks = shown(capsys, lambda: study_why.show_why(spending(STUDY | fields, rows, None, NOW_MS)))
    assert not any("cost" in line for line in lines) and not remarks
    _, remarks = shown(capsys, lambda: study_why.show_why(spending(STUDY | fields, [], None, NOW_MS)))
    assert "no trial has begun" in remarks
