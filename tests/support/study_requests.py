"""Tuner's machine with its state, and the events that people and its process send to it."""

from dataclasses import dataclass, field
from typing import Any, Final

from tests.support.driven_machine import DrivenMachine
from trainhouse.events import (
    Event,
    JobState,
    StudyCreated,
    StudyPriceObserved,
    StudySpec,
    TrialJobObserved,
    TrialStarted,
    TrialStopping,
    TrialSuggested,
    TrialValueObserved,
)
from trainhouse.scheduler.core.protocol.machine import Machine
from trainhouse.scheduler.core.studies.study_machine import TunerMachine
from trainhouse.scheduler.core.studies.study_state import StudyEntry, TunerState, wanted
from trainhouse.scheduler.core.studies.trial_jobs import trial_job_id

PROJECT: Final = "vision"
STUDY: Final = "lr"
OF_STUDY: Final = {"project": PROJECT, "study": STUDY}


def study_spec(**changes: Any) -> StudySpec:
    """A spec of six trials, two at once, of one parameter and one metric."""
    return StudySpec.model_validate(
        {
            "space": {"lr": {"low": 0.001, "high": 1.0, "log": True}},
            "metrics": {"name": "loss", "mode": "min"},
            "sampler": {"name": "random"},
            "parallel": 2,
            "budget": {"trials": 6},
            "max_failed": 2,
            "job": {"runtime": {"command": ["python", "train.py", "--lr", "{lr}"]}, "resources": {"device_type": "cpu"}},
        }
        | changes
    )


@dataclass
class Tuner(DrivenMachine[TunerState]):
    """A tuner's machine, its state, and all that it decided."""

    machine: Machine[TunerState] = field(default_factory=TunerMachine)

    def create(self, event_id: str = "", **changes: Any) -> list[Event]:
        """A study with a spec."""
        return self.ask(StudyCreated.model_validate(OF_STUDY | {"user": "ada", "spec": study_spec(**changes)}), event_id)

    def suggest(self, lr: float = 0.1, **changes: Any) -> list[Event]:
        """Values for the trial that is wanted; nothing where none is."""
        found = [each for each in wanted(self.state) if each.study == STUDY]
        if not found:
            return []
        about = OF_STUDY | {"trial": found[0].trial, "told": found[0].told, "values": {"lr": lr}}
        return self.ask(TrialSuggested.model_validate(about | changes))

    def fill(self) -> int:
        """As many trials as are wanted; returns the number of those that began."""
        count = 0
        while any(isinstance(each, TrialStarted) for each in self.suggest()):
            count += 1
        return count

    def job(self, trial: int, state: JobState, reason: str = "", device_s: float = 0.0, **changes: Any) -> list[Event]:
        """A status of a trial's job."""
        about = OF_STUDY | {"trial": trial, "job_id": job_of(trial), "state": state, "reason": reason, "device_s": device_s}
        return self.ask(TrialJobObserved.model_validate(about | {"at_ms": self.now_ms} | changes))

    def log(self, trial: int, step: int, loss: float, **values: float) -> list[Event]:
        """Values that a trial's job logged."""
        about = OF_STUDY | {"trial": trial, "job_id": job_of(trial), "step": step, "values": {"loss": loss, **values}}
        return self.ask(TrialValueObserved.model_validate(about))

    def price(self, per_hour: float | None, version: int = 1, currency: str = "USD") -> list[Event]:
        """A price of the devices, as the policy of the pool names it."""
        about = {"pool": "default", "policy_version": version, "price": per_hour, "currency": currency}
        return self.ask(StudyPriceObserved.model_validate(OF_STUDY | about))

    def succeed(self, trial: int, loss: float, device_s: float = 1.0) -> list[Event]:
        """A trial from its first device to its end."""
        self.job(trial, JobState.RUNNING)
        self.log(trial, 1, loss)
        return self.job(trial, JobState.SUCCEEDED, device_s=device_s)

    @property
    def study(self) -> StudyEntry:
        """The study, which has not ended."""
        found = self.state.study(PROJECT, STUDY)
        assert found is not None
        return found

    def has_ended(self) -> bool:
        """Whether the study has ended."""
        return f"{PROJECT}/{STUDY}" in self.state.ended

    def started(self) -> list[TrialStarted]:
        """Trials that began, in order."""
        return [each for each in self.decisions if isinstance(each, TrialStarted)]

    def cancelled(self) -> list[str]:
        """Jobs that were cancelled, in order."""
        return [str(each.job_id) for each in self.decisions if isinstance(each, TrialStopping)]


def job_of(trial: int) -> str:
    """Id of a trial's job."""
    return str(trial_job_id(PROJECT, STUDY, trial))
