"""Columns of studies and trials as lists and commands show them, and the rows that they make.

Holds: pure; the gateway and the command line give the same rows, whichever of them asked. Times are milliseconds since 1970, UTC.
"""

from typing import Any, Final

import orjson

OF_STUDY: Final = "project = {project:String} AND study = {study:String}"
_TIMES: Final = "toUnixTimestamp64Milli({0}) AS {0}_ms"


def _columns(plain: str, *times: str) -> str:
    return ", ".join((plain, *(_TIMES.format(name) for name in times)))


STUDY_COLUMNS: Final = _columns(
    "project, study, state, reason, user, metrics, modes, sampler, early_stopping, parallel, budget_trials, budget_device_s, "
    "budget_wall_s, trials, best_json, device_s, budget_cost, studies.cost AS spent_cost, currency, price_per_gpu_hour, max_failed, "
    "stagnation_json",
    "created_at",
    "updated_at",
)
TRIAL_COLUMNS: Final = _columns(
    "trial, state, metric, value, values, step, parameters_json, best, job_id, device_s, stopped_early, reason, enqueued",
    "started_at",
    "began_at",
    "ended_at",
)
FACT_COLUMNS: Final = _columns(
    # As text: JSON has neither NaN nor infinities.
    "number, fact, trial, step, early, state, device_s, if(empty(figures), '', toString(figures[1])) AS value",
    "at",
)
"""Of `study_facts`; `value`: of the only metric of a study that has one."""
FACT_WHERE: Final = "fact IN ('trial-started', 'trial-began', 'value', 'trial-stopping', 'trial-ended')"
COST_COLUMNS: Final = "state, trials, device_s, saved_device_s, cost, currency, saved_cost, ran_trials"


def study_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row of STUDY_COLUMNS with `best`, `stagnation` and, where it has one, its spec as objects."""
    found = {name: value for name, value in row.items() if name not in ("best_json", "stagnation_json", "spec")}
    found["best"] = orjson.loads(row["best_json"] or "[]")
    found["stagnation"] = orjson.loads(row["stagnation_json"] or "null")
    return found | ({"spec": orjson.loads(row["spec"])} if "spec" in row else {})


def trial_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row of TRIAL_COLUMNS with its parameters as an object."""
    found = {name: value for name, value in row.items() if name not in ("parameters_json", "best", "stopped_early", "enqueued")}
    flags = {name: bool(row[name]) for name in ("best", "stopped_early", "enqueued")}
    return found | {"parameters": orjson.loads(row["parameters_json"] or "{}")} | flags


def fact_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row of FACT_COLUMNS, with a flag for `early`."""
    return row | {"early": bool(row["early"])}
