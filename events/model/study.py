"""Studies: what is searched, by which sampler, within which budget; requests about them, and what the tuner observes of their trials.

Holds: a request has no effect but by the tuner's decision about it, which names it by its event id; the same id counts once. A spec never
changes once the study is there.
"""

import re
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import Field, StringConstraints, field_validator, model_validator

from trainhouse.events.model.absence import is_absent, is_yes
from trainhouse.events.model.asked import RequestedBy
from trainhouse.events.model.base import Event, Model
from trainhouse.events.model.bounds import (
    MOST_COST,
    MOST_COUNT,
    MOST_DURATION_S,
    ComputedS,
    Count,
    CutText,
    Metric,
    ShortText,
    SmallCount,
    TimestampMs,
)
from trainhouse.events.model.default_project import DEFAULT_PROJECT
from trainhouse.events.model.ids import JobId, PoolName
from trainhouse.events.model.job import JobState
from trainhouse.events.model.known_trials import MOST_KNOWN, KnownTrial, known_fault
from trainhouse.events.model.labels import Label
from trainhouse.events.model.spec import JobSpec, MetricMode
from trainhouse.events.model.study_cost import MOST_GRID, why_too_costly
from trainhouse.events.model.study_space import MOST_PARAMETERS, Parameter, Value
from trainhouse.events.model.study_values import value_fault

MOST_TRIALS: Final = 100_000
MOST_PARALLEL: Final = 1024
MOST_OBJECTIVES: Final = 8
MOST_UNBOUNDED: Final = 10_000
"""Trials of a study whose budget names no number of them."""
StudyName = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[^/\x00-\x1f]+$")]
"""Name of a study in its project. It has no '/': the last one of `PROJECT/NAME` parts both, whatever the project is called."""
MetricName = Annotated[str, Field(max_length=256)]


class SamplerName(StrEnum):
    """Sampler of Optuna that suggests values."""

    TPE = "tpe"
    GP = "gp"
    CMAES = "cmaes"
    QMC = "qmc"
    RANDOM = "random"
    GRID = "grid"
    NSGAII = "nsgaii"


class Objective(Model):
    """A metric, by the name that the session logs, and whether the least or the greatest value is the best."""

    name: str = Field(min_length=1, max_length=256, description="name of the metric, as the session logs it")
    mode: MetricMode = Field(MetricMode.MIN, description="`min` or `max`")


class Sampler(Model):
    """Sampler of a study."""

    name: SamplerName = Field(SamplerName.TPE, description="tpe, gp, cmaes, qmc, random, grid, or nsgaii for several metrics")
    startup_trials: int | None = Field(
        None, ge=1, le=10_000, exclude_if=is_absent, description="trials that are drawn at random first; default: as Optuna has it"
    )


class StoppingName(StrEnum):
    """Rule that ends trials before their last step."""

    NONE = "none"
    ASHA = "asha"
    MEDIAN = "median"


class EarlyStopping(Model):
    """Rule by which trials end early.

    `asha` (Li et al. 2020, asynchronous successive halving, the variant that stops): at the rungs `min_step` × `reduction`^k a trial goes
    on if its value is among the best 1/`reduction` of those that reached the rung. `median` (Golovin et al. 2017): it ends at a rung where
    its value is worse than the median of the values of the trials before it at that rung, once `min_trials` have ended.
    """

    name: StoppingName = Field(StoppingName.ASHA, description="asha, median or none")
    min_step: int = Field(1, ge=1, le=MOST_COUNT, description="step of the first rung, or from which the median counts")
    max_step: int | None = Field(None, ge=1, le=MOST_COUNT, exclude_if=is_absent, description="step of the last rung; default: no limit")
    reduction: int = Field(3, ge=2, le=64, description="one of so many goes on from a rung to the next")
    min_trials: int = Field(5, ge=1, le=MOST_TRIALS, description="trials that have ended before the median counts")

    @model_validator(mode="after")
    def _consistent(self) -> "EarlyStopping":
        if self.max_step is not None and self.max_step < self.min_step:
            raise ValueError(f"max_step = {self.max_step} is below min_step = {self.min_step}; exchange them")
        return self


