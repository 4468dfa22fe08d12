"""Decisions of the tuner: what is so of a study from now on, written by the tuner alone.

Holds: `number` counts a study's decisions from 1; its status is what its newest one says.
"""

from enum import StrEnum
from typing import Final

from pydantic import Field

from trainhouse.events.model.absence import is_absent, is_no
from trainhouse.events.model.base import Event, Model
from trainhouse.events.model.bounds import (
    MOST_COST,
    MOST_SMALL,
    ComputedCost,
    ComputedS,
    Count,
    CutText,
    Metric,
    ShortText,
    SmallCount,
    TimestampMs,
)
from trainhouse.events.model.ids import EventId, JobId, PoolName
from trainhouse.events.model.labels import Label, Sha256
from trainhouse.events.model.spec import JobSpec
from trainhouse.events.model.study import MOST_OBJECTIVES, MOST_TRIALS, MetricName, SamplerVersions, StudyEvent, StudySpec
from trainhouse.events.model.study_space import MOST_PARAMETERS, Value

MOST_BEST: Final = 64


class StudyState(StrEnum):
    """State of a study. DRAINING: no more trials begin, and its last ones run."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    DRAINING = "DRAINING"
    ENDED = "ENDED"


class TrialState(StrEnum):
    """State of a trial. STOPPED: it ended early by the study's rule, and its last values count."""

    WAITING = "WAITING"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def final(self) -> bool:
        """Whether nothing of the trial runs any more."""
        return self not in (TrialState.WAITING, TrialState.RUNNING)


class StudyDecision(StudyEvent):
    """Base of decisions about a study."""

    number: int = Field(ge=1, le=MOST_SMALL, description="number of this decision among those of the study, from 1")
    at_ms: TimestampMs


class StudyBegun(StudyDecision, type="trainhouse.study.begun.v1"):
    """A study is there from now on."""

    request_id: EventId = Field(description="event id of the request")
    spec: StudySpec
    spec_sha256: Sha256
    user: ShortText = ""
    asked_as: str | None = Field(
        None, max_length=32, exclude_if=is_absent, description="role with which a gateway let the user in; absent: nobody vouches for it"
    )


class TrialStarted(StudyDecision, type="trainhouse.study.trial-started.v1"):
    """A trial begins: its job is submitted, whose id follows from project, study and number. One that equals a complete trial has that
    one's job, and nothing is submitted."""

    trial: int = Field(ge=0, le=MOST_TRIALS, description="number of the trial, from 0")
    values: dict[Label, Value] = Field(default_factory=dict, max_length=MOST_PARAMETERS, description="values by parameter")
    told: Count = Field(description="number of the study's decision up to which trials and values were known to the sampler")
    enqueued: bool = Field(False, description="whether the study's spec names values of it")
    versions: SamplerVersions = Field(SamplerVersions(), description="versions of what computed the values")
    taken_from: int | None = Field(
        None,
        ge=0,
        le=MOST_TRIALS,
        exclude_if=is_absent,
        description="complete trial with equal values, whose result it has; absent: none",
    )
    job_id: JobId
    spec: JobSpec
    spec_sha256: Sha256
    asked_as: str | None = Field(
        None, max_length=32, exclude_if=is_absent, description="role with which a gateway let the user in; absent: nobody vouches for it"
    )


class TrialPutOff(StudyDecision, type="trainhouse.study.trial-put-off.v1"):
    """A trial's job was refused for a reason that passes: it is submitted again later."""

    trial: int = Field(ge=0, le=MOST_TRIALS, description="number of the trial, from 0")
    until_ms: TimestampMs = Field(description="time from which it is submitted again, in milliseconds since 1970")
    reason: CutText = ""


class TrialResubmitted(StudyDecision, type="trainhouse.study.trial-resubmitted.v1"):
    """A trial's job is submitted again, under a new id: that of one that was refused may be used up."""

    trial: int = Field(ge=0, le=MOST_TRIALS, description="number of the trial, from 0")
    submission: SmallCount = Field(description="number of the submission, from 0")
    job_id: JobId
    spec: JobSpec
    spec_sha256: Sha256
    asked_as: str | None = Field(
        None, max_length=32, exclude_if=is_absent, description="role with which a gateway let the user in; absent: nobody vouches for it"
    )


class TrialValueRecorded(StudyDecision, type="trainhouse.study.trial-value-recorded.v1"):
    """Values of a trial at a step count."""

    trial: int = Field(ge=0, le=MOST_TRIALS, description="number of the trial, from 0")
    step: Count
    values: dict[MetricName, Metric] = Field(default_factory=dict, max_length=MOST_OBJECTIVES, description="values by metric")
    rungs: tuple[SmallCount, ...] = Field(
        (), max_length=64, exclude_if=is_absent, description="rungs of early stopping, from 0, that it reaches by it"
    )


class TrialBegan(StudyDecision, type="trainhouse.study.trial-began.v1"):
    """A trial's job has devices. Comes again where the study's budget bounds device-seconds or cost."""

    trial: int = Field(ge=0, le=MOST_TRIALS, description="number of the trial, from 0")
    device_s: ComputedS = Field(0.0, description="device-seconds that it had so far")
    cost: ComputedCost | None = Field(None, exclude_if=is_absent, description="what they cost; absent: the study has no price")


