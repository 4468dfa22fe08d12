"""Studies for the pages: the tuner's machine behind a real Kafka, where the gateway looks for it, and what it decided in the tables.

Holds: SEARCH runs, with early stopping at rungs, trials in all states and a conditional parameter; FRONT has two metrics and has ended;
LONG has a name and texts as strangers write them, and one trial; HUGE has 50,000 trials; the values of all follow from fixed seeds.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from tests.browser.decided_story import DecidedStory
from tests.browser.world import World
from tests.support.study_requests import Tuner
from tests.support.tables.alert_tables import Tables
from trainhouse.events import (
    Event,
    JobState,
    StudyCreated,
    StudyPriceObserved,
    StudyStatus,
    TrialJobObserved,
    TrialStarted,
    TrialStopping,
    TrialSuggested,
    TrialValueObserved,
)
from trainhouse.events.model.study_decisions import STUDY_HISTORY
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire import topics
from trainhouse.scheduler.core.studies.study_state import wanted

PROJECT = "research"
SEARCH, FRONT, LONG, HUGE = "digits-search", "size-and-loss", "n" * 128, "huge"
BEGUN, HUGE_TRIALS = 60, 50_000
ATTACK = "<script>window.attacked = 1</script><img src=x onerror='window.attacked = 1'>"
JOB = {"name": "digits", "user": "ada", "runtime": {"command": ["python", "train.py", "--lr", "{lr}"]}, "resources": {"device_type": "cpu"}}
SPACE: dict[str, Any] = {
    "lr": {"low": 1e-4, "high": 1.0, "log": True},
    "width": {"low": 16, "high": 256, "step": 16, "type": "int"},
    "opt": {"choices": ["adam", "sgd", "lion"]},
    "momentum": {"low": 0.0, "high": 0.99, "when": {"opt": ["sgd"]}},
}
SPEC: dict[str, Any] = {
    "space": SPACE,
    "metrics": [{"name": "val_loss"}],
    "early_stopping": {"name": "asha", "min_step": 20, "max_step": 40, "reduction": 2},
    "parallel": 4,
    "budget": {"trials": 80, "device_s": 36_000},
    "job": JOB,
}


class Trials:
    """One study's trials as their jobs would report them, in virtual time."""

    def __init__(self, tuner: Tuner, project: str, study: str, seed: int) -> None:
        self.of = {"project": project, "study": study}
        self.tuner = tuner
        self.values: dict[int, dict[str, Any]] = {}
        self.jobs: dict[int, str] = {}
        self.steps: dict[int, int] = {}
        self._rng = np.random.default_rng(seed)

    def create(self, spec: dict[str, Any], user: str = "ada") -> None:
        self.tuner.ask(StudyCreated.model_validate(self.of | {"user": user, "spec": spec | {"job": spec["job"] | self.own_project()}}))

    def own_project(self) -> dict[str, Any]:
        return {"project": self.of["project"]}

    def begin(self, values: dict[str, Any] | None = None) -> bool:
        """Begins a trial, if one is wanted."""
        found = [each for each in wanted(self.tuner.state) if each.study == self.of["study"]]
        if not found:
            return False
        number = found[0].trial
        self.values[number] = values or self._drawn()
        about = self.of | {"trial": number, "told": found[0].told, "values": self.values[number]}
        decided = self.tuner.ask(TrialSuggested.model_validate(about))
        self.jobs[number] = next(str(each.job_id) for each in decided if isinstance(each, TrialStarted))
        self.steps[number] = 0
        self.tuner.now_ms += 700
        self.job(number, JobState.RUNNING)
        return True

    def _drawn(self) -> dict[str, Any]:
        rng = self._rng
        lr, opt = float(10 ** rng.uniform(-4, 0)), ["adam", "sgd", "lion"][int(rng.integers(3))]
        found = {"lr": lr, "width": int(rng.integers(1, 17)) * 16, "opt": opt}
        return found | ({"momentum": round(float(rng.uniform(0, 0.99)), 3)} if opt == "sgd" else {})

    def job(self, trial: int, state: JobState, reason: str = "", device_s: float = 0.0) -> list[Event]:
        """A status of a trial's job; a stopped trial's job ends at once."""
        about = self.of | {"trial": trial, "job_id": self.jobs[trial], "state": state, "reason": reason, "device_s": device_s}
        return self.tuner.ask(TrialJobObserved.model_validate(about | {"at_ms": self.tuner.now_ms}))

    def log(self, trial: int, step: int, values: dict[str, float]) -> None:
        """Values of a trial; where the study's rule ends it by them, its job is cancelled."""
        self.steps[trial] = step
        about = self.of | {"trial": trial, "job_id": self.jobs[trial], "step": step, "values": values}
        decided = self.tuner.ask(TrialValueObserved.model_validate(about))
        if any(isinstance(each, TrialStopping) for each in decided):
            self.end(trial, JobState.CANCELLED)

    def end(self, trial: int, state: JobState = JobState.SUCCEEDED, reason: str = "") -> None:
        """The end of a trial's job."""
        self.job(trial, state, reason, device_s=12.0 * max(1, self.steps.pop(trial)))

    def loss(self, trial: int, step: int) -> float:
        """A loss that is least at lr = 0.03 with adam, and falls with the steps."""
        own = self.values[trial]
        least = 0.2 + 0.25 * (math.log10(own["lr"]) + 1.5) ** 2 + {"adam": 0.0, "sgd": 0.15, "lion": 0.3}[own["opt"]] + 8 / own["width"]
        return float(round(least + 2 / (1 + step / 8) + self._rng.normal(0, 0.01), 5))