class StudyBudget(Model):
    """Bounds of a study; it ends at the first that is reached. Trials that run then are cancelled; by `trials`, the last ones end first."""

    trials: int | None = Field(None, ge=1, le=MOST_TRIALS, exclude_if=is_absent, description="most trials")
    device_s: float | None = Field(
        None, gt=0, le=MOST_DURATION_S, exclude_if=is_absent, description="most device-seconds of all trials together"
    )
    cost: float | None = Field(
        None,
        gt=0,
        le=MOST_COST,
        exclude_if=is_absent,
        description="most cost of all trials together, by the pool's prices, in their currency",
    )
    wall_s: float | None = Field(
        None, gt=0, le=MOST_DURATION_S, exclude_if=is_absent, description="most seconds from the study's creation, pauses included"
    )

    @model_validator(mode="after")
    def _bounded(self) -> "StudyBudget":
        if self.trials is None and self.device_s is None and self.cost is None and self.wall_s is None:
            raise ValueError("name at least one bound: trials, device_s, cost or wall_s; without one the study would never end")
        return self


class StagnationRule(Model):
    """Rule that ends a study which gains too little for what it takes: within `device_s` device-seconds of trials that ended the best value
    gained less than `min_gain`, or nothing. The trials that run then are cancelled."""

    device_s: float = Field(gt=0, le=MOST_DURATION_S, description="device-seconds of ended trials over which the gain is looked at")
    min_gain: float = Field(
        0.0, ge=0, le=1e300, description="least gain of the best value within them, in the metric's unit; 0: any gain is enough"
    )


_PLACE: Final = re.compile(r"\{([A-Za-z0-9._-]{1,128})\}")


