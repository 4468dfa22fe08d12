"""Processes that use one storage of Optuna's at once: `optuna_ops.py ours|sqlite PLACE TRIALS PROCESSES`.

Operations of a trial: it is created, has three parameters, reports a value, ends; then all trials are asked for, as samplers do.
"""

import json
import multiprocessing
import sys
import time
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier

import optuna
from optuna.distributions import FloatDistribution
from optuna.storages import BaseStorage, RDBStorage
from optuna.trial import TrialState

PARAMS = 3
STUDY = "bench"
OPERATIONS = PARAMS + 4


def storage_of(kind: str, place: str) -> BaseStorage:
    """Ours by its name, or SQLite in a file, which waits for its turn as long as it takes."""
    if kind == "sqlite":
        return RDBStorage(f"sqlite:///{place}", engine_kwargs={"connect_args": {"timeout": 600}})
    from trainhouse.client import optuna_storage

    return optuna_storage(place)


def worked(kind: str, place: str, trials: int, barrier: Barrier, answers: "SimpleQueue[list[float]]") -> None:
    """One process's trials, from when all of them are ready; answers with what each took."""
    storage = storage_of(kind, place)
    study_id = storage.get_study_id_from_name(STUDY)
    distribution, took_ms = FloatDistribution(0.0, 1.0), list[float]()
    barrier.wait()
    for _ in range(trials):
        began_s = time.perf_counter()
        trial_id = storage.create_new_trial(study_id)
        for number in range(PARAMS):
            storage.set_trial_param(trial_id, f"x{number}", 0.5, distribution)
        storage.set_trial_intermediate_value(trial_id, 0, 0.5)
        storage.set_trial_state_values(trial_id, TrialState.COMPLETE, [0.5])
        storage.get_all_trials(study_id, deepcopy=False)
        took_ms.append((time.perf_counter() - began_s) * 1000)
    answers.put(took_ms)


def main() -> None:
    """Prints how long all took, and each trial."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    kind, place, trials, processes = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    optuna.create_study(storage=storage_of(kind, place), study_name=STUDY)
    forking = multiprocessing.get_context("fork")  # what is imported need not be imported by each
    barrier, answers = forking.Barrier(processes + 1), forking.SimpleQueue()
    workers = [forking.Process(target=worked, args=(kind, place, trials, barrier, answers)) for _ in range(processes)]
    for worker in workers:
        worker.start()
    barrier.wait()
    began_s = time.perf_counter()
    took_ms = [each for _ in workers for each in answers.get()]
    print(json.dumps({"took_s": time.perf_counter() - began_s, "took_ms": took_ms}), flush=True)


if __name__ == "__main__":
    main()
