"""State of the tuner: studies that have not ended with their trials, and the names of those that have.

Holds: a study and a trial never change in place, so that a fork shares them; a dump is canonical JSON. Of an ended study its name alone is
kept: a name is never used again, since the ids of trials' jobs follow from it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, Final

import orjson

from trainhouse.events import StagnationFigures, StudySpec, StudyState, StudyStatus, TrialState, TrialSummary
from trainhouse.events.model.bounds import read_stored
from trainhouse.events.model.ids import JobId
from trainhouse.events.model.study import MOST_UNBOUNDED
from trainhouse.events.model.study_decisions import MOST_BEST
from trainhouse.events.model.study_space import Value
from trainhouse.scheduler.core.intake.request_ids import AskedIds
from trainhouse.scheduler.core.protocol.snapshot_steps import TUNING_FORMATS, parse
from trainhouse.scheduler.core.studies.known_from_start import known_from_start
from trainhouse.scheduler.core.studies.stagnation import Gain, stagnation_figures, with_gain
from trainhouse.scheduler.core.studies.stopping import rung_step
from trainhouse.scheduler.core.studies.trial_costs import DevicePrice
from trainhouse.scheduler.core.studies.trial_record import ToldTrial

FORMAT: Final = TUNING_FORMATS.newest
MAX_NAMES: Final = 100_000
"""Studies of all times."""
MAX_OPEN: Final = 500
"""Studies that have not ended."""
MAX_VALUES: Final = 2_000_000
"""Values of parameters that studies which have not ended may come to, by their budgets."""
PROJECT_SHARE: Final = 5
"""A project has at most one part in so many of each."""
USER_SHARE: Final = 2
"""A user has at most one part in so many of a project's studies that have not ended."""
MOST_BEST_BYTES: Final = 256 * 1024
"""Of the best trials in a status, whose record has at most 1 MiB."""


@dataclass(frozen=True, slots=True)
class LoggedValue:
    """Newest value of a metric, and the step at which it was logged."""

    step: int
    value: float


