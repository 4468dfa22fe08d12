"""Scripts of an attempt's ranks: times to start, step and save, run time, and end.

Holds: what a job says of itself (labels `emulate.run_s` …, or variables `EMULATE_RUN_S` …) goes before a rule of the script, and that
before the fleet's defaults; the same attempt gets the same script on every node.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from trainhouse.events import GangAllocated, JobSpec
from trainhouse.workers.fleet.durations import Durations
from trainhouse.workers.fleet.faults import FaultPlan
from trainhouse.workers.fleet.seeded_random import draw, pick

LABEL = "emulate."
VARIABLE = "EMULATE_"
# Name -> whether 0 is allowed. All are seconds, but for exit_code, crash_rank and crash_attempts, which are whole numbers.
SECONDS = {"run_s": False, "start_s": True, "step_s": False, "save_s": True, "checkpoint_s": True, "stop_s": True, "crash_s": True}
NUMBERS = ("exit_code", "crash_rank", "crash_attempts")
WISHES = (*SECONDS, *NUMBERS)
MAX_VALUE = 1e8


class UnsupportedEmulationError(ValueError):
    """A job asks for something that cannot be emulated; the text says what to write."""


@dataclass(frozen=True)
class Rule:
    """Rule of the script file for jobs whose name (or id) matches."""

    name: str
    wishes: Mapping[str, float]


@dataclass(frozen=True)
class Defaults:
    """The fleet's own: for jobs that say nothing. Seconds; `checkpoint_s` 0: saves only when asked."""

    start_s: float = 0.2
    step_s: float = 5.0
    save_s: float = 1.0
    checkpoint_s: float = 60.0
    stop_s: float = 0.1


@dataclass(frozen=True)
class RankScript:
    """One attempt's ranks, milliseconds. `crash_at_ms`: so long after the whole gang is up, `crash_rank` fails."""

    run_ms: int
    start_ms: int
    step_ms: int
    save_ms: int
    checkpoint_ms: int
    stop_ms: int
    exit_code: int
    crash_at_ms: int | None
    crash_rank: int

    @property
    def total_steps(self) -> int:
        return max(1, -(-self.run_ms // self.step_ms))


@dataclass(frozen=True)
class Scripts:
    """Makes scripts."""

    durations: Durations
    defaults: Defaults = field(default_factory=Defaults)
    rules: tuple[Rule, ...] = ()
    faults: FaultPlan = field(default_factory=FaultPlan)
    seed: int = 0

    def of(self, allocation: GangAllocated) -> RankScript:
        """The script of one attempt. Raises UnsupportedEmulationError."""
        spec, job_id = allocation.spec, str(allocation.job_id)
        wishes = self._rule(spec, job_id) | wishes_of(spec)
        defaults = self.defaults

        def ms(name: str, default_s: float) -> int:
            return round(wishes.get(name, default_s) * 1000)

        return RankScript(
            run_ms=max(1, round(wishes["run_s"] * 1000) if "run_s" in wishes else round(self.durations.run_s(self.seed, job_id) * 1000)),
            start_ms=ms("start_s", defaults.start_s),
            step_ms=max(1, ms("step_s", defaults.step_s)),
            save_ms=ms("save_s", defaults.save_s),
            checkpoint_ms=ms("checkpoint_s", defaults.checkpoint_s),
            stop_ms=ms("stop_s", defaults.stop_s),
            exit_code=int(wishes.get("exit_code", 0)),
            crash_at_ms=self._crash_ms(allocation, wishes),
            crash_rank=int(wishes.get("crash_rank", pick(self.seed, allocation.world_size, "rank", job_id))) % allocation.world_size,
        )

    def slow_ms(self, allocation: GangAllocated, node_id: str) -> int:
        """Returns the delay of one node's start of its ranks."""
        return round(self.faults.slow_start_s(self.seed, str(allocation.job_id), int(allocation.epoch), node_id) * 1000)

    def _crash_ms(self, allocation: GangAllocated, wishes: Mapping[str, float]) -> int | None:
        job_id, epoch = str(allocation.job_id), int(allocation.epoch)
        if "crash_s" in wishes:
            return round(wishes["crash_s"] * 1000) if int(allocation.attempt) < wishes.get("crash_attempts", 1) else None
        if self.faults.crashes(self.seed, job_id, epoch):
            run_s = wishes.get("run_s", self.durations.run_s(self.seed, job_id))
            return round(run_s * 1000 * draw(self.seed, "crash at", job_id, epoch))
        return None

    def _rule(self, spec: JobSpec, job_id: str) -> dict[str, float]:
        for rule in self.rules:
            if fnmatchcase(spec.name, rule.name) or fnmatchcase(job_id, rule.name):
                return dict(rule.wishes)
        return {}


def wishes_of(spec: JobSpec) -> dict[str, float]:
    """Returns the wishes of the job itself. Raises UnsupportedEmulationError."""
    found: dict[str, float] = {}
    for name, text in spec.env.items():
        if name.startswith(VARIABLE):
            found[_known(name, name.removeprefix(VARIABLE).lower())] = wish(name, text)
    for name, text in spec.labels.items():
        if name.startswith(LABEL):
            found[_known(name, name.removeprefix(LABEL))] = wish(name, text)
    return found


def _known(written: str, name: str) -> str:
    if name not in WISHES:
        raise UnsupportedEmulationError(f"{written}: nothing like this can be emulated; there are {', '.join(WISHES)}")
    return name


def wish(written: str, value: object) -> float:
    """One value, checked. Raises UnsupportedEmulationError."""
    name = written.removeprefix(LABEL).removeprefix(VARIABLE).lower()
    try:
        number = float(str(value))
    except ValueError:
        raise UnsupportedEmulationError(f"{written} is {value!r}: write a number") from None
    low_ok = number >= 0 if SECONDS.get(name, True) else number > 0
    if not (low_ok and number <= MAX_VALUE) or (name in NUMBERS and number != int(number)):
        raise UnsupportedEmulationError(f"{written} is {value!r}: write {'a whole number' if name in NUMBERS else 'seconds'} that can be")
    return number