class TrialStopping(StudyDecision, type="trainhouse.study.trial-stopping.v1"):
    """A trial's job is cancelled: by the rule of early stopping, by the end of the study, or on request."""

    trial: int = Field(ge=0, le=MOST_TRIALS, description="number of the trial, from 0")
    job_id: JobId
    early: bool = Field(description="whether it is by the rule of early stopping: then its last values count")
    step: Count | None = Field(None, exclude_if=is_absent, description="step at which the rule looked")
    reason: CutText = Field("", description="why, with the numbers")


class TrialEnded(StudyDecision, type="trainhouse.study.trial-ended.v1"):
    """A trial has ended."""

    trial: int = Field(ge=0, le=MOST_TRIALS, description="number of the trial, from 0")
    state: TrialState = Field(description="state in which it ended")
    values: dict[MetricName, Metric] = Field(default_factory=dict, max_length=MOST_OBJECTIVES, description="values that count; empty: none")
    device_s: ComputedS = Field(0.0, description="device-seconds that it had")
    cost: ComputedCost | None = Field(None, exclude_if=is_absent, description="what they cost; absent: the study has no price")
    reason: CutText = ""
    rejected: bool = Field(False, exclude_if=is_no, description="whether its job was not admitted")


class StudyPriced(StudyDecision, type="trainhouse.study.priced.v1"):
    """Device-seconds of a study's trials that are observed from now on have this price."""

    pool: PoolName = Field(description="pool of the trials' jobs")
    policy_version: SmallCount = Field(description="number of the pool's policy that names it")
    price: float = Field(ge=0, le=MOST_COST, description="price of a device's hour")
    currency: str = Field(max_length=3, description="code of the currency by ISO 4217")


class StagnationFigures(Model):
    """Gain of the best value of a study lately, beside the least that its rule asks for. Device-seconds are those of trials that ended,
    counted from the study's beginning."""

    best: Metric = Field(description="best value of the study's metric")
    trial: int = Field(ge=0, le=MOST_TRIALS, description="number of the trial that has it")
    gain: Metric = Field(description="what the best value gained over these device-seconds; never below 0")
    from_device_s: ComputedS = Field(description="device-seconds after which it had been gained from")
    to_device_s: ComputedS = Field(description="device-seconds now")
    gain_rate: Metric = Field(description="gain for each of the device-seconds from then to now")
    min_gain: float = Field(ge=0, le=1e300, description="least gain that the rule asks for")
    within_device_s: ComputedS = Field(description="device-seconds within which the rule asks for it")


class StudyChanged(StudyDecision, type="trainhouse.study.changed.v1"):
    """The state of a study is another one from now on."""

    state: StudyState = Field(description="state of the study")
    reason: CutText = ""
    request_id: EventId | None = Field(None, exclude_if=is_absent, description="event id of the request; absent: none asked for it")
    user: ShortText = Field("", exclude_if=is_absent)
    stagnation: StagnationFigures | None = Field(None, exclude_if=is_absent, description="figures by which the study's rule ended it")


class StudyRequestRefused(StudyEvent, type="trainhouse.study.request-refused.v1"):
    """A request about a study was refused; nothing changed."""

    request_id: EventId = Field(description="event id of the request")
    request_type: ShortText = Field(description="event type of the request")
    reason: CutText = Field(description="why, and what to do")
    user: ShortText = ""
    at_ms: TimestampMs


class TrialSummary(Model):
    """A best trial of a study."""

    trial: int = Field(ge=0, le=MOST_TRIALS, description="number of the trial, from 0")
    job_id: JobId
    values: dict[MetricName, Metric] = Field(default_factory=dict, max_length=MOST_OBJECTIVES, description="values by metric")
    parameters: dict[Label, Value] = Field(default_factory=dict, max_length=MOST_PARAMETERS, description="values by parameter")


class StudyStatus(StudyEvent, type="trainhouse.study.status.v1"):
    """Whole current status of a study. `best`: the best trial; with several metrics those that no other one beats in each."""

    number: int = Field(ge=1, le=MOST_SMALL, description="number of the study's newest decision")
    state: StudyState = Field(description="state of the study")
    reason: CutText = ""
    user: ShortText = ""
    best: tuple[TrialSummary, ...] = Field((), max_length=MOST_BEST, description="its best trials, as many as the record holds")
    trials: dict[TrialState, SmallCount] = Field(default_factory=dict, max_length=16, description="trials by state")
    device_s: ComputedS = Field(0.0, description="device-seconds of trials that ended")
    cost: ComputedCost | None = Field(None, exclude_if=is_absent, description="what they cost; absent: there is no price")
    currency: str = Field("", max_length=3, exclude_if=is_absent, description="code of the price's currency by ISO 4217")
    price: float | None = Field(None, ge=0, le=MOST_COST, exclude_if=is_absent, description="price of a device's hour now")
    stagnation: StagnationFigures | None = Field(
        None, exclude_if=is_absent, description="what the best value gained lately; absent: there is no such rule, or no value yet"
    )
    created_at_ms: TimestampMs = Field(description="time of its creation, in milliseconds since 1970")
    updated_at_ms: TimestampMs = Field(description="time of the newest decision, in milliseconds since 1970")


STUDY_HISTORY: Final[tuple[type[Event], ...]] = (
    StudyBegun,
    TrialStarted,
    TrialPutOff,
    TrialResubmitted,
    TrialBegan,
    TrialValueRecorded,
    TrialStopping,
    TrialEnded,
    StudyPriced,
    StudyChanged,
    StudyRequestRefused,
)
STUDY_DECISIONS: Final[tuple[type[Event], ...]] = (*STUDY_HISTORY, StudyStatus)
