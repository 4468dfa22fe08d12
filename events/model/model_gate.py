"""Gate of a model: what a version needs to become champion; and each condition as it was found, with its numbers.

Holds: without a gate of its own a model has the default one: one approval.
"""

from enum import StrEnum
from typing import Final

from pydantic import Field, model_validator

from trainhouse.events.model.absence import is_absent
from trainhouse.events.model.base import Model
from trainhouse.events.model.bounds import MOST_RATIO, ComputedRatio, CutText, ShortText
from trainhouse.events.model.dataset_names import SplitName, VersionReference
from trainhouse.events.model.gate_evaluation import MOST_EVALUATIONS, GateEvaluation
from trainhouse.events.model.labels import Label

MOST_SUITES: Final = 32
MOST_METRICS: Final = 256
MOST_CONDITIONS: Final = 1024
MOST_AGE_DAYS: Final = 3660


class AgainstChampion(StrEnum):
    """Verdict that a comparison with the champion has to reach."""

    BETTER = "better"
    NOT_WORSE = "not worse"


class ComparisonVerdict(StrEnum):
    """Verdict of a comparison on the same samples. TOO_FEW_SAMPLES never passes a gate."""

    BETTER = "better"
    NOT_WORSE = "not worse"
    WORSE = "worse"
    TOO_FEW_SAMPLES = "too few samples"


class OnDrift(StrEnum):
    """Consequence of an alert about the live data or the live quality of the champion."""

    ALERT = "alert"
    ROLLBACK = "rollback"


def _only_alerts(value: object) -> bool:
    return value is OnDrift.ALERT


class MetricLimits(Model):
    """Limits of one metric of a suite, and its margin in comparisons."""

    at_least: float | None = Field(None, ge=-MOST_RATIO, le=MOST_RATIO, exclude_if=is_absent, description="least value that passes")
    at_most: float | None = Field(None, ge=-MOST_RATIO, le=MOST_RATIO, exclude_if=is_absent, description="greatest value that passes")
    margin: float | None = Field(
        None, ge=0, le=MOST_RATIO, exclude_if=is_absent, description="difference from the champion up to which it is not worse"
    )
    against_champion: AgainstChampion | None = Field(
        None, exclude_if=is_absent, description="verdict that the comparison with the champion has to reach; absent: none is needed"
    )

    @model_validator(mode="after")
    def _possible(self) -> "MetricLimits":
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise ValueError("at_least is above at_most: no value passes; change one of them")
        return self


class GateSuite(Model):
    """Suite of evaluation that a version needs a result of."""

    suite: Label = Field(description="name of the suite")
    dataset: VersionReference | None = Field(
        None, exclude_if=is_absent, description="version of a dataset that it has to be evaluated on; absent: any"
    )
    split: SplitName | None = Field(None, exclude_if=is_absent, description="split of the dataset; absent: any that it was not trained on")
    metrics: dict[Label, MetricLimits] = Field(default_factory=dict, max_length=MOST_METRICS, description="limits by metric")


class ModelGate(Model):
    """Conditions under which a version becomes champion."""

    suites: tuple[GateSuite, ...] = Field((), max_length=MOST_SUITES, description="suites that it needs results of")
    complete_lineage: bool = Field(
        False, description="whether the job, its code and the versions of all its data have to be known to the platform"
    )
    max_age_days: float | None = Field(
        None, gt=0, le=MOST_AGE_DAYS, exclude_if=is_absent, description="age up to which a result counts, in days; absent: any"
    )
    approvals: int = Field(1, ge=0, le=2, description="people who have to approve, 0 to 2")
    evaluate: tuple[GateEvaluation, ...] = Field(
        (),
        max_length=MOST_EVALUATIONS,
        exclude_if=is_absent,
        description="evaluations that each new version goes through, by a job each that the registry submits",
    )
    on_drift: OnDrift = Field(
        OnDrift.ALERT,
        exclude_if=_only_alerts,
        description="consequence of drift, or of a worse live quality, of the champion: `alert`, or `rollback` to the one before, once",
    )

    @model_validator(mode="after")
    def _once_each(self) -> "ModelGate":
        for what, parts in (("suites", self.suites), ("evaluate", self.evaluate)):
            names = [each.suite for each in parts]
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"{what}: {twice[0]} is named twice; keep one of them")
        return self


DEFAULT_GATE: Final = ModelGate()


class GateCondition(Model):
    """One condition of a gate, as it was found for a version at a moment."""

    name: ShortText = Field(description="condition, as `accuracy/top1 at least`")
    met: bool = Field(description="whether it was met")
    value: ComputedRatio | None = Field(None, exclude_if=is_absent, description="value that was found, at most 1e15")
    limit: ComputedRatio | None = Field(None, exclude_if=is_absent, description="limit of the gate")
    detail: CutText = Field("", description="sentence for a person: what was found, and what is missing")
