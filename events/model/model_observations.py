"""Observations of a model in service: its inputs, outputs and labels by window, the distribution they are compared with, and their drift.

Holds: sizes are bounded. An observation counts once by its event id, and an outcome once by its prediction's id, whichever window repeats
it: the newest value stays. Nothing is decided by an observation but what a rule of alerts makes of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field, StringConstraints, model_validator

from trainhouse.events.model.absence import is_absent
from trainhouse.events.model.asked import RequestedBy
from trainhouse.events.model.base import Model
from trainhouse.events.model.bounds import MOST_RATIO, ComputedRatio, Count, CutText, Reading, ShortText, SmallCount, TimestampMs
from trainhouse.events.model.dataset_names import FieldName
from trainhouse.events.model.dataset_profile import FieldProfile
from trainhouse.events.model.ids import EventId
from trainhouse.events.model.labels import Label
from trainhouse.events.model.model_names import VersionOrdinal
from trainhouse.events.model.model_registry import ModelEvent, UserName

MOST_INPUTS: Final = 64
MOST_OUTPUTS: Final = 16
MOST_OBSERVED_BINS: Final = 16_384
"""Of all histograms of one event together."""
MOST_OBSERVED_VALUES: Final = 2_048
MOST_OUTCOMES: Final = 5_000
MOST_OUTCOME_METRICS: Final = 16
MOST_WINDOW_MS: Final = 31 * 86_400_000
MOST_AHEAD_MS: Final = 300_000
"""How far ahead of the broker's clock a window may end: clocks differ."""

PredictionId = Annotated[str, StringConstraints(max_length=64, pattern=r"^[\x21-\x7e]{1,64}$")]
Outcomes = Annotated[dict[PredictionId, Reading], Field(max_length=MOST_OUTCOMES)]
Inputs = Annotated[dict[FieldName, FieldProfile], Field(max_length=MOST_INPUTS)]
Outputs = Annotated[dict[FieldName, FieldProfile], Field(max_length=MOST_OUTPUTS)]
DriftFigure = Annotated[ComputedRatio, Field(ge=-MOST_RATIO, le=MOST_RATIO)]


class _Profiled(ModelEvent):
    version: VersionOrdinal = Field(description="ordinal of the version")
    count: Count = Field(description="predictions, or samples, that the histograms are of")
    inputs: Inputs = Field(default_factory=dict, description="histograms of inputs by field, named as the reference names them")
    outputs: Outputs = Field(default_factory=dict, description="histograms of outputs by name")
    user: UserName = Field("unknown", description="who sends it")
    requested_by: RequestedBy | None = None

    @model_validator(mode="after")
    def _bounded(self) -> "_Profiled":
        profiles = [*self.inputs.values(), *self.outputs.values()]
        for name, each in (*self.inputs.items(), *self.outputs.items()):
            if any(sketch is not None and not sketch.count for sketch in (each.numbers, each.lengths)):
                raise ValueError(f"the histogram of {name} has bins without one number: leave it out, or count the numbers")
        bins = sum(len(sketch.bins) for each in profiles for sketch in (each.numbers, each.lengths) if sketch)
        values = sum(len(each.values.top) for each in profiles if each.values)
        if bins > MOST_OBSERVED_BINS:
            raise ValueError(f"the histograms have {bins} bins, at most {MOST_OBSERVED_BINS} together: give fewer fields or coarser bins")
        if values > MOST_OBSERVED_VALUES:
            raise ValueError(f"{values} values are counted, at most {MOST_OBSERVED_VALUES} together: give fewer fields or values")
        if (most := max((each.samples for each in profiles), default=0)) > self.count:
            raise ValueError(f"a histogram is of {most} samples, and count is {self.count}: count every prediction of the window")
        return self


