"""Device-seconds until a trial is as good as the best of 200 full TPE trials: our rules of early stopping beside Optuna's Hyperband.

A table of learning curves (`tests/bench/scripts/digits_curves.py`) stands for training, one virtual clock and eight workers for the fleet: a
trial is the configuration of the table that is nearest to the suggested values, and each of its 27 epochs takes the seconds that it took. Nothing
but the search differs, and all of it follows from the seeds. `TRAINHOUSE_BENCH_SEEDS=5` makes fewer than the 30 seeds.
"""

import heapq
import os
import warnings
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import median
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import optuna
import pyarrow.parquet as pq

from tests.bench import report
from tests.bench.scripts.digits_curves import BATCHES, EPOCHS, TABLE
from tests.support.told_trials import study_spec
from trainhouse.events.model.spec import MetricMode
from trainhouse.events.model.study import EarlyStopping, StoppingName, StudySpec
from trainhouse.events.model.study_decisions import TrialState
from trainhouse.scheduler.core.studies.stopping import rung_step, rungs_passed, why_stopped
from trainhouse.scheduler.core.studies.told import ToldTrial
from trainhouse.scheduler.stream.studies.optuna_sampler import suggest
from trainhouse.scheduler.stream.studies.parameter_values import distribution

SEEDS = int(os.environ.get("TRAINHOUSE_BENCH_SEEDS", "30"))
WORKERS, FULL_TRIALS, MOST_TRIALS = 8, 200, 800
SPACE: dict[str, dict[str, Any]] = {
    "lr": {"low": 1e-4, "high": 10**0.5, "log": True},
    "momentum": {"low": 0.0, "high": 0.99},
    "hidden": {"low": 4, "high": 128, "log": True, "type": "int"},
    "batch": {"choices": list(BATCHES)},
}
NONE = EarlyStopping(name=StoppingName.NONE)
ASHA = EarlyStopping(name=StoppingName.ASHA, min_step=1, reduction=3, max_step=9)
MEDIAN = EarlyStopping(name=StoppingName.MEDIAN, min_step=1, reduction=3, max_step=9)


class Table:
    """Curves by configuration."""

    def __init__(self) -> None:
        columns = pq.read_table(TABLE).to_pydict()
        self.losses = np.nan_to_num(np.array(columns["loss"]).reshape(-1, EPOCHS), nan=1e6, posinf=1e6)
        self.seconds = np.array(columns["seconds"]).reshape(-1, EPOCHS)
        firsts = {name: np.array(columns[name][::EPOCHS]) for name in SPACE}
        self._points = np.stack([self._place(firsts[name], name) for name in SPACE], axis=1)

    def nearest(self, values: dict[str, Any]) -> int:
        """Returns the configuration that is nearest to values."""
        point = np.array([self._place(np.array([values[name]]), name)[0] for name in SPACE])
        return int(((self._points - point) ** 2).sum(axis=1).argmin())

    @staticmethod
    def _place(values: npt.NDArray[Any], name: str) -> npt.NDArray[np.float64]:
        """Places between 0 and 1."""
        if name == "batch":
            return np.array([BATCHES.index(each) / (len(BATCHES) - 1) for each in values])
        low, high = SPACE[name]["low"], SPACE[name]["high"]
        if SPACE[name].get("log"):
            values, low, high = np.log(values), np.log(low), np.log(high)
        return np.asarray((values - low) / (high - low))


class Search(Protocol):
    """Suggestions and stops of one study."""

    def begin(self, number: int) -> dict[str, Any]: ...
    def goes_on(self, number: int, epoch: int, loss: float) -> bool: ...
    def end(self, number: int, loss: float, stopped: bool) -> None: ...