@dataclass(frozen=True, slots=True)
class RungValue:
    """Value of the first metric at a rung, and the study's decision that recorded it."""

    number: int
    rung: int
    value: float


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial. `started`, `ended`: numbers of the study's decisions; `stopping`: whether its job is cancelled, True: by early stopping;
    `logged`: newest values, in the end those that count; `submission`: number of that of its job; `due_ms`: when the next one is, after a
    refusal that passes."""

    number: int
    parameters: Mapping[str, Value]
    job_id: str
    spec_sha256: str
    started: int
    state: TrialState = TrialState.WAITING
    logged: Mapping[str, LoggedValue] = field(default_factory=dict)
    curve: tuple[RungValue, ...] = ()
    device_s: float = 0.0
    stopping: bool | None = None
    ended: int | None = None
    submission: int = 0
    due_ms: int | None = None
    cost: float = 0.0


@dataclass(frozen=True)
class StudyEntry:
    """One study that has not ended. `trials` by number; `open`: numbers of those that have not ended; `best`: all of the best ones;
    `device_s`: of ended trials; `rejected`: trials that failed since their jobs were not admitted; `admitted`: whether any job was;
    `rungs`: by rung the values of all trials that reached it; `put_off`: numbers of trials whose jobs are to be submitted again;
    `price`: of its devices, once the tuner knows it; `cost`: of ended trials;
    `gains`: of the best value, where the study has a rule about them."""

    project: str
    study: str
    spec: StudySpec
    user: str
    asked_as: str | None
    created_at_ms: int
    number: int = 1
    state: StudyState = StudyState.RUNNING
    reason: str = ""
    trials: tuple[Trial, ...] = ()
    open: tuple[int, ...] = ()
    best: tuple[int, ...] = ()
    device_s: float = 0.0
    counts: Mapping[TrialState, int] = field(default_factory=dict)
    rejected: int = 0
    admitted: bool = False
    rungs: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    put_off: tuple[int, ...] = ()
    price: DevicePrice | None = None
    cost: float = 0.0
    gains: tuple[Gain, ...] = ()

    @property
    def key(self) -> str:
        """Key of its records."""
        return study_key(self.project, self.study)

    @property
    def most_trials(self) -> int:
        """Number of trials after which no other one begins."""
        return most_trials(self.spec)

    @property
    def spent_device_s(self) -> float:
        """Device-seconds so far, those of running trials as they were observed last among them."""
        return self.device_s + sum(self.trials[number].device_s for number in self.open)

    @property
    def spent_cost(self) -> float:
        """Cost of these, by the prices that held when they were observed."""
        return self.cost + sum(self.trials[number].cost for number in self.open)

    @property
    def stagnation(self) -> StagnationFigures | None:
        """Gain of the best value lately; None: no rule asks, or there is no value yet."""
        rule = self.spec.stagnation
        return None if rule is None else stagnation_figures(rule, self.spec.metrics[0].mode, self.gains, self.device_s)

    @property
    def lacks_price(self) -> bool:
        """Whether its budget is in money, and what its devices cost is not known yet: then no trial begins."""
        return self.spec.budget.cost is not None and self.price is None

    @property
    def wants_trial(self) -> bool:
        """Whether another trial is to begin now. After a job was refused none begins before one was admitted, or is submitted again."""
        is_waiting = bool(self.put_off) or self.lacks_price
        is_free = len(self.open) < self.spec.parallel and len(self.trials) < self.most_trials and not is_waiting
        return self.state is StudyState.RUNNING and is_free and (self.admitted or not self.rejected)

    @property
    def ends_at_ms(self) -> int | None:
        """Time by which its budget ends it."""
        wall_s = self.spec.budget.wall_s
        return None if wall_s is None else self.created_at_ms + round(wall_s * 1000)

    def with_trial(self, trial: Trial, **changes: Any) -> "StudyEntry":
        """With a trial added or replaced, and what follows from its state."""
        before = self.trials[trial.number] if trial.number < len(self.trials) else None
        counts = dict(self.counts)
        if before is not None:
            counts[before.state] -= 1
        counts[trial.state] = counts.get(trial.state, 0) + 1
        trials = (*self.trials[: trial.number], trial, *self.trials[trial.number + 1 :])
        still_open = tuple(each for each in self.open if each != trial.number)
        if not trial.state.final:
            still_open = tuple(sorted((*still_open, trial.number)))
        put_off = tuple(each for each in self.put_off if each != trial.number)
        if trial.due_ms is not None:
            put_off = tuple(sorted((*put_off, trial.number)))
        changes["put_off"] = put_off
        ended_s, ended_cost = (trial.device_s, trial.cost) if trial.state.final else (0.0, 0.0)
        counted = {state: count for state, count in counts.items() if count}
        device_s, cost = self.device_s + ended_s, self.cost + ended_cost
        return replace(self, trials=trials, open=still_open, counts=counted, device_s=device_s, cost=cost, **changes)

    def with_gain_of(self, ended: Trial) -> "StudyEntry":
        """With what a trial gained that has just ended, where a rule asks."""
        if self.spec.stagnation is None:
            return self
        return replace(self, gains=with_gain(self.gains, self.spec.metrics[0].mode, self.told_trial(ended), self.device_s))

    def told_trial(self, trial: Trial, up_to: int | None = None) -> ToldTrial:
        """One trial as a sampler gets to know it."""
        is_ended = trial.ended is not None and (up_to is None or trial.ended <= up_to)
        counts = is_ended and trial.state in (TrialState.COMPLETE, TrialState.STOPPED)
        metrics = [each.name for each in self.spec.metrics]
        has_all = all(name in trial.logged for name in metrics)
        seen = (each for each in trial.curve if up_to is None or each.number <= up_to)
        return ToldTrial(
            trial.number,
            trial.parameters,
            trial.state if is_ended else TrialState.RUNNING,
            tuple(trial.logged[name].value for name in metrics) if counts and has_all else None,
            tuple((rung_step(self.spec.early_stopping, each.rung) or 0, each.value) for each in seen),
        )

    def status(self, now_ms: int) -> StudyStatus:
        """Its whole status, with as many of its best trials as a record of the topic holds."""
        found = [self.trials[number] for number in self.best[:MOST_BEST]]
        summaries = (
            TrialSummary(
                trial=each.number,
                job_id=JobId(each.job_id),
                values={name: logged.value for name, logged in each.logged.items()},
                parameters=dict(each.parameters),
            )
            for each in found
        )
        return StudyStatus(
            project=self.project,
            study=self.study,
            number=self.number,
            state=self.state,
            reason=self.reason,
            user=self.user,
            best=_that_fit(summaries),
            trials={state: self.counts[state] for state in TrialState if state in self.counts},
            device_s=self.device_s,
            cost=None if self.price is None else self.cost,
            currency="" if self.price is None else self.price.currency,
            price=None if self.price is None else self.price.per_hour,
            stagnation=self.stagnation,
            created_at_ms=self.created_at_ms,
            updated_at_ms=now_ms,
        )


def _that_fit(summaries: Iterable[TrialSummary]) -> tuple[TrialSummary, ...]:
    """The first ones up to MOST_BEST_BYTES; one alone may have more, which is less than a request's bytes."""
    fit, size_bytes = list[TrialSummary](), 0
    for each in summaries:
        size_bytes += len(each.model_dump_json())
        if fit and size_bytes > MOST_BEST_BYTES:
            break
        fit.append(each)
    return tuple(fit)


