"""What a suggestion costs after 5,000 trials: ours, beside Optuna's own study in memory of the same trials.

Times are of the processor, so that neighbours on the machine do not count. Each round one more trial has ended; the first suggestion, of a
process that knows nothing yet, stands by itself. Both suggest the same values (`tests/unit/scheduler/stream/studies`).
"""

import time
import warnings
from collections.abc import Callable
from statistics import median
from typing import Any

import optuna

from tests.bench import report
from tests.support.told_trials import SPACE, loss, study_spec
from tests.support.told_trials import run as run_trials
from trainhouse.events.model.study_decisions import TrialState
from trainhouse.scheduler.core.studies.told import ToldTrial
from trainhouse.scheduler.stream.studies.optuna_sampler import sampler_seed, suggest
from trainhouse.scheduler.stream.studies.parameter_values import distribution

TRIALS, ROUNDS = 5000, 15
SAMPLERS: dict[str, Callable[[int], optuna.samplers.BaseSampler]] = {
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed, constant_liar=True),
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
}


def run() -> None:
    """Prints a figure for each sampler."""
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    drawn = study_spec(SPACE, "random")
    trials = run_trials(drawn, TRIALS, lambda spec, _, number: suggest(spec, (), number).values)
    for name, sampler in SAMPLERS.items():
        _beside_optuna(name, sampler, list(trials))


def _beside_optuna(name: str, sampler: Callable[[int], optuna.samplers.BaseSampler], trials: list[ToldTrial]) -> None:
    spec = study_spec(SPACE, name)
    distributions = {parameter: distribution(each) for parameter, each in spec.space.items()}
    study = optuna.create_study()
    for trial in trials:
        study.add_trial(optuna.trial.create_trial(params=dict(trial.values), distributions=distributions, values=trial.objectives))
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(TRIALS, TRIALS + ROUNDS):
        study.sampler = sampler(sampler_seed(spec.seed, number))
        values, seconds = _timed(lambda at=number: suggest(spec, trials, at).values)
        ours.append(seconds)
        theirs.append(_timed(lambda: study.ask(distributions))[1])
        result = (loss(values),)
        study.tell(number, result)
        trials.append(ToldTrial(number, values, TrialState.COMPLETE, result, ()))
    ratio = median(ours[1:]) / median(theirs[1:])
    report.line(
        "study_suggest",
        sampler=name,
        trials=TRIALS,
        cpu_s=median(ours[1:]),
        first_cpu_s=ours[0],
        optuna_cpu_s=median(theirs[1:]),
        ratio=ratio,
    )


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    begun_s = time.process_time()
    result = call()
    return result, time.process_time() - begun_s
