"""Decisions about a study of six trials, as the tuner publishes them: two complete, one ended early, one failed, one runs, one waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainhouse.events import Event
from trainhouse.events.model.study import StudySpec
from trainhouse.events.model.study_decisions import (
    StudyBegun,
    StudyRequestRefused,
    StudyState,
    StudyStatus,
    TrialBegan,
    TrialEnded,
    TrialStarted,
    TrialState,
    TrialStopping,
    TrialSummary,
    TrialValueRecorded,
)

BEGAN_MS = 1_795_635_855_000
SPEC: dict[str, Any] = {
    "space": {"lr": {"low": 1e-4, "high": 0.1, "log": True}, "opt": {"choices": ["adam", "sgd"]}, "nesterov": {"choices": [True, False]}},
    "metrics": [{"name": "val_loss"}],
    "early_stopping": {"name": "asha", "min_step": 10, "max_step": 90},
    "parallel": 2,
    "budget": {"trials": 6},
    "job": {
        "name": "digits",
        "user": "ana",
        "env": {"DATA_ROOT": "/data/digits"},
        "runtime": {"command": ["python", "train.py", "--lr", "{lr}", "--opt", "{opt}"]},
    },
}
WHY_STOPPED = "at step 10 val_loss 0.9 is not among the best 1 of 3 (best 0.4, 0.5)"
DONE = "every rank exited with code 0"
WHY_FAILED = "rank 0 exited with code 1 (ValueError: lr is too high)"


def spec_of(project: str = "default", **more: Any) -> StudySpec:
    """The spec of the study."""
    return StudySpec.model_validate(SPEC | {"job": SPEC["job"] | {"project": project}} | more)


class Story:
    """Decisions about one study, numbered. `decisions` has them in their order."""

    def __init__(self, project: str = "default", study: str = "digits", spec: StudySpec | None = None) -> None:
        self.of = {"project": project, "study": study}
        self.spec = spec or spec_of(project)
        self.decisions: list[Event] = []
        self.number = 0

    def job_id(self, trial: int) -> str:
        return f"study-{self.of['study']}-{trial}"

    def decide(self, kind: Any, **fields: Any) -> None:
        self.number += 1
        about = self.of | {"number": self.number, "at_ms": BEGAN_MS + 1000 * self.number}
        self.decisions.append(kind.model_validate(about | fields))

    def begin(self, request_id: str = "request-1", user: str = "ana") -> None:
        self.decide(StudyBegun, request_id=request_id, spec=self.spec, spec_sha256="a" * 64, user=user)

    def start(self, trial: int, lr: float, opt: str = "adam") -> None:
        values = {"lr": lr, "opt": opt, "nesterov": True}
        job = self.spec.job.model_copy(update={"hyperparameters": values})
        versions = {"optuna": "4.6.0", "numpy": "2.3.0"}
        about = {"values": values, "told": self.number, "job_id": self.job_id(trial), "spec": job, "spec_sha256": job.sha256()}
        self.decide(TrialStarted, trial=trial, versions=versions, **about)
        self.decide(TrialBegan, trial=trial)

    def value(self, trial: int, step: int, value: float) -> None:
        self.decide(TrialValueRecorded, trial=trial, step=step, values={"val_loss": value})

    def end(self, trial: int, state: TrialState, value: float | None, device_s: float, reason: str = "") -> None:
        values = {} if value is None else {"val_loss": value}
        self.decide(TrialEnded, trial=trial, state=state, values=values, device_s=device_s, reason=reason)

    def refuse(self, request_id: str, reason: str) -> None:
        about = {"request_id": request_id, "request_type": "trainhouse.study.created.v1", "reason": reason, "at_ms": BEGAN_MS}
        self.decisions.append(StudyRequestRefused.model_validate(self.of | about))

    def status(self, state: StudyState = StudyState.RUNNING, **fields: Any) -> StudyStatus:
        """What the newest decision makes of the study."""
        times = {"created_at_ms": BEGAN_MS + 1000, "updated_at_ms": BEGAN_MS + 1000 * self.number}
        return StudyStatus.model_validate(self.of | times | {"number": self.number, "state": state, "user": "ana"} | fields)


def story(project: str = "default", study: str = "digits") -> Story:
    """The whole story."""
    told = Story(project, study)
    told.begin()
    for trial, (lr, opt) in enumerate(((0.01, "adam"), (0.02, "sgd"), (0.05, "adam"), (0.1, "adam"), (0.012, "adam"))):
        told.start(trial, lr, opt)
    for trial, curve in ((0, (0.7, 0.4)), (1, (0.8, 0.5))):
        for step, value in zip((10, 30), curve, strict=True):
            told.value(trial, step, value)
        if trial == 1:  # too late: its job succeeded first
            told.decide(TrialStopping, trial=1, job_id=told.job_id(1), early=True, step=10, reason=WHY_STOPPED)
        told.end(trial, TrialState.COMPLETE, curve[-1], 100.0 + 20 * trial, DONE)
    told.value(2, 10, 0.9)
    told.decide(TrialStopping, trial=2, job_id=told.job_id(2), early=True, step=10, reason=WHY_STOPPED)
    told.end(2, TrialState.STOPPED, 0.9, 30.0)
    told.end(3, TrialState.FAILED, None, 5.0, WHY_FAILED)
    told.value(4, 10, 0.65)
    told.start(5, 0.011)
    told.decisions.pop()  # it has no devices yet
    told.refuse("request-2", "project default has a study digits already; choose another name")
    return told


def status_of(told: Story) -> StudyStatus:
    """The status at the end of the whole story."""
    parameters = {"lr": 0.01, "opt": "adam", "nesterov": True}
    best = TrialSummary.model_validate({"trial": 0, "job_id": told.job_id(0), "values": {"val_loss": 0.4}, "parameters": parameters})
    counts = {TrialState.COMPLETE: 2, TrialState.STOPPED: 1, TrialState.FAILED: 1, TrialState.RUNNING: 1, TrialState.WAITING: 1}
    return told.status(best=(best,), trials=counts, device_s=255.0)


def both(told: Story) -> Iterator[Event]:
    """Decisions and the status, as two topics have them."""
    yield from told.decisions
    yield status_of(told)