@dataclass
class Ours:
    """Our sampler and our rules."""

    stopping: EarlyStopping
    seed: int
    trials: dict[int, ToldTrial] = field(default_factory=dict)
    rungs: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))

    @cached_property
    def spec(self) -> StudySpec:
        return study_spec(SPACE, seed=self.seed, early_stopping=self.stopping)

    def begin(self, number: int) -> dict[str, Any]:
        suggestion = suggest(self.spec, list(self.trials.values()), number)
        assert not suggestion.failure, suggestion.failure
        self.trials[number] = ToldTrial(number, suggestion.values, TrialState.RUNNING, None, ())
        return suggestion.values

    def goes_on(self, number: int, epoch: int, loss: float) -> bool:
        for rung in rungs_passed(self.stopping, epoch - 1, epoch):
            trial = self.trials[number]
            self.trials[number] = replace(trial, curve=(*trial.curve, (rung_step(self.stopping, rung) or epoch, loss)))
            ended = sum(each.state.final for each in self.trials.values())
            reason = why_stopped(self.stopping, MetricMode.MIN, rung, loss, self.rungs[rung], ended)
            self.rungs[rung].append(loss)
            if reason:
                return False
        return True

    def end(self, number: int, loss: float, stopped: bool) -> None:
        state = TrialState.STOPPED if stopped else TrialState.COMPLETE
        self.trials[number] = replace(self.trials[number], state=state, objectives=(loss,))


class Hyperband:
    """Optuna's TPE and its Hyperband."""

    def __init__(self, seed: int) -> None:
        pruner = optuna.pruners.HyperbandPruner(min_resource=1, max_resource=EPOCHS, reduction_factor=3)
        sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        # The name decides the bracket of a trial.
        self.study = optuna.create_study(study_name=f"digits-{seed}", sampler=sampler, pruner=pruner)
        self.space = {name: distribution(parameter) for name, parameter in study_spec(SPACE).space.items()}
        self.trials: dict[int, optuna.Trial] = {}

    def begin(self, number: int) -> dict[str, Any]:
        trial = self.trials[number] = self.study.ask(self.space)
        return {**trial.params, "batch": BATCHES[trial.params["batch"]]}

    def goes_on(self, number: int, epoch: int, loss: float) -> bool:
        self.trials[number].report(loss, epoch)
        return not self.trials[number].should_prune()

    def end(self, number: int, loss: float, stopped: bool) -> None:
        self.study.tell(number, None if stopped else loss, optuna.trial.TrialState.PRUNED if stopped else None)


@dataclass(frozen=True)
class Found:
    """Best loss of a search, and device-seconds until it had it; of a search for a loss, until it was there."""

    loss: float
    device_s: float
    trials: int


def searched(table: Table, search: Search, most: int, target: float = -np.inf) -> Found:
    """Runs a study on the virtual clock until a whole trial is as good as `target`, or `most` have begun and ended."""
    queue: list[tuple[float, int, int, int]] = []
    begun, used, best = 0, 0.0, Found(np.inf, 0.0, 0)

    def begin(now_s: float) -> None:
        nonlocal begun
        if begun < most:
            at = table.nearest(search.begin(begun))
            heapq.heappush(queue, (now_s + float(table.seconds[at, 0]), begun, at, 1))
            begun += 1

    for _ in range(WORKERS):
        begin(0.0)
    while queue:
        now_s, number, at, epoch = heapq.heappop(queue)
        loss = float(table.losses[at, epoch - 1])
        used += float(table.seconds[at, epoch - 1])
        if epoch < EPOCHS and search.goes_on(number, epoch, loss):
            heapq.heappush(queue, (now_s + float(table.seconds[at, epoch]), number, at, epoch + 1))
            continue
        search.end(number, loss, epoch < EPOCHS)
        if epoch == EPOCHS and loss < best.loss:
            best = Found(loss, used, begun)
            if loss <= target:
                return best
        begin(now_s)
    return best if best.loss <= target or target == -np.inf else Found(best.loss, used, begun)


def run() -> None:
    """Prints the medians over the seeds."""
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    table = Table()
    device_s: dict[str, list[float]] = defaultdict(list)
    reached: dict[str, int] = defaultdict(int)
    for seed in range(SEEDS):
        full = searched(table, Ours(NONE, seed), FULL_TRIALS)
        device_s["full"].append(full.device_s)
        searches: dict[str, Search] = {"asha": Ours(ASHA, seed), "median": Ours(MEDIAN, seed), "optuna_hyperband": Hyperband(seed)}
        for name, search in searches.items():
            found = searched(table, search, MOST_TRIALS, full.loss)
            device_s[name].append(found.device_s)
            reached[name] += found.loss <= full.loss
    medians = {name: median(values) for name, values in device_s.items()}
    less = {name: 1 - medians[name] / medians["full"] for name in reached}
    report.line("study_early_stopping", seeds=SEEDS, workers=WORKERS, device_s=medians, less=less, reached=dict(reached), aim_less=0.6)
