"""Studies and trials for a person: tables, and lines about one study.

Holds: pure but for the printing; rows are those of `client/studies/study_reads`.
"""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from trainhouse.cli.shared import output
from trainhouse.cli.studies.study_lines import print_lines
from trainhouse.cli.studies.study_why import money

ENDED: Final = ("COMPLETE", "STOPPED", "FAILED", "CANCELLED")
OPEN: Final = ("RUNNING", "WAITING")
PIPE_REASON_CHARS: Final = 60
"""Of a reason in a table that no terminal cuts; --json has all of it."""
Row = dict[str, Any]


def show_studies(rows: Sequence[Row]) -> None:
    """Prints studies as a table."""
    if not rows:
        output.remark("there are no studies; `trainhouse study create study.yaml` begins one")
        return
    columns = ("project", "study", "state", "trials", "metric", "best", "device time", "by", "created")
    cells = [
        (
            row["project"],
            row["study"],
            row["state"],
            _ended_of(row),
            row["metrics"][0] + (" …" if len(row["metrics"]) > 1 else ""),
            _best_value(row),
            output.duration(row["device_s"]),
            row["user"],
            output.clock(row["created_at_ms"]),
        )
        for row in rows
    ]
    right = ("trials", "best", "device time")
    output.table(columns, cells, right=right, drop=("created", "by", "device time", "metric", "project"), whole=("study", "state"))


def show_study(row: Row) -> None:
    """Prints what a study is and how far it is."""
    objectives = ", ".join(f"{name} ({mode})" for name, mode in zip(row["metrics"], row["modes"], strict=True))
    stopping = f"early stopping by {row['early_stopping']}" if row["early_stopping"] != "none" else "no early stopping"
    lines = [
        f"study {row['study']} of project {row['project']}, by {row['user']}, created {output.clock(row['created_at_ms'])}",
        f"{row['state']}{': ' + row['reason'] if row['reason'] else ''}",
        f"{objectives}; sampler {row['sampler']}; {stopping}; {row['parallel']} at the same time",
        f"trials: {_ended_of(row)} ended; {counts_text(row['trials'])}",
        f"device time: {output.duration(row['device_s'])}{_of_budget(row['budget_device_s'])}{_saved(row)}",
    ]
    if row["spent_cost"] is not None or row["budget_cost"] is not None:
        most = "" if row["budget_cost"] is None else f" of {money(row['budget_cost'], row['currency'])}"
        lines.append(f"cost of ended trials: {money(row['spent_cost'] or 0.0, row['currency'])}{most}")
    if row["budget_wall_s"] is not None:
        lines.append(f"ends at the latest {output.clock(row['created_at_ms'] + round(1000 * row['budget_wall_s']))}")
    print_lines(lines)


def show_trials(rows: Sequence[Row]) -> None:
    """Prints trials of one study as a table: a column for each parameter."""
    if not rows:
        output.remark("no trial has begun")
        return
    metric, reason_chars = rows[0]["metric"], 100 if sys.stdout.isatty() else PIPE_REASON_CHARS
    names = list(dict.fromkeys(name for row in rows for name in row["parameters"]))
    # Columns of parameters may be called as others are.
    shown = {name: name if name not in ("trial", "state", "step", metric, "time", "job", "reason") else f"{name} =" for name in names}
    columns = ("trial", "state", metric, "step", *shown.values(), "time", "job", "reason")
    cells = [
        (
            f"{row['trial']}{' *' if row['best'] else '  '}",
            row["state"],
            row["value"],
            row["step"],
            *(_parameter(row["parameters"], name) for name in names),
            output.duration(row["device_s"] or None),
            row["job_id"],
            "" if row["state"] == "COMPLETE" else output.one_line(row["reason"], reason_chars),
        )
        for row in rows
    ]
    if not any(each[-1] for each in cells):
        columns, cells = columns[:-1], [each[:-1] for each in cells]
    drop = ("job", "step", "time", "reason", *reversed(tuple(shown.values())))
    output.table(columns, cells, right=("trial", metric, "step", "time"), drop=drop, whole=("state",))
    if any(row["best"] for row in rows):
        output.remark("* the best" if sum(row["best"] for row in rows) == 1 else "* no other trial beats these in each metric")


def show_best(row: Row) -> None:
    """Prints the best trials of a study, a line for each value."""
    for best in row["best"]:
        figures = ", ".join(f"{name} {output.cell(value)}" for name, value in best["values"].items())
        print_lines([f"trial {best['trial']}: {figures}  (job {best['job_id']})"])
        print_lines([f"  {name}: {value_text(value)}" for name, value in best["parameters"].items()])


def progress(status: Mapping[str, Any]) -> str:
    """A line about a study that is followed."""
    best = status["best"]
    found = ""
    if best:
        figures = ", ".join(f"{name} {output.cell(value)}" for name, value in best[0]["values"].items())
        found = f"; best {figures} (trial {best[0]['trial']})" if len(best) == 1 else f"; {len(best)} trials that no other one beats"
    reason = f": {status['reason']}" if status["reason"] else ""
    return f"{status['state']}{reason}  {counts_text(status['trials'])}{found}; device time {output.duration(status['device_s'])}"


def as_of_trials(study: Row, trials: Sequence[Row]) -> Row:
    """A study with its counts and device time as its trials have them, which may be newer than its status."""
    return study | {"trials": Counter(row["state"] for row in trials), "device_s": sum(row["device_s"] for row in trials)}


def counts_text(trials: Mapping[str, int]) -> str:
    """Numbers of trials by state, those that ended first."""
    return ", ".join(f"{trials[state]} {state}" for state in (*ENDED, *OPEN) if trials.get(state)) or "none yet"


def value_text(value: Any) -> str:
    """A value of a parameter, as YAML and the command line have it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def _parameter(values: Mapping[str, Any], name: str) -> Any:
    """A cell; empty where the trial has no such parameter."""
    if name not in values:
        return None
    return values[name] if isinstance(values[name], float) else value_text(values[name])


def _ended_of(row: Row) -> str:
    ended = sum(row["trials"].get(state, 0) for state in ENDED)
    return f"{ended}/{row['budget_trials']}" if row["budget_trials"] is not None else str(ended)


def _best_value(row: Row) -> Any:
    best = row["best"]
    if not best:
        return None
    return best[0]["values"].get(row["metrics"][0]) if len(best) == 1 else f"{len(best)} trials"


def _of_budget(most_s: float | None) -> str:
    return "" if most_s is None else f" of {output.duration(most_s)}"


def _saved(row: Row) -> str:
    saved = sum(each["saved_device_s"] or 0 for each in row["cost"])
    return f"; early stopping saved about {output.duration(saved)}" if saved else ""
