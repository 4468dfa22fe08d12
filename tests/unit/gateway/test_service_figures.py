"""Figures of versions in service, folded from rows of the tables' views: pooled means, words against offline, drift over windows."""

from typing import Any

import numpy as np
import pytest

from trainhouse.gateway.models.service_figures import LEAST_LABELS, Mean, against_offline, drift_of, pooled, quality_of

RNG = np.random.default_rng(3)
HOUR_MS = 3_600_000


def mean_of(values: Any) -> Mean:
    error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    return Mean(len(values), float(np.mean(values)), error)


def test_a_mean_over_windows_is_that_of_all_their_labels() -> None:
    parts = [RNG.normal(0.8, 0.1, 50), RNG.normal(0.6, 0.2, 3), np.array([0.1]), np.array([0.5, 0.5])]
    together, expected = pooled([mean_of(each) for each in parts]), mean_of(np.concatenate(parts))
    assert together.labels == 56 and together.value == pytest.approx(expected.value) and together.error == pytest.approx(expected.error)
    assert pooled([mean_of([0.4])]) == Mean(1, 0.4, None), "one label has no interval"


@pytest.mark.parametrize(
    ("live", "lower", "margin", "word"),
    [
        (0.86, False, 0.0, "as offline"),
        (0.80, False, 0.0, "worse than offline"),
        (0.80, False, 0.1, "as offline"),
        (0.99, False, 0.1, "better than offline"),
        (0.99, True, 0.0, "worse than offline"),
        (0.80, True, 0.1, "better than offline"),
    ],
)
def test_a_live_figure_has_a_word_for_how_it_stands_to_the_offline_one(live: float, lower: bool, margin: float, word: str) -> None:
    assert against_offline(Mean(400, live, 0.02), 0.88, 0.87, 0.89, lower, margin) == word


def test_what_cannot_be_compared_has_its_reason() -> None:
    assert against_offline(Mean(400, 0.5, 0.01), None, None, None, False, 0.0) == "no offline figure"
    assert against_offline(Mean(LEAST_LABELS - 1, 0.5, 0.01), 0.9, None, None, False, 0.0) == "too few labels"
    assert against_offline(Mean(LEAST_LABELS, 1.0, 0.0), 1.0, None, None, False, 0.0) == "as offline"


def window(version: int, n: int, live: float, labels: int = 40, **more: Any) -> dict[str, Any]:
    about = {"version": version, "metric": "accuracy", "start_ms": n * HOUR_MS, "end_ms": (n + 1) * HOUR_MS, "labels": labels, "live": live}
    figures = {"low": live - 0.0196, "high": live + 0.0196, "offline": 0.9, "offline_low": 0.88, "offline_high": 0.92}
    return about | figures | {"lower_is_better": 0, "evaluation_id": f"e-{version}", "suite": "held-out"} | more


def test_staging_stands_beside_the_champion_of_the_same_windows() -> None:
    rows = [window(1, 1, 0.5), window(1, 2, 0.8), window(1, 3, 0.9), window(4, 2, 0.85), window(4, 3, 0.95), window(4, 9, 0.1, labels=1)]
    champion, staging = quality_of(rows, 1, {"accuracy": 0.02}, [1, 4])
    assert (champion["version"], champion["labels"], champion["windows"]) == (1, 120, 3) and champion["champion_live"] is None
    assert champion["live"] == pytest.approx((0.5 + 0.8 + 0.9) / 3) and champion["against_offline"] == "worse than offline"
    assert (staging["version"], staging["champion_live"]) == (4, pytest.approx(0.85)), "hours 2 and 3 alone"
    assert staging["low"] < staging["live"] < staging["high"] and staging["offline"] == 0.9 and staging["margin"] == 0.02
    assert staging["series"]["ends_ms"] == [3 * HOUR_MS, 4 * HOUR_MS, 10 * HOUR_MS] and staging["series"]["live"] == [0.85, 0.95, 0.1]
    assert quality_of(rows, None, {}, [4])[0]["champion_live"] is None


def test_overlapping_windows_and_one_label_are_figures_too() -> None:
    rows = [window(1, 1, 0.5, labels=1, low=None, high=None), window(1, 1, 0.7, end_ms=9 * HOUR_MS)]
    [row] = quality_of(rows, 1, {}, [1])
    assert row["labels"] == 41 and row["series"]["low"][0] is None and row["against_offline"] == "worse than offline"
    [row] = quality_of(rows[:1], 1, {}, [1])
    assert (row["live"], row["low"], row["high"], row["against_offline"]) == (0.5, None, None, "too few labels")


def measured(n: int, field: str, verdict: str, side: str = "input", **figures: Any) -> dict[str, Any]:
    of_window = {"start_ms": n * HOUR_MS, "end_ms": (n + 1) * HOUR_MS, "predictions": 100 + n, "measured_at_ms": n}
    reference = {"reference": "validation", "reference_count": 5000, "reason": f"{field} {n}"}
    names = ("psi", "psi_limit", "ks", "ks_limit", "wasserstein", "wasserstein_limit")
    return of_window | reference | {"side": side, "field": field, "verdict": verdict} | dict.fromkeys(names) | figures


def test_fields_have_their_figures_by_window_and_those_that_drifted_come_first() -> None:
    rows = [
        measured(1, "age", "STABLE", psi=0.01, psi_limit=0.1),
        measured(1, "gone", "STABLE"),
        measured(2, "age", "DRIFTED", psi=0.31, psi_limit=0.12),
        measured(2, "city", "MISSING"),
        measured(2, "label", "STABLE", side="output", psi=0.02, psi_limit=0.2),
    ]
    found = drift_of(4, rows)
    assert found is not None and (found["version"], found["reference"], found["reference_count"]) == (4, "validation", 5000)
    assert [(each["end_ms"], each["predictions"]) for each in found["windows"]] == [(2 * HOUR_MS, 101), (3 * HOUR_MS, 102)]
    assert [(each["side"], each["field"], each["verdict"]) for each in found["fields"]] == [
        ("input", "age", "DRIFTED"),
        ("input", "city", "MISSING"),
        ("input", "gone", None),
        ("output", "label", "STABLE"),
    ]
    age, _, gone, label = found["fields"]
    assert age["verdicts"] == ["STABLE", "DRIFTED"] and age["psi"] == [0.01, 0.31] and age["psi_limit"] == [0.1, 0.12]
    assert age["reason"] == "age 2" and gone["verdicts"] == ["STABLE", None] and gone["reason"] == ""
    assert label["verdicts"] == [None, "STABLE"] and label["psi"] == [None, 0.02]
    assert drift_of(4, []) is None
