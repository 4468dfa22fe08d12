"""A study under another rule of early stopping, for a person and as JSON.

Holds: pure but for the printing; what nobody can know is named and counted, never estimated.
"""

import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from trainhouse.cli.shared import output
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.events.model.study import EarlyStopping, Objective
from trainhouse.events.model.study_shorthand import stopping_fields, stopping_text

if TYPE_CHECKING:
    from trainhouse.scheduler.core.studies.stopping_what_if import TrialOutcome, WhatIf

_MOST_NAMED: Final = 20
Row = dict[str, Any]


def recorded_rule(study: Row) -> tuple[EarlyStopping, list[Objective]]:
    """The rule of early stopping that a study has, and its metrics."""
    spec = study["spec"]
    return EarlyStopping.model_validate(spec["early_stopping"]), [Objective.model_validate(each) for each in spec["metrics"]]


def other_rule(text: str, own: EarlyStopping) -> EarlyStopping:
    """The rule that a short form names; what it does not name is the study's own. Raises CliError."""
    from pydantic import ValidationError

    from trainhouse.events.wire.validation_messages import explain_validation

    try:
        return EarlyStopping.model_validate(own.model_dump(mode="json") | stopping_fields(text))
    except ValidationError as error:
        raise CliError(
            f"--early-stopping {text}: {explain_validation(error, EarlyStopping)}; write asha:3, median:5, none, or "
            "asha:3,min_step=10,max_step=90",
            Exit.USAGE,
        ) from error


def summary(study: Row, own: EarlyStopping, found: "WhatIf") -> Row:
    """The study as it was and as it would have been."""
    return {
        "project": study["project"],
        "study": study["study"],
        "metric": study["metrics"][0],
        "recorded": _side(own, found.recorded_device_s, found.recorded_best, _recorded_value(found), _stopped(found, recorded=True)),
        "what_if": _side(found.stopping, found.device_s, found.best, _value(found), _stopped(found, recorded=False)),
        "unknown": found.unknown,
        "doubtful": found.doubtful,
        "late_reports": found.late_reports,
    }


def trial_row(each: "TrialOutcome") -> Row:
    """One trial as JSON: what is unknown is null."""
    stop = each.stop
    return {
        "trial": each.trial,
        "recorded": {"state": each.recorded_state, "device_s": each.recorded_device_s, "value": _finite(each.recorded_value)},
        "what_if": {"state": each.state, "device_s": each.device_s, "value": _finite(each.value)},
        "stopped_at": None if stop is None else {"rung": stop.rung, "step": stop.step, "why": stop.why},
        "doubtful": each.is_doubtful,
    }


def show(study: Row, own: EarlyStopping, found: "WhatIf") -> None:
    """Prints both, side by side, the trials that differ, and what cannot be known."""
    least = "at least " if found.unknown else ""
    cells = [
        ("early stopping", stopping_text(own.model_dump(mode="json")), stopping_text(found.stopping.model_dump(mode="json"))),
        ("device time", output.duration(found.recorded_device_s), least + output.duration(found.device_s)),
        ("trials stopped", str(_stopped(found, recorded=True)), str(_stopped(found, recorded=False))),
        (f"best {study['metrics'][0]}", _best_text(found.recorded_best, _recorded_value(found)), _best_text(found.best, _value(found))),
    ]
    output.table(("", "as it was", "what if"), cells)
    differing = [each for each in found.trials if each.state is not each.recorded_state or each.device_s != each.recorded_device_s]
    if differing:
        sys.stdout.write("\n")
        _show_trials(study["metrics"][0], differing)
    else:
        output.remark("no trial would have ended otherwise")
    _remark_unknown(found)


def _show_trials(metric: str, differing: "Sequence[TrialOutcome]") -> None:
    columns = ("trial", "was", "what if", "step", metric, "time was", "time", "why")
    cells = [
        (
            each.trial,
            each.recorded_state.value,
            f"{each.state or 'UNKNOWN'}{' ?' if each.is_doubtful and each.state else ''}",
            each.stop.step if each.stop is not None else None,
            each.value,
            output.duration(each.recorded_device_s or None),
            output.duration(each.device_s or None),
            "" if each.stop is None else output.one_line(each.stop.why, 100),
        )
        for each in differing
    ]
    drop = ("why", "step", "time was")
    output.table(columns, cells, right=("trial", "step", metric, "time was", "time"), drop=drop, whole=("was", "what if"))


def _remark_unknown(found: "WhatIf") -> None:
    if found.unknown:
        output.remark(
            f"{len(found.unknown)} UNKNOWN: {_named(found.unknown)}. The study's rule ended them before this one would have: their costs "
            "are the least they can be, and one of them may have been the best"
        )
    if found.doubtful:
        output.remark(f"{len(found.doubtful)} doubtful (?): {_named(found.doubtful)}. Values that those did not log could turn them")
    if found.late_reports:
        output.remark(f"{found.late_reports} judgements by a report beyond the rung's step: no value of that step was recorded")


def _named(trials: Sequence[int]) -> str:
    more = f" and {len(trials) - _MOST_NAMED} more (--json names them)" if len(trials) > _MOST_NAMED else ""
    return f"trial{'s' if len(trials) > 1 else ''} {', '.join(map(str, trials[:_MOST_NAMED]))}{more}"


def _side(stopping: EarlyStopping, device_s: float, best: int | None, value: float | None, stopped: int) -> Row:
    return {
        "early_stopping": stopping.model_dump(mode="json"),
        "device_s": device_s,
        "best": None if best is None else {"trial": best, "value": value},
        "stopped": stopped,
    }


def _stopped(found: "WhatIf", *, recorded: bool) -> int:
    return sum((each.recorded_state if recorded else each.state) == "STOPPED" for each in found.trials)


def _recorded_value(found: "WhatIf") -> float | None:
    return next((each.recorded_value for each in found.trials if each.trial == found.recorded_best), None)


def _value(found: "WhatIf") -> float | None:
    return next((each.value for each in found.trials if each.trial == found.best), None)


def _best_text(trial: int | None, value: float | None) -> str:
    return "none" if trial is None else f"{output.cell(value)} (trial {trial})"


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
