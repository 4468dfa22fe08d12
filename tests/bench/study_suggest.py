"""What a suggestion costs after 5,000 trials: ours, beside Optuna's own study in memory of the same trials.

Times are of the processor, so that neighbours on the machine do not count. Each round one more trial has ended; the first suggestion, of a
process that knows nothing yet, stands by itself. Both suggest the same values (`tests/unit/scheduler/stream/studies`).
"""

import time
import warnings
from statistics import median

import optuna

from tests.bench import report
from tests.support.told_trials import SPACE, loss, study_spec
from tests.support.told_trials import run as run_trials
from trainhouse.events.model.study_decisions import TrialState
from trainhouse.scheduler.core.studies.trial_record import ToldTrial
from trainhouse.scheduler.stream.studies.optuna_sampler import sampler_seed, suggest
from trainhouse.scheduler.stream.studies.parameter_values import distribution

TRIALS, ROUNDS = 5000, 15


def run() -> None:
    """Prints the figure of TPE."""
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    trials = run_trials(study_spec(SPACE, "random"), TRIALS, lambda drawn, _, number: suggest(drawn, (), number).values)
    spec = study_spec(SPACE, "tpe")
    distributions = {parameter: distribution(each) for parameter, each in spec.space.items()}
    study = optuna.create_study()
    for trial in trials:
        study.add_trial(optuna.trial.create_trial(params=dict(trial.values), distributions=distributions, values=trial.objectives))
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(TRIALS, TRIALS + ROUNDS):
        study.sampler = optuna.samplers.TPESampler(seed=sampler_seed(spec.seed, number), constant_liar=True)
        begun_s = time.process_time()
        values = suggest(spec, trials, number).values
        ours.append(time.process_time() - begun_s)
        begun_s = time.process_time()
        study.ask(distributions)
        theirs.append(time.process_time() - begun_s)
        result = (loss(values),)
        study.tell(number, result)
        trials.append(ToldTrial(number, values, TrialState.COMPLETE, result, ()))
    ratio = median(ours[1:]) / median(theirs[1:])
    report.line(
        "study_suggest", trials=TRIALS, cpu_s=median(ours[1:]), first_cpu_s=ours[0], optuna_cpu_s=median(theirs[1:]), ratio=ratio, aim=1.2
    )
