"""Figures of a model's versions in service: live quality beside the offline one, and drift by field over windows. Pure.

Holds: a figure over several windows is the mean over all their labelled predictions, with the interval of those; it follows from the
windows' own figures alone. A word about it is of 95 % intervals, and of the gate's margin where it is worse.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Row = Mapping[str, Any]

LEAST_LABELS: Final = 30
"""Fewer say little, as in rule `model-quality`."""
MOST_POINTS: Final = 200
"""Windows of a curve, the newest."""
_Z: Final = 1.96
_FIGURES: Final = ("psi", "psi_limit", "ks", "ks_limit", "wasserstein", "wasserstein_limit")
_GRAVEST: Final = {"DRIFTED": 0, "MISSING": 1, "TOO_FEW": 2, None: 3, "STABLE": 4}


@dataclass(frozen=True, slots=True)
class Mean:
    """Mean of so many labels and its standard error; None: of one label."""

    labels: int
    value: float
    error: float | None


def pooled(parts: Sequence[Mean]) -> Mean:
    """The mean of all labels of some parts, of which there is one at least."""
    labels = sum(each.labels for each in parts)
    value = math.fsum(each.labels * each.value for each in parts) / labels
    if labels < 2:
        return Mean(labels, value, None)
    within = math.fsum((each.labels - 1) * each.labels * (each.error or 0.0) ** 2 for each in parts)
    between = math.fsum(each.labels * (each.value - value) ** 2 for each in parts)
    return Mean(labels, value, math.sqrt((within + between) / (labels - 1) / labels))


def against_offline(live: Mean, offline: float | None, low: float | None, high: float | None, lower_is_better: bool, margin: float) -> str:
    """Compares a live figure with the offline one and its interval, in words."""
    if offline is None:
        return "no offline figure"
    if live.labels < LEAST_LABELS:
        return "too few labels"
    worse_by = live.value - offline if lower_is_better else offline - live.value
    noise = _Z * math.hypot(live.error or 0.0, 0.0 if low is None or high is None else (high - low) / (2 * _Z))
    if worse_by - margin > noise:
        return "worse than offline"
    return "better than offline" if -worse_by > noise else "as offline"


def quality_of(rows: Sequence[Row], champion: int | None, margins: Mapping[str, float], versions: Collection[int]) -> list[dict[str, Any]]:
    """A row a metric and version, in the order of `versions`, from rows of `model_quality`; with the champion's figure of the windows that
    a version shares with it."""
    by_key: dict[tuple[str, int], list[Row]] = {}
    for row in sorted(rows, key=lambda each: (each["end_ms"], each["start_ms"])):
        by_key.setdefault((row["metric"], row["version"]), []).append(row)
    found = []
    for metric in sorted({metric for metric, _ in by_key}):
        of_champion = {(each["start_ms"], each["end_ms"]): each for each in by_key.get((metric, champion or 0), ())}
        for version in versions:
            own = by_key.get((metric, version))
            if own:
                beside = of_champion if version != champion else {}
                found.append(_quality_row(own, beside, margins.get(metric, 0.0)))
    return found


def _quality_row(own: Sequence[Row], of_champion: Mapping[tuple[int, int], Row], margin: float) -> dict[str, Any]:
    live = pooled([_mean(each) for each in own])
    shared = [of_champion[key] for key in ((each["start_ms"], each["end_ms"]) for each in own) if key in of_champion]
    newest, half = own[-1], None if live.error is None else _Z * live.error
    offline = {name: newest[name] for name in ("offline", "offline_low", "offline_high", "evaluation_id", "suite")}
    lower = bool(newest["lower_is_better"])
    word = against_offline(live, newest["offline"], newest["offline_low"], newest["offline_high"], lower, margin)
    curve = own[-MOST_POINTS:]
    return {
        "metric": newest["metric"],
        "version": newest["version"],
        "lower_is_better": lower,
        "windows": len(own),
        "labels": live.labels,
        "live": live.value,
        "low": None if half is None else live.value - half,
        "high": None if half is None else live.value + half,
        "champion_live": pooled([_mean(each) for each in shared]).value if shared else None,
        "against_offline": word,
        "margin": margin,
        "series": {"ends_ms": [each["end_ms"] for each in curve]}
        | {name: [each[name] for each in curve] for name in ("live", "low", "high", "labels")},
    } | offline


def _mean(row: Row) -> Mean:
    return Mean(row["labels"], row["live"], None if row["high"] is None else (row["high"] - row["live"]) / _Z)


def drift_of(version: int, rows: Sequence[Row]) -> dict[str, Any] | None:
    """Fields of a version with their figures by window, oldest first, from rows of `drift`; those that drifted in the newest window come
    first. A field without a figure in a window has null there. None: nothing was measured."""
    if not rows:
        return None
    windows = sorted({(row["end_ms"], row["start_ms"]): row for row in rows}.items())
    places = {key: n for n, (key, _) in enumerate(windows)}
    by_field: dict[tuple[str, str], list[Row | None]] = {}
    for row in rows:
        of_field = by_field.setdefault((row["side"], row["field"]), [None] * len(windows))
        of_field[places[row["end_ms"], row["start_ms"]]] = row
    fields = [_drift_field(side, name, of_field) for (side, name), of_field in by_field.items()]
    newest = windows[-1][1]
    return {
        "version": version,
        "windows": [{name: row[name] for name in ("start_ms", "end_ms", "predictions")} for _, row in windows],
        "fields": sorted(fields, key=lambda each: (_GRAVEST.get(each["verdict"], 3), each["side"], each["field"])),
    } | {name: newest[name] for name in ("reference", "reference_count", "measured_at_ms")}


def _drift_field(side: str, name: str, of_field: Sequence[Row | None]) -> dict[str, Any]:
    newest = of_field[-1]
    about = {"verdict": newest["verdict"] if newest else None, "reason": newest["reason"] if newest else ""}
    figures = {figure: [row[figure] if row else None for row in of_field] for figure in _FIGURES}
    return {"side": side, "field": name} | about | {"verdicts": [row["verdict"] if row else None for row in of_field]} | figures
