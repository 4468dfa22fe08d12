"""Drift of a dataset's version against an earlier one: the verdict on each field, and the event by which it is recorded.

Holds: what an event carries is bounded, the fields that changed most first.
"""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from trainhouse.events.model.absence import is_absent
from trainhouse.events.model.base import Event, Model
from trainhouse.events.model.bounds import MOST_RATIO, ComputedRatio, Count, ShortText, SmallCount, TimestampMs, cut_text
from trainhouse.events.model.dataset_names import DatasetName, FieldName
from trainhouse.events.model.default_project import DEFAULT_PROJECT
from trainhouse.events.model.labels import Label, Sha256

MOST_DRIFT_FIELDS: Final = 64
MOST_REASON_CHARS: Final = 512
MOST_NEW_VALUES: Final = 8


def _cut_reason(text: object) -> object:
    return cut_text(text[: MOST_REASON_CHARS - 1] + "…" if isinstance(text, str) and len(text) > MOST_REASON_CHARS else text)


Reason = Annotated[str, Field(max_length=MOST_REASON_CHARS), BeforeValidator(_cut_reason)]
Figure = Annotated[ComputedRatio, Field(ge=-MOST_RATIO, le=MOST_RATIO)]


class DriftVerdict(StrEnum):
    """Verdict on one field of a version, against an earlier one."""

    DRIFTED = "DRIFTED"
    """Its values are distributed otherwise, beyond the limits and beyond noise."""
    ADDED = "ADDED"
    REMOVED = "REMOVED"
    RETYPED = "RETYPED"
    """Its values have other types."""
    STABLE = "STABLE"
    TOO_FEW = "TOO_FEW"
    """One of the two versions has too few values of it."""
    UNKNOWN = "UNKNOWN"
    """One of the two versions was published without distributions."""


CHANGES: Final = frozenset({DriftVerdict.ADDED, DriftVerdict.REMOVED, DriftVerdict.RETYPED})


class FieldDrift(Model):
    """Drift of one field. A figure is absent where the field has none, as the KS statistic of texts."""

    field: FieldName = Field(description="extension of the member, or `json.` and the column")
    verdict: DriftVerdict = Field(description="DRIFTED, ADDED, REMOVED, RETYPED, STABLE, TOO_FEW or UNKNOWN")
    reason: Reason = Field("", description="figures beyond their limits, and other types or values")
    psi: Figure | None = Field(None, exclude_if=is_absent, description="population stability index, the largest of its distributions")
    psi_limit: Figure | None = Field(None, exclude_if=is_absent, description="value above which that is drift, at these sizes")
    ks: Figure | None = Field(None, exclude_if=is_absent, description="Kolmogorov-Smirnov statistic, the largest of its distributions")
    ks_limit: Figure | None = Field(None, exclude_if=is_absent, description="value above which that is drift, at these sizes")
    missing: Figure = Field(0.0, description="share of samples without it, 0 to 1")
    missing_before: Figure = Field(0.0, description="share of samples without it in the earlier version, 0 to 1")


class DatasetDriftMeasured(Event, type="trainhouse.dataset.drift-measured.v1"):
    """Comparison of a version with an earlier one of its dataset, made by its publisher."""

    dataset: DatasetName = Field(description="name of the dataset")
    project: Label = Field(DEFAULT_PROJECT, description="project that owns the dataset")
    sha256: Sha256 = Field(description="SHA-256 of the version's manifest, in hexadecimal")
    against_sha256: Sha256 = Field(description="SHA-256 of the earlier version's manifest, in hexadecimal")
    predecessor: bool = Field(False, description="whether the earlier one is its predecessor: the newest before it that is not deprecated")
    row_count: Count = Field(description="samples of the version")
    row_count_before: Count = Field(description="samples of the earlier version")
    fields: tuple[FieldDrift, ...] = Field((), max_length=MOST_DRIFT_FIELDS, description="fields, those that changed most first")
    fields_compared: SmallCount = Field(description="fields of either version, those left out above among them")
    fields_drifted: SmallCount = Field(description="fields that drifted")
    fields_changed: SmallCount = Field(description="fields that were added, removed, or have other types")
    user: ShortText = Field("unknown", description="user who published the version")
    at_ms: TimestampMs

    def subject(self) -> str:
        return self.dataset
