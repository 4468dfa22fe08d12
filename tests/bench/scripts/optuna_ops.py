"""One process of several that use a storage of Optuna's: `optuna_ops.py ours|sqlite PLACE TRIALS`; waits for a line on its input.

Operations of a trial: it is created, has three parameters, reports a value, ends; then all trials are asked for, as samplers do.
"""

import json
import sys
import time

import optuna
from optuna.distributions import FloatDistribution
from optuna.storages import BaseStorage, RDBStorage
from optuna.trial import TrialState

PARAMS = 3
OPERATIONS = PARAMS + 4


def storage_of(kind: str, place: str) -> BaseStorage:
    """Ours by its name, or SQLite in a file, which waits for its turn as long as it takes."""
    if kind == "sqlite":
        return RDBStorage(f"sqlite:///{place}", engine_kwargs={"connect_args": {"timeout": 600}})
    from trainhouse.client import optuna_storage

    return optuna_storage(place)


def main() -> None:
    """Prints how long each trial took."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    kind, place, trials = sys.argv[1], sys.argv[2], int(sys.argv[3])
    storage = storage_of(kind, place)
    study = optuna.create_study(storage=storage, study_name="bench", load_if_exists=True)
    print("ready", flush=True)
    sys.stdin.readline()
    distribution, took_ms = FloatDistribution(0.0, 1.0), list[float]()
    for _ in range(trials):
        began_s = time.perf_counter()
        trial_id = storage.create_new_trial(study._study_id)
        for number in range(PARAMS):
            storage.set_trial_param(trial_id, f"x{number}", 0.5, distribution)
        storage.set_trial_intermediate_value(trial_id, 0, 0.5)
        storage.set_trial_state_values(trial_id, TrialState.COMPLETE, [0.5])
        storage.get_all_trials(study._study_id, deepcopy=False)
        took_ms.append((time.perf_counter() - began_s) * 1000)
    print(json.dumps(took_ms), flush=True)


if __name__ == "__main__":
    main()
