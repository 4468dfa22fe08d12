"""Drift of a window of live predictions against the reference of a model's version, as its event has it. Pure.

Holds: statistics and limits are those of `drift.py`; all observations of a window are measured together. Figures are within the bounds of
the event, whatever numbers they are of; a verdict is by what was measured.
"""

from collections.abc import Sequence
from math import isnan
from typing import Any

from trainhouse.events.model.model_observations import LiveFieldFigures, LiveSide, ObservedRows
from trainhouse.workers.data.drift.version_drift import merged_profile
from trainhouse.workers.evaluation.drift import LiveFieldDrift, LiveLimits, ProfiledRows, live_drift


def observed_drift(reference: ObservedRows, live: Sequence[ObservedRows], limits: LiveLimits | None = None) -> tuple[LiveFieldFigures, ...]:
    """Figures of each field of either side, sorted by side and name. `live`: the observations of one window."""
    keys = {key for part in live for key in part.profiles}
    together = {key: merged_profile([part.profiles[key] for part in live if key in part.profiles]) for key in keys}
    found = live_drift(
        ProfiledRows(reference.count, {_joined(*key): each for key, each in reference.profiles.items()}),
        ProfiledRows(sum(part.count for part in live), {_joined(*key): each for key, each in together.items()}),
        limits,
    )
    return tuple(_figures(each) for each in found)


def _joined(side: LiveSide, field: str) -> str:
    return f"{side.value}:{field}"


def _figures(drift: LiveFieldDrift) -> LiveFieldFigures:
    side, _, field = drift.field.partition(":")
    found: dict[str, Any] = {"side": side, "field": field, "verdict": drift.verdict, "reason": drift.reason}
    numbers = drift.numbers
    measures = {} if numbers is None else {"psi": numbers.psi, "ks": numbers.ks, "wasserstein": numbers.wasserstein}
    for name, each in measures.items():
        if not isnan(each.value):  # a distance of numbers so far apart that it has none
            found |= {name: each.value, f"{name}_limit": each.limit}
    return LiveFieldFigures.model_validate(found)
