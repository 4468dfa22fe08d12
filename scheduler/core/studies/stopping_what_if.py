"""Early stopping of a study, decided anew over what was recorded of its trials. Pure.

Holds: reports are judged in the order in which the tuner recorded them, by the rules that it has (`stopping`); the rule that a study had
decides as it did. A trial whose recorded curve ends before another rule has decided is UNKNOWN. A decision that values after such an end,
whatever they are, could turn is doubtful, and so is all that rests on it.
Never: suggests other trials: had some ended earlier, the sampler might have gone on elsewhere.

Device-seconds up to a step are that step's share of all steps that the trial made; those of an UNKNOWN trial are what it had.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from sys import float_info
from typing import Final

from trainhouse.events.model.spec import MetricMode
from trainhouse.events.model.study import EarlyStopping, Objective
from trainhouse.events.model.study_decisions import TrialState
from trainhouse.scheduler.core.studies.best import best_with
from trainhouse.scheduler.core.studies.stopping import rung_step, rungs_passed, why_stopped
from trainhouse.scheduler.core.studies.trial_record import ToldTrial


class FactKind(StrEnum):
    """Kind of a decision about a trial, as `study_facts` names it."""

    STARTED = "trial-started"
    BEGAN = "trial-began"
    VALUE = "value"
    STOPPING = "trial-stopping"
    ENDED = "trial-ended"


@dataclass(frozen=True, slots=True)
class TrialFact:
    """One decision about a trial. `number`: its place among those of the study; `value`: of the first metric; `early`: of STOPPING, whether
    it is by the rule."""

    number: int
    kind: FactKind
    trial: int
    step: int = 0
    value: float | None = None
    early: bool = False
    state: TrialState = TrialState.WAITING
    device_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Stop:
    """End of a trial by the rule: at which report. `number`: of the study's decision that recorded it."""

    number: int
    rung: int
    step: int
    why: str


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """A trial as it was, and as it would have been. `state`: None where its curve ends too early to say; then `device_s` is the least that
    it would have had, and `value` None. `is_doubtful`: whether values that nobody has could turn it."""

    trial: int
    recorded_state: TrialState
    recorded_device_s: float
    recorded_value: float | None
    recorded_step: int | None
    state: TrialState | None
    device_s: float
    value: float | None
    stop: Stop | None
    is_doubtful: bool


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A study as it was, and under another rule. `recorded_best`, `best`: the best trial; None: none has a value that counts."""

    stopping: EarlyStopping
    trials: tuple[TrialOutcome, ...]
    recorded_best: int | None
    best: int | None
    late_reports: int
    """Judgements by a report beyond the rung's step: what came between was not recorded, or not logged."""

    @property
    def recorded_device_s(self) -> float:
        """Device-seconds that its trials had."""
        return sum(each.recorded_device_s for each in self.trials)

    @property
    def device_s(self) -> float:
        """Device-seconds that they would have had, at least."""
        return sum(each.device_s for each in self.trials)

    @property
    def unknown(self) -> list[int]:
        """Trials whose curves end too early to say."""
        return [each.trial for each in self.trials if each.state is None]

    @property
    def doubtful(self) -> list[int]:
        """Trials whose outcome rests on values that nobody has, UNKNOWN ones left out."""
        return [each.trial for each in self.trials if each.is_doubtful and each.state is not None]


@dataclass(slots=True)
class _Record:
    """Record of one trial, known from the start. `last`: number of its last report; `stop`: of that at which it was ended early; `is_cut`:
    whether it would have had further ones."""

    last: int | None = None
    stop: int | None = None
    is_cut: bool = False


@dataclass(slots=True)
class _Course:
    """One trial so far. `judged`: whether the rule may still end it."""

    number: int
    record: "_Record"
    state: TrialState = TrialState.RUNNING
    last_step: int | None = None
    value: float | None = None
    device_s: float = 0.0
    reached: set[int] = field(default_factory=set)
    judged: bool = True
    stop: Stop | None = None
    stop_value: float | None = None
    is_doubtful: bool = False
    has_ended: bool = False

    @property
    def is_gone(self) -> bool:
        """Whether it ended here where it went on in the record."""
        return self.stop is not None and self.stop.number != self.record.stop

    @property
    def is_unknown(self) -> bool:
        """Whether it goes on here beyond the end of its record."""
        return self.record.is_cut and self.stop is None


def decide_anew(metrics: Sequence[Objective], stopping: EarlyStopping, facts: Iterable[TrialFact]) -> WhatIf:
    """Returns what `stopping` makes of the recorded facts of a study. Raises ValueError for a study of several metrics."""
    if len(metrics) != 1:
        raise ValueError(f"early stopping is for one metric, and the study has {len(metrics)}")
    ordered = sorted(facts, key=lambda each: each.number)
    retrial = _Retrial(stopping, metrics[0].mode, _records(ordered))
    for fact in ordered:
        retrial.take(fact)
    outcomes = tuple(_outcome(course) for _, course in sorted(retrial.courses.items()))
    recorded = ((each.trial, each.recorded_state, each.recorded_value) for each in outcomes)
    then = ((each.trial, each.state, each.value) for each in outcomes)
    return WhatIf(stopping, outcomes, _best(metrics, recorded), _best(metrics, then), retrial.late_reports)