class StudySpec(Model):
    """Whole spec of a study. `job` is the spec of each trial's job; a trial's values are added to its `hyperparameters`, which fill
    `{name}` in the command."""

    space: dict[Label, Parameter] = Field(min_length=1, max_length=MOST_PARAMETERS, description="parameters by name")
    metrics: tuple[Objective, ...] = Field(
        min_length=1, max_length=MOST_OBJECTIVES, description="metrics that decide; several: all trials that no other one beats in each"
    )
    sampler: Sampler = Field(Sampler(), description="how values are suggested")
    early_stopping: EarlyStopping = Field(
        EarlyStopping(name=StoppingName.NONE), description="whether trials end early, by the first metric's values at their steps"
    )
    parallel: int = Field(1, ge=1, le=MOST_PARALLEL, description="trials at the same time")
    budget: StudyBudget = Field(description="bounds of the study")
    stagnation: StagnationRule | None = Field(
        None, exclude_if=is_absent, description="ends the study when its best value gains too little; default: it never does"
    )
    max_failed: int = Field(3, ge=0, le=MOST_TRIALS, description="trials that may fail by a fault of their own; one more ends the study")
    seed: int = Field(0, ge=0, lt=2**31, description="seed of the sampler")
    enqueue: tuple[dict[Label, Value], ...] = Field(
        (), max_length=1024, exclude_if=is_absent, description="values of the first trials; what one leaves out is suggested"
    )
    known: tuple[KnownTrial, ...] = Field(
        (),
        max_length=MOST_KNOWN,
        exclude_if=is_absent,
        description="trials that the sampler knows from the start, of an earlier study or of other origin",
    )
    cache: bool = Field(
        True,
        exclude_if=is_yes,
        description="whether a trial whose values, code, data and seed equal those of a complete one has its result, and no job",
    )
    job: JobSpec = Field(description="spec of the job of each trial")

    @field_validator("metrics", mode="before")
    @classmethod
    def _one(cls, value: Any) -> Any:
        return (value,) if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _conditions(self) -> "StudySpec":
        before: dict[str, Parameter] = {}
        for name, parameter in self.space.items():
            for other, values in parameter.when.items():
                asked = before.get(other)
                if asked is None or not asked.choices:
                    raise ValueError(f"space.{name}.when names {other}, which is no parameter of choices before it")
                unknown = [value for value in values if value not in asked.choices]
                if unknown or not values:
                    raise ValueError(
                        f"space.{name}.when: {other} is never {unknown[0] if unknown else 'nothing'}; write some of its choices"
                    )
            before[name] = parameter
        return self

    @model_validator(mode="after")
    def _sampled(self) -> "StudySpec":
        if self.sampler.name is SamplerName.GRID:
            count = 1
            for name, parameter in self.space.items():
                values = parameter.value_count
                if values is None:
                    raise ValueError(f"space.{name}: a grid needs parameters whose values can be counted; give it `step` or `choices`")
                count *= values
            if count > MOST_GRID:
                raise ValueError(f"the grid has {count} points, more than {MOST_GRID}; make it coarser, or take another sampler")
        sampler, trials = self.sampler, self.budget.trials or MOST_UNBOUNDED
        costly = why_too_costly(sampler.name, self.space, len(self.metrics), sampler.startup_trials, trials, len(self.known))
        if costly:
            raise ValueError(costly)
        conditional = next((name for name, parameter in self.space.items() if parameter.when), None)
        if conditional is not None and self.sampler.name in (SamplerName.GP, SamplerName.CMAES, SamplerName.QMC, SamplerName.GRID):
            raise ValueError(f"space.{conditional}.when: {self.sampler.name} takes no conditional parameters; tpe, random and nsgaii do")
        if len(self.metrics) > 1:
            names = [each.name for each in self.metrics]
            if len(set(names)) != len(names):
                raise ValueError("metrics: one comes twice; name each once")
            if self.early_stopping.name is not StoppingName.NONE:
                raise ValueError("early_stopping is for one metric; leave it out, or name one metric")
            if self.stagnation is not None:
                raise ValueError("stagnation is for one metric; leave it out, or name one metric")
            if self.sampler.name in (SamplerName.CMAES,):
                raise ValueError("sampler cmaes is for one metric; take tpe, gp, nsgaii, qmc, random or grid")
        return self

    @model_validator(mode="after")
    def _known(self) -> "StudySpec":
        metrics = [each.name for each in self.metrics]
        for number, trial in enumerate(self.known):
            fault = known_fault(self.space, metrics, trial)
            if fault:
                raise ValueError(f"known.{number}: {fault}; leave it out")
        return self

    @model_validator(mode="after")
    def _places(self) -> "StudySpec":
        known = self.space.keys() | self.job.hyperparameters.keys()
        for argument in self.job.runtime.command:
            lacking = next((name for name in _PLACE.findall(argument) if name not in known), None)
            if lacking is not None:
                raise ValueError(f"job.runtime.command has {{{lacking}}}, which is neither in `space` nor in job.hyperparameters")
            partly = next((name for name in _PLACE.findall(argument) if name in self.space and self.space[name].when), None)
            if partly is not None:
                raise ValueError(
                    f"job.runtime.command has {{{partly}}}, which not every trial has (space.{partly}.when): leave it out of the command, "
                    "and read it by session.hyperparameters"
                )
        both = sorted(self.space.keys() & self.job.hyperparameters.keys())
        if both:
            raise ValueError(f"{both[0]} is in `space` and in job.hyperparameters; keep one of them")
        for number, values in enumerate(self.enqueue):
            unknown = sorted(values.keys() - self.space.keys())
            if unknown:
                raise ValueError(f"enqueue.{number} names {unknown[0]}, which is not in `space`")
            fault = next((text for name, value in values.items() if (text := value_fault(name, self.space[name], value))), "")
            if fault:
                raise ValueError(f"enqueue.{number}: {fault}")
        if self.job.interactive is not None or self.job.register is not None or self.job.outputs:
            raise ValueError("job: a trial's job is neither interactive nor has it `register` or `outputs`; leave them out")
        return self


class StudyEvent(Event):
    """Base of all events of a study: what they are keyed by."""

    project: Label = Field(DEFAULT_PROJECT, description="project that owns the study")
    study: StudyName = Field(description="name of the study")

    def subject(self) -> str:
        return f"{self.project}/{self.study}"