class StudyStory(DecidedStory):
    """What the studies did, then answers to what the pages ask for."""

    REQUESTS, HISTORY, DECIDED = topics.STUDY_REQUESTS, topics.STUDY_HISTORY, STUDY_HISTORY

    def __init__(self, world: World, settings: KafkaSettings) -> None:
        self.tuner = Tuner(now_ms=time.time_ns() // 1_000_000 - 30 * 60_000)
        self.search = Trials(self.tuner, PROJECT, SEARCH, 7)
        super().__init__(world, settings, self.tuner)

    def live(self) -> None:
        self._front()
        self._long()
        self._search()

    def add(self) -> None:
        huge(self._world.tables)

    def publish(self) -> list[Event]:
        new = super().publish()
        self._world.tables.put(topics.STUDIES, [each for each in new if isinstance(each, StudyStatus)])
        return new

    def better_trial(self) -> int:
        """One more trial of SEARCH that is better than all before it; returns its number."""
        with self._lock:
            self.tuner.now_ms = time.time_ns() // 1_000_000
            for trial in list(self.search.steps):
                self.search.end(trial, JobState.FAILED, "rank 0 exited with code 1 (ValueError: lr is too high)")
                break
            assert self.search.begin({"lr": 0.03, "width": 256, "opt": "adam"})
            number = max(self.search.values)
            self.search.log(number, 90, {"val_loss": 0.01})
            self.search.end(number)
            self.publish()
        return number

    def _search(self) -> None:
        trials = self.search
        trials.create(SPEC)
        while len(trials.values) < BEGUN:
            while len(trials.values) < BEGUN and trials.begin():
                pass
            self.tuner.now_ms += 9_000
            for trial in list(trials.steps):
                if trial == 13:
                    trials.end(trial, JobState.FAILED, "rank 0 exited with code 1 (ValueError: lr is too high)")
                    continue
                step = trials.steps[trial] + 5 + trial % 3 * 5
                trials.log(trial, min(step, 90), {"val_loss": trials.loss(trial, step)})
                if step >= 90 and trial in trials.steps:
                    trials.end(trial)

    def _front(self) -> None:
        trials = Trials(self.tuner, PROJECT, FRONT, 11)
        metrics = [{"name": "val_loss"}, {"name": "throughput", "mode": "max"}]
        spec = {key: value for key, value in SPEC.items() if key != "early_stopping"} | {"metrics": metrics}
        trials.create(spec | {"budget": {"trials": 48, "cost": 100.0}})
        price = trials.of | {"pool": "default", "policy_version": 1, "price": 2.5, "currency": "EUR"}
        self.tuner.ask(StudyPriceObserved.model_validate(price))
        while trials.begin():
            number = max(trials.values)
            self.tuner.now_ms += 20_000
            speed = 4000 / (10 + trials.values[number]["width"] ** 0.7) + number % 5
            trials.log(number, 90, {"val_loss": trials.loss(number, 90), "throughput": round(speed, 3)})
            trials.end(number)

    def _long(self) -> None:
        trials = Trials(self.tuner, "default", LONG, 13)
        space = {"p" * 60: {"choices": [ATTACK[:60], "b" * 200]}, "lr": {"low": 0.1, "high": 0.2}}
        metric = ATTACK + "m" * 100
        trials.create(SPEC | {"space": space, "metrics": [{"name": metric}], "budget": {"trials": 2}, "parallel": 1}, user="mallory")
        assert trials.begin({"p" * 60: "b" * 200, "lr": 0.1})
        trials.log(0, 10, {metric: 1e-9})
        trials.end(0, JobState.FAILED, ATTACK * 3)


def huge(tables: Tables) -> None:
    """HUGE, by a statement for each kind of fact: eight trials in nine are stopped at the first of three rungs or at the second."""
    spec = '{"space":{"lr":{"low":0.0001,"high":1.0,"log":true},"width":{"low":16,"high":256},"opt":{"choices":["adam","sgd"]}},'
    spec += '"metrics":[{"name":"val_loss","mode":"min"}],"sampler":{"name":"random"},"early_stopping":{"name":"asha","min_step":10,'
    spec += '"max_step":90,"reduction":3},"parallel":64,"budget":{"trials":100000},"max_failed":3,"seed":0,"job":{"name":"huge",'
    spec += '"runtime":{"command":["python","train.py"]}}}'
    of = {"project": PROJECT, "study": HUGE}
    about = of | {"user": "ada", "metrics": ["val_loss"], "modes": ["min"], "spec": spec, "spec_sha256": "a" * 64}
    tables.insert("studies_rows", about | {"created_at": "2026-11-01 00:00:00"})
    best = '[{"trial":7,"job_id":"huge-7","values":{"val_loss":0.1},"parameters":{"lr":0.03,"width":64,"opt":"adam"}}]'
    ended = HUGE_TRIALS - 64
    stopped = sum(1 for n in range(ended) if n % 9)
    status: dict[str, Any] = {"number": 10 * HUGE_TRIALS, "state": "RUNNING", "best": [7], "best_json": best, "device_s": 4e6}
    counts = {"trial_states": ["COMPLETE", "STOPPED", "RUNNING"], "trial_counts": [ended - stopped, stopped, 64]}
    times = {"created_at": "2026-11-01 00:00:00", "updated_at": "2026-11-20 00:00:00"}
    tables.insert("study_statuses_rows", of | status | counts | times)
    for insert in (_STARTED, _VALUES, _STOPPING, _ENDED):
        tables.clickhouse.command(insert.format(project=PROJECT, study=HUGE, trials=HUGE_TRIALS, ended=ended))


_LR = "exp10(-4 + 4 * (cityHash64(number) % 10000) / 10000)"
_LOSS = f"if(number = 7, 0.1, 0.2 + 0.25 * pow(log10({_LR}) + 1.5, 2) + (cityHash64(number, 1) % 1000) / 5000 + 2 / (1 + st / 8))"
_LAST = "if(number % 9 = 0, 90, if(number % 9 < 3, 30, 10))"
_AT = "toDateTime64('2026-11-01 00:00:00', 3, 'UTC') + number * 20"
_STARTED = (
    "INSERT INTO study_facts (project, study, number, fact, at, trial, job_id, told, optuna, numpy, parameters, parameters_json) "
    "SELECT '{project}', '{study}', number * 10 + k, f, "
    + _AT
    + " + k, number, concat('huge-', toString(number)), number * 10, '4.9.0', '2.3.0', "
    "if(k = 0, map('lr', toString(lr), 'width', toString(width), 'opt', opt), map()), "
    "if(k = 0, concat('{{\"lr\":', toString(lr), ',\"width\":', toString(width), ',\"opt\":\"', opt, '\"}}'), '') "
    "FROM (SELECT number, " + _LR + " AS lr, 16 + number % 241 AS width, ['adam', 'sgd'][number % 2 + 1] AS opt FROM numbers({trials})) "
    "ARRAY JOIN [0, 1] AS k, ['trial-started', 'trial-began'] AS f"
)
_VALUES = (
    "INSERT INTO study_facts (project, study, number, fact, at, trial, step, metrics, figures) "
    "SELECT '{project}', '{study}', number * 10 + 2 + k, 'value', " + _AT + " + 10 + st * 5, number, st, ['val_loss'], [" + _LOSS + "] "
    "FROM numbers({trials}) ARRAY JOIN [0, 1, 2] AS k, [10, 30, 90] AS st WHERE st <= if(number < {ended}, " + _LAST + ", 10)"
)
_STOPPING = (
    "INSERT INTO study_facts (project, study, number, fact, at, trial, early, step, reason) "
    "SELECT '{project}', '{study}', number * 10 + 6, 'trial-stopping', " + _AT + " + 12 + " + _LAST + " * 5, number, 1, " + _LAST + ", "
    "'asha: not among the best' FROM numbers({ended}) WHERE number % 9 != 0"
)
_ENDED = (
    "INSERT INTO study_facts (project, study, number, fact, at, trial, state, device_s, metrics, figures) "
    "SELECT '{project}', '{study}', number * 10 + 7, 'trial-ended', " + _AT + " + 15 + st * 5, number, "
    "if(number % 9 = 0, 'COMPLETE', 'STOPPED'), 5 + st * 5, ['val_loss'], [" + _LOSS + "] "
    "FROM (SELECT number, " + _LAST + " AS st FROM numbers({ended}))"
)