def with_rungs(rungs: Mapping[int, tuple[float, ...]], reached: Iterable[RungValue]) -> dict[int, tuple[float, ...]]:
    """Values by rung, with those of rungs that a trial reached."""
    found = dict(rungs)
    for each in reached:
        found[each.rung] = (*found.get(each.rung, ()), each.value)
    return found


def most_trials(spec: StudySpec) -> int:
    """Number of trials after which a study begins no other one."""
    return spec.budget.trials or MOST_UNBOUNDED


def in_order(spec: StudySpec, values: Mapping[str, Value]) -> dict[str, Value]:
    """Values in the order of the study's parameters."""
    return {name: values[name] for name in spec.space if name in values}


def told(entry: StudyEntry, up_to: int | None = None) -> tuple[ToldTrial, ...]:
    """Trials as a sampler gets to know them, in the order of the journal: those that were known from the start first, then those that have
    ended. `up_to`: as they were after that decision of the study."""
    known = [trial for trial in entry.trials if up_to is None or trial.started <= up_to]
    found = [(trial, entry.told_trial(trial, up_to)) for trial in known]
    ordered = sorted(found, key=lambda each: (not each[1].state.final, (each[0].ended or 0) if each[1].state.final else 0, each[0].number))
    return (*known_from_start(entry.spec), *(each for _, each in ordered))


@dataclass(slots=True)
class TunerState:
    """`studies`: those that have not ended, by key; `ended`: numbers of the newest decisions of the others; `asked`: ids of requests;
    `names`: studies of all times, by project."""

    partition: int
    studies: dict[str, StudyEntry] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    asked: AskedIds = field(default_factory=AskedIds)
    names: dict[str, int] = field(default_factory=dict)

    def fork(self) -> "TunerState":
        """A copy to decide on."""
        return TunerState(self.partition, dict(self.studies), dict(self.ended), self.asked.fork(), dict(self.names))

    def copy(self) -> "TunerState":
        """A copy that keeps what is here now, whatever is folded into this one."""
        return TunerState(self.partition, dict(self.studies), dict(self.ended), self.asked.copy(), dict(self.names))

    def study(self, project: str, study: str) -> StudyEntry | None:
        """A study that has not ended."""
        return self.studies.get(study_key(project, study))

    def jobs(self) -> Iterator[tuple[StudyEntry, Trial]]:
        """Trials that have not ended."""
        return ((entry, entry.trials[number]) for entry in self.studies.values() for number in entry.open)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A trial that is to begin: values are suggested for it by what is known after decision `told`."""

    project: str
    study: str
    trial: int
    told: int


def wanted(state: TunerState) -> list[Wanted]:
    """Trials that are to begin, at most one of each study: the next one counts it in."""
    return [Wanted(each.project, each.study, len(each.trials), each.number) for each in state.studies.values() if each.wants_trial]


def study_key(project: str, study: str) -> str:
    """Key of a study's records."""
    return f"{project}/{study}"


def capture_tuning(state: TunerState) -> Callable[[], bytes]:
    """Returns a function that gives the canonical JSON of the state as it is now."""
    kept = state.copy()
    return lambda: _written(kept)


def load_tuning(data: bytes) -> TunerState:
    """Reads it back. Raises BrokenInvariant on a format that no step leads from."""
    raw = TUNING_FORMATS.lifted(parse(data))
    studies = [_study(each) for each in raw["studies"]]
    return TunerState(
        raw["partition"], {each.key: each for each in studies}, dict(raw["ended"]), AskedIds.load(raw["asked"]), dict(raw["names"])
    )