class StudyRequest(StudyEvent):
    """Base of all requests about a study."""

    user: str = Field("unknown", max_length=128, description="who asks for it")
    requested_by: RequestedBy | None = None


class StudyCreated(StudyRequest, type="trainhouse.study.created.v1", public_input=True):
    """Request that a study begins; the same id with the same spec is the same study."""

    spec: StudySpec = Field(description="what is searched, and how")
    asked_as: str | None = Field(
        None, max_length=32, exclude_if=is_absent, description="role with which a gateway let the user in; absent: nobody vouches for it"
    )


class StudyPauseRequested(StudyRequest, type="trainhouse.study.pause-requested.v1", public_input=True):
    """Request that a study begins no more trials; those that run go on."""

    reason: str = Field("", max_length=1024)


class StudyResumeRequested(StudyRequest, type="trainhouse.study.resume-requested.v1", public_input=True):
    """Request that a paused study goes on."""

    reason: str = Field("", max_length=1024)


class StudyStopRequested(StudyRequest, type="trainhouse.study.stop-requested.v1", public_input=True):
    """Request that a study ends; its running trials are cancelled."""

    reason: str = Field("", max_length=1024)


class SamplerVersions(Model):
    """Versions of what computed a suggestion: the same versions compute the same again."""

    optuna: ShortText = Field("", description="version of Optuna")
    numpy: ShortText = Field("", description="version of NumPy")


class TrialSuggested(StudyEvent, type="trainhouse.study.trial-suggested.v1"):
    """Values for the next trial, as the tuner's process computed them from the study as it was after its decision `told`."""

    trial: int = Field(ge=0, le=MOST_TRIALS, description="number of the trial, from 0")
    told: Count = Field(description="number of the study's decision up to which trials and values were known to the sampler")
    values: dict[Label, Value] = Field(default_factory=dict, max_length=MOST_PARAMETERS, description="values by parameter")
    versions: SamplerVersions = Field(SamplerVersions(), description="versions of what computed the values")
    exhausted: bool = Field(False, description="whether there is no other point: a grid that was tried in full")
    failure: CutText = Field("", exclude_if=is_absent, description="why no values could be suggested")


class TrialValueObserved(StudyEvent, type="trainhouse.study.trial-value-observed.v1"):
    """Values of the study's metrics that a trial's job logged, each the newest up to its step."""

    trial: int = Field(ge=0, le=MOST_TRIALS, description="number of the trial, from 0")
    job_id: JobId
    step: Count = Field(description="step at which it was logged")
    values: dict[MetricName, Metric] = Field(default_factory=dict, max_length=MOST_OBJECTIVES, description="values by metric")


class TrialJobObserved(StudyEvent, type="trainhouse.study.trial-job-observed.v1"):
    """A trial's job began to run, or ended, as its status says."""

    trial: int = Field(ge=0, le=MOST_TRIALS, description="number of the trial, from 0")
    job_id: JobId
    state: JobState = Field(description="state of the job")
    reason: CutText = ""
    device_s: ComputedS = Field(0.0, description="device-seconds that it had so far")
    logged: tuple[MetricName, ...] = Field(
        (), max_length=16, exclude_if=is_absent, description="names that it logged, where one of the study's metrics was not among them"
    )
    at_ms: TimestampMs


class StudyPriceObserved(StudyEvent, type="trainhouse.study.price-observed.v1"):
    """Price of the devices of a study's trials, as the policy of their pool names it now."""

    pool: PoolName = Field(description="pool of the trials' jobs")
    policy_version: SmallCount = Field(description="number of the pool's policy; 0: it has none")
    price: float | None = Field(None, ge=0, le=MOST_COST, description="price of a device's hour; null: the policy names none")
    currency: str = Field("", max_length=3, description="code of the currency by ISO 4217")


STUDY_REQUESTS: Final[tuple[type[StudyEvent], ...]] = (StudyCreated, StudyPauseRequested, StudyResumeRequested, StudyStopRequested)
STUDY_OBSERVATIONS: Final[tuple[type[StudyEvent], ...]] = (TrialSuggested, TrialValueObserved, TrialJobObserved, StudyPriceObserved)
