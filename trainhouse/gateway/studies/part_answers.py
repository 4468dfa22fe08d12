"""Answers about parts of a study, as the OpenAPI document describes them."""

from typing import Any

from pydantic import BaseModel, Field

from trainhouse.events.model.study_decisions import TrialState


class StudyHistory(BaseModel):
    """Values of a metric in the order in which trials ended, as columns; each row is one trial, or as many as follow each other."""

    metric: str = Field(description="first metric of the study")
    mode: str = Field(description="min or max: whether the least or the greatest value is the best")
    ended: int = Field(description="trials that ended with a value of it")
    width: int = Field(description="trials of a row")
    place: list[int] = Field(description="how many trials had ended with the first one of the row")
    trial: list[int] = Field(description="the trial of the row whose value is the best")
    least: list[float] = Field(description="least value of the row")
    greatest: list[float] = Field(description="greatest value of the row")
    mean: list[float] = Field(description="mean value of the row")
    best: list[float] = Field(description="best value of all trials up to the end of the row")


class StudyTrial(BaseModel):
    """A trial of a study."""

    trial: int = Field(description="its number, from 0")
    state: TrialState
    metric: str = Field(description="first metric of the study")
    value: float | None = Field(description="value of that metric: the one that counts, of a running trial the newest; null: none")
    values: dict[str, float | None] = Field(description="the same of all metrics, by name; null: no number")
    step: int | None = Field(description="step of the newest value that was recorded; null: none")
    parameters: dict[str, Any] = Field(description="its values by parameter")
    best: bool = Field(description="whether it is among the best trials of its study")
    job_id: str
    device_s: float = Field(description="device-seconds that it had, once it has ended")
    stopped_early: bool = Field(description="whether the study's rule ended it before its last step")
    reason: str = Field(description="why it was stopped, or why it failed")
    enqueued: bool = Field(description="whether the study's spec names values of it")
    started_at_ms: int = Field(description="when it was begun, in milliseconds since 1970")
    began_at_ms: int | None = Field(description="when its job had devices first; null: it waits")
    ended_at_ms: int | None = Field(description="when it ended; null: it has not")


class StudySample(BaseModel):
    """Trials that stand for all: the best ones of the study, the best by its first metric, and of the others a sample."""

    items: list[StudyTrial]
    next_cursor: None = Field(None, description="always null: it is one page")
    total: int = Field(description="trials that have a value")


class ParameterImportance(BaseModel):
    """Part of a parameter in what makes good trials good."""

    parameter: str = Field(description="name of the parameter")
    importance: float = Field(description="its share, of all parameters together 1")


class StudyImportance(BaseModel):
    """Importance of a study's parameters for a metric, by Optuna's PED-ANOVA over complete trials."""

    metric: str = Field(description="metric whose values the parameters explain")
    items: list[ParameterImportance] = Field(description="the most important first; empty: `reason` says why")
    reason: str = Field(description="why there is none; empty: there is one")
    trials: int = Field(description="complete trials that were looked at")
    of: int = Field(description="complete trials that have a value of the metric")
    left_out: list[str] = Field(description="parameters that not every trial has, or that have one value: they are not judged")


class StudyRung(BaseModel):
    """A rung of early stopping: a step at which trials are judged."""

    rung: int = Field(description="its number, from 0")
    step: int
    reached: int = Field(description="trials that reached it")
    stopped: int = Field(description="trials that ended there by the study's rule")
    best: float | None = Field(description="best value there; null: none is a number")
    median: float | None = Field(description="median of the values there; null: none is a number")


class RungTrial(BaseModel):
    """A trial at the rungs that it reached."""

    trial: int = Field(description="its number, from 0")
    state: TrialState
    values: list[float | None] = Field(description="its value at rung 0, 1, …; null: no number")


class StudyRungs(BaseModel):
    """Rungs of a study that trials have reached, and a sample of trials at them: as many of each height as of the others."""

    metric: str = Field(description="first metric of the study")
    mode: str = Field(description="min or max: whether the least or the greatest value is the best")
    rungs: list[StudyRung] = Field(description="empty: no trial ends early in this study, or none has reached one")
    trials: list[RungTrial] = Field(description="trials that reached a rung, with their values there")
    total: int = Field(description="trials that reached a rung")