def _records(ordered: Iterable[TrialFact]) -> dict[int, _Record]:
    found: dict[int, _Record] = {}
    for fact in ordered:
        record = found.setdefault(fact.trial, _Record())
        match fact.kind:
            case FactKind.VALUE:
                record.last = fact.number
            case FactKind.STOPPING if fact.early:
                record.stop, record.is_cut = record.last, True
            case FactKind.ENDED:
                record.is_cut = record.is_cut and fact.state is TrialState.STOPPED
    return found


@dataclass(slots=True)
class _Retrial:
    """A study that is decided anew. `rungs`: by rung, trials that reached it with their values, in their order."""

    stopping: EarlyStopping
    mode: MetricMode
    records: dict[int, _Record]
    courses: dict[int, _Course] = field(default_factory=dict)
    rungs: dict[int, list[tuple[int, float, bool]]] = field(default_factory=dict)
    late_reports: int = 0

    def take(self, fact: TrialFact) -> None:
        course = self.courses.get(fact.trial)
        if course is None:
            course = self.courses[fact.trial] = _Course(fact.trial, self.records[fact.trial])
        course.device_s = max(course.device_s, fact.device_s)
        match fact.kind:
            case FactKind.VALUE if fact.value is not None:
                course.last_step, course.value = fact.step, fact.value
                if not course.is_gone:
                    self.report(course, fact.number, fact.step, fact.value)
                    course.is_doubtful = course.is_doubtful or (course.is_unknown and fact.number == course.record.last)
            case FactKind.STOPPING if not fact.early:
                course.judged = False
            case FactKind.ENDED:
                course.state = fact.state
                course.has_ended = True
                if course.last_step is None:  # its values are those of an equal trial
                    course.value = fact.value

    def report(self, course: _Course, number: int, step: int, value: float) -> None:
        rungs = [rung for rung in rungs_passed(self.stopping, None, step) if rung not in course.reached]
        if not rungs:
            return
        ended = sum(each.has_ended or each.is_gone for each in self.courses.values())
        others = {rung: list(self.rungs.get(rung, ())) for rung in rungs}
        for rung in rungs:
            course.reached.add(rung)
            self.rungs.setdefault(rung, []).append((course.number, value, course.is_doubtful))
        if not course.judged or course.stop is not None:
            return
        for rung in rungs:
            self.late_reports += step != rung_step(self.stopping, rung)
            why = why_stopped(self.stopping, self.mode, rung, value, [each for _, each, _ in others[rung]], ended)
            if not self.is_certain(course, rung, value, others[rung], bool(why)):
                course.is_doubtful = True
            if why:
                course.stop, course.stop_value = Stop(number, rung, step, why), value
                return

    def is_certain(self, course: _Course, rung: int, value: float, others: list[tuple[int, float, bool]], stops: bool) -> bool:
        """Whether a decision is the same whatever doubtful trials did at this rung: none of them was there, or all were, with the best or
        with the worst of values."""
        doubtful = [each for each in self.courses.values() if each.is_doubtful and each is not course]
        if not doubtful:
            return True
        known = [each for _, each, is_doubtful in others if not is_doubtful]
        there = {number for number, _, is_doubtful in others if not is_doubtful}
        room = sum(each.number not in there for each in doubtful)
        ended = sum((each.has_ended or each.is_gone) and not each.is_doubtful for each in self.courses.values())
        worst = self.mode.sign * float_info.max
        most = why_stopped(self.stopping, self.mode, rung, value, [*known, *[-worst] * room], ended + len(doubtful))
        least = why_stopped(self.stopping, self.mode, rung, value, [*known, *[worst] * room], ended)
        return bool(most) is bool(least) is stops


_COUNT: Final = (TrialState.COMPLETE, TrialState.STOPPED)


def _outcome(course: _Course) -> TrialOutcome:
    counted = course.value if course.state in _COUNT else None
    recorded = (course.number, course.state, course.device_s, counted, course.last_step)
    if course.is_unknown:
        return TrialOutcome(*recorded, None, course.device_s, None, None, True)
    if not course.is_gone or course.stop is None:
        return TrialOutcome(*recorded, course.state, course.device_s, counted, course.stop, course.is_doubtful)
    share = min(1.0, course.stop.step / course.last_step) if course.last_step else 1.0
    about = (course.device_s * share, course.stop_value, course.stop, course.is_doubtful)
    return TrialOutcome(*recorded, TrialState.STOPPED, *about)


def _best(metrics: Sequence[Objective], trials: Iterable[tuple[int, TrialState | None, float | None]]) -> int | None:
    """Returns the best trial as the tuner chooses it."""
    best: list[ToldTrial] = []
    for number, state, value in trials:
        if state is None or value is None:
            continue
        trial = ToldTrial(number, {}, state, (value,), ())
        best = [trial] if best_with(metrics, best, trial) == [number] else best
    return best[0].number if best else None