class PredictionsObserved(_Profiled, type="trainhouse.model.predictions-observed.v1", public_input=True):
    """Predictions of a version in one window of time. Its event id makes it idempotent.

    Labels that come days later are a further observation of the same window with `count` 0, no histograms, and outcomes alone.
    """

    window_start_ms: TimestampMs = Field(description="first moment of the window, in milliseconds since 1970")
    window_end_ms: TimestampMs = Field(description="end of the window, not in it, in milliseconds since 1970")
    outcomes: Annotated[dict[Label, Outcomes], Field(max_length=MOST_OUTCOME_METRICS)] = Field(
        default_factory=dict,
        description="by metric, as evaluations name it, the value of each labelled prediction by its id, such as 1 where it was right; "
        f"at most {MOST_OUTCOMES} in all; the live figure is their mean",
    )
    lower_is_better: tuple[Label, ...] = Field(
        (), max_length=MOST_OUTCOME_METRICS, exclude_if=is_absent, description="metrics of which a smaller value is better"
    )

    @model_validator(mode="after")
    def _possible(self) -> "PredictionsObserved":
        length_ms = self.window_end_ms - self.window_start_ms
        if not 0 < length_ms <= MOST_WINDOW_MS:
            raise ValueError("a window ends after it begins, and is 31 days long at most: split it")
        labels = sum(map(len, self.outcomes.values()))
        if labels > MOST_OUTCOMES:
            raise ValueError(f"{labels} outcomes, and an event has {MOST_OUTCOMES} at most: send the rest as a further observation")
        if not (self.inputs or self.outputs or labels or self.count):
            raise ValueError("nothing was observed: give count, histograms or outcomes")
        return self

    def refusal(self, now_ms: int) -> str:
        """Returns why it does not count at this time of the brokers, or of a gateway; empty: it does."""
        if self.window_end_ms <= now_ms + MOST_AHEAD_MS:
            return ""
        ahead_s = (self.window_end_ms - now_ms) / 1000
        return (
            f"window_end_ms is {ahead_s:.0f} s ahead of now, more than clocks may differ ({MOST_AHEAD_MS // 1000} s): send it once it "
            "has ended, under a new id, and set the sender's clock"
        )


class ReferenceRecorded(_Profiled, type="trainhouse.model.reference-recorded.v1", public_input=True):
    """Distribution that live inputs and outputs of a version are compared with; a later one replaces it."""

    source: ShortText = Field(description="data that it is of, as NAME@sha256:…/SPLIT or evaluation:ID")

    @model_validator(mode="after")
    def _something(self) -> "ReferenceRecorded":
        if not (self.inputs or self.outputs):
            raise ValueError("a reference has histograms: give inputs, outputs or both")
        return self


class LiveVerdict(StrEnum):
    """Verdict on one field of live predictions."""

    DRIFTED = "DRIFTED"
    STABLE = "STABLE"
    TOO_FEW = "TOO_FEW"
    MISSING = "MISSING"
    """Live predictions, or the reference, have no such field."""


class LiveSide(StrEnum):
    """Side of a model that a field is on."""

    INPUT = "input"
    OUTPUT = "output"


@dataclass(frozen=True)
class ObservedRows:
    """Histograms of predictions, or of the samples of a reference, by side and field."""

    count: int
    profiles: Mapping[tuple[LiveSide, str], FieldProfile]


class LiveFieldFigures(Model):
    """Drift of one field. A figure is absent where the field has none, as the KS statistic of texts."""

    side: LiveSide = Field(description="input or output")
    field: FieldName = Field(description="name of the field")
    verdict: LiveVerdict = Field(description="DRIFTED, STABLE, TOO_FEW or MISSING")
    reason: CutText = Field("", description="figures beyond their limits, and other values")
    psi: DriftFigure | None = Field(None, exclude_if=is_absent, description="population stability index")
    psi_limit: DriftFigure | None = Field(None, exclude_if=is_absent, description="value above which that is drift, at these sizes")
    ks: DriftFigure | None = Field(None, exclude_if=is_absent, description="Kolmogorov-Smirnov statistic")
    ks_limit: DriftFigure | None = Field(None, exclude_if=is_absent, description="value above which that is drift, at these sizes")
    wasserstein: DriftFigure | None = Field(
        None, exclude_if=is_absent, description="Wasserstein distance, in standard deviations of the reference"
    )
    wasserstein_limit: DriftFigure | None = Field(None, exclude_if=is_absent, description="value above which that is drift, at these sizes")


class ModelDriftMeasured(ModelEvent, type="trainhouse.model.drift-measured.v1"):
    """Comparison of one window of a version with its reference; the process of alerts writes it, again where more of a window came."""

    version: VersionOrdinal = Field(description="ordinal of the version")
    window_start_ms: TimestampMs = Field(description="first moment of the window, in milliseconds since 1970")
    window_end_ms: TimestampMs = Field(description="end of the window, in milliseconds since 1970")
    observations: SmallCount = Field(description="observations of the window that had histograms")
    count: Count = Field(description="predictions of the window")
    reference_id: EventId = Field(description="event id of the reference")
    reference: ShortText = Field(description="data that the reference is of")
    reference_count: Count = Field(description="samples of the reference")
    fields: tuple[LiveFieldFigures, ...] = Field(max_length=2 * (MOST_INPUTS + MOST_OUTPUTS), description="fields, sorted by side and name")
    at_ms: TimestampMs