def _written(state: TunerState) -> bytes:
    return orjson.dumps(
        {
            "format": FORMAT,
            "partition": state.partition,
            "studies": [_study_json(state.studies[key]) for key in sorted(state.studies)],
            "ended": sorted(state.ended.items()),
            "asked": state.asked.dump(),
            "names": sorted(state.names.items()),
        },
        option=orjson.OPT_SORT_KEYS,
    )


def _study_json(entry: StudyEntry) -> dict[str, Any]:
    return {
        "project": entry.project,
        "study": entry.study,
        "spec": entry.spec.model_dump_json(),  # as text: the order of its parameters counts
        "user": entry.user,
        "asked_as": entry.asked_as,
        "created_at_ms": entry.created_at_ms,
        "number": entry.number,
        "state": entry.state,
        "reason": entry.reason,
        "trials": [_trial_json(trial) for trial in entry.trials],
        "best": entry.best,
        "device_s": entry.device_s,
        "rejected": entry.rejected,
        "admitted": entry.admitted,
        **_price_json(entry),
    }


def _price_json(entry: StudyEntry) -> dict[str, Any]:
    """Nothing for a study without a price: then there are no costs."""
    price = entry.price
    return {} if price is None else {"price": [price.per_hour, price.currency, price.version], "cost": entry.cost}


def _trial_json(trial: Trial) -> list[Any]:
    logged = sorted((name, each.step, _number(each.value)) for name, each in trial.logged.items())
    curve = [[each.number, each.rung, _number(each.value)] for each in trial.curve]
    about = [dict(trial.parameters), trial.job_id, trial.spec_sha256, trial.started, trial.state]
    known = [trial.device_s, trial.stopping, trial.ended, trial.submission, trial.due_ms]
    return [*about, logged, curve, *known, *([trial.cost] if trial.cost else [])]


def _number(value: float) -> float | str:
    """JSON has no NaN and no infinity."""
    return value if isfinite(value) else str(value)


def _study(raw: dict[str, Any]) -> StudyEntry:
    spec = read_stored(StudySpec, orjson.loads(raw["spec"]), "ignore")
    trials = tuple(_trial(spec, number, each) for number, each in enumerate(raw["trials"]))
    counts = {state: sum(trial.state is state for trial in trials) for state in TrialState}
    entry = StudyEntry(
        raw["project"],
        raw["study"],
        spec,
        raw["user"],
        raw["asked_as"],
        raw["created_at_ms"],
        raw["number"],
        StudyState(raw["state"]),
        raw["reason"],
        trials,
        tuple(trial.number for trial in trials if not trial.state.final),
        tuple(raw["best"]),
        raw["device_s"],
        {state: count for state, count in counts.items() if count},
        raw["rejected"],
        raw["admitted"],
        with_rungs({}, sorted((each for trial in trials for each in trial.curve), key=lambda each: each.number)),
        tuple(trial.number for trial in trials if trial.due_ms is not None),
        DevicePrice(*raw["price"]) if "price" in raw else None,
        raw.get("cost", 0.0),
    )
    return replace(entry, gains=_gains(entry))


def _gains(entry: StudyEntry) -> tuple[Gain, ...]:
    """Gains of a study's best value: they follow from its trials, in the order in which these ended."""
    gains, device_s = tuple[Gain, ...](), 0.0
    if entry.spec.stagnation is None:
        return gains
    for trial in sorted((each for each in entry.trials if each.ended is not None), key=lambda each: each.ended or 0):
        device_s += trial.device_s
        gains = with_gain(gains, entry.spec.metrics[0].mode, entry.told_trial(trial), device_s)
    return gains


def _trial(spec: StudySpec, number: int, raw: list[Any]) -> Trial:
    parameters, job_id, spec_sha256, started, state, logged, curve, device_s, stopping, ended, submission, due_ms, *cost = raw
    return Trial(
        number,
        in_order(spec, parameters),
        job_id,
        spec_sha256,
        started,
        TrialState(state),
        {name: LoggedValue(step, float(value)) for name, step, value in logged},
        tuple(RungValue(at, rung, float(value)) for at, rung, value in curve),
        device_s,
        stopping,
        ended,
        submission=submission,
        due_ms=due_ms,
        cost=cost[0] if cost else 0.0,
    )
