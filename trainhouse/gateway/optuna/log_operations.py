"""Operations of Optuna's journal: which lines are one, for what Optuna's own replay takes. Pure.

Holds: a line that a replay would fail at is not appended, since every reader of the log would fail at it from then on.
"""

import datetime
import json
import math
import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Final

from trainhouse.events.wire.codec import MAX_DEPTH, is_deep

Operation = Mapping[str, Any]


class Code(IntEnum):
    """Codes of `optuna.storages.journal`, 4.x."""

    CREATE_STUDY = 0
    DELETE_STUDY = 1
    SET_STUDY_USER_ATTR = 2
    SET_STUDY_SYSTEM_ATTR = 3
    CREATE_TRIAL = 4
    SET_TRIAL_PARAM = 5
    SET_TRIAL_STATE_VALUES = 6
    SET_TRIAL_INTERMEDIATE_VALUE = 7
    SET_TRIAL_USER_ATTR = 8
    SET_TRIAL_SYSTEM_ATTR = 9


class State(IntEnum):
    """States of a trial, as Optuna numbers them."""

    RUNNING = 0
    COMPLETE = 1
    PRUNED = 2
    FAIL = 3
    WAITING = 4

    @property
    def final(self) -> bool:
        """Whether nothing of the trial changes any more."""
        return self in (State.COMPLETE, State.PRUNED, State.FAIL)


def parsed(line: str) -> Operation:
    """The operation of a line. Raises ValueError, which says what it lacks."""
    try:
        found = json.loads(line)
    except RecursionError as error:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep") from error
    except ValueError as error:
        raise ValueError(f"it is no JSON ({error})") from error
    if "\n" in line or "\r" in line:
        raise ValueError("it has an end of line in it")
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    if is_deep(found):
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
    code = found.get("op_code")
    if not _whole(code) or code not in _NEEDS:
        raise ValueError(f"op_code is {str(code)[:40]}, and operations have {min(_NEEDS)} to {max(_NEEDS)}")
    for name, is_valid in (("worker_id", _text), *_NEEDS[code].items()):
        if not is_valid(found.get(name)):
            raise ValueError(f"{name} of {Code(code).name} is missing, or of another kind")
    if code == Code.CREATE_TRIAL:
        _check_template(found)
    if code == Code.SET_TRIAL_STATE_VALUES:
        _check_times(found)
    if code == Code.SET_TRIAL_PARAM:
        external(found["distribution"], found["param_value_internal"])
    return found


def external(distribution: str, internal: Any) -> Any:
    """The value of a parameter as its user gave it. Raises ValueError where the distribution is none, or has no such value."""
    try:
        described = json.loads(distribution)
        kind, attributes = described["name"], described["attributes"]
        if not isinstance(kind, str) or not isinstance(attributes, dict):
            raise ValueError("the distribution of a parameter has no name and attributes")
        if kind == "CategoricalDistribution":
            if attributes.keys() != {"choices"} or not isinstance(attributes["choices"], list):
                raise ValueError("a categorical distribution has other attributes than its choices")
            if not 0 <= internal < len(attributes["choices"]):
                raise ValueError(f"the distribution has no choice {internal}")
            return attributes["choices"][int(internal)]
        _check_range(kind, attributes)
        return int(internal) if kind == "IntDistribution" else float(internal)
    except (KeyError, TypeError, IndexError, RecursionError, OverflowError) as error:
        raise ValueError(f"the distribution of a parameter is none of Optuna's, or has no value {str(internal)[:40]}") from error


MOST_STEPS: Final = 1e27
"""Of a range: Optuna divides it by its step with 28 digits."""
_RANGES: Final = ("FloatDistribution", "IntDistribution")
_OF_RANGE: Final = frozenset({"low", "high", "log", "step"})


def _check_range(kind: str, attributes: Mapping[str, Any]) -> None:
    if kind not in _RANGES or not attributes.keys() <= _OF_RANGE:
        raise ValueError(f"the distribution {kind!r} is none of Optuna's 4.x, or has other attributes")
    low, high, step, is_log = attributes["low"], attributes["high"], attributes.get("step"), attributes.get("log", False)
    is_int = kind == "IntDistribution"
    bounds = [low, high, *(() if step is None and not (is_int and "step" in attributes) else (step,))]
    if not all(map(_whole if is_int else _number, bounds)) or not (-math.inf < low <= high < math.inf) or not isinstance(is_log, bool):
        raise ValueError(f"the distribution {kind!r} has no low and high, or low is above high")
    if (
        (is_log and low <= 0)
        or (step is not None and not (0 < step < math.inf and (high - low) / step < MOST_STEPS))
        or (is_log and step not in (None, 1 if is_int else None))
    ):
        raise ValueError(f"the distribution {kind!r} has a step or a low that Optuna does not take")


_STEP: Final = re.compile("-?[0-9]{1,18}")
"""Of an intermediate value in a template. Python reads no number of more than 4300 digits, so neither would Optuna's replay."""


def _check_template(found: Operation) -> None:
    if "datetime_start" not in found or found.get("datetime_complete", "") is None:
        raise ValueError("datetime_start of CREATE_TRIAL is missing, or datetime_complete is no time")
    _check_times(found)
    distributions, params = found.get("distributions", {}), found.get("params", {})
    for name in ("distributions", "params", "user_attrs", "system_attrs", "intermediate_values"):
        if not isinstance(found.get(name, {}), dict):
            raise ValueError(f"{name} of CREATE_TRIAL is no object")
    for step, value in found.get("intermediate_values", {}).items():
        if not _STEP.fullmatch(step) or not _number(value):
            raise ValueError("intermediate_values of CREATE_TRIAL has a step or value that is no number, or a step of over 18 digits")
    if found.get("value") is not None and found.get("values") is not None:
        raise ValueError("CREATE_TRIAL has both value and values")
    if not _values(found.get("values")) or not (found.get("value") is None or _number(found.get("value"))):
        raise ValueError("the values of CREATE_TRIAL are no numbers")
    if "state" in found and not _state(found["state"]):
        raise ValueError("state of CREATE_TRIAL is none of Optuna's")
    if State(found.get("state", 0)).final and not found.get("datetime_complete"):
        raise ValueError("datetime_complete of a finished trial is missing")
    if distributions.keys() != params.keys():
        raise ValueError("params of CREATE_TRIAL are others than its distributions")
    for name, value in params.items():
        external(distributions[name], value)


def _check_times(found: Operation) -> None:
    for name in ("datetime_start", "datetime_complete"):
        at = found.get(name)
        if at is not None and not isinstance(at, str):
            raise ValueError(f"{name} is no time")
        if at is not None:
            datetime.datetime.fromisoformat(at)
    if found["op_code"] == Code.SET_TRIAL_STATE_VALUES:
        state = State(found["state"])
        name = "datetime_complete" if state.final else "datetime_start"
        if state is not State.WAITING and not found.get(name):
            raise ValueError(f"{name} of a trial that is {state.name} is missing")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, float) or (_whole(value) and abs(value) < 10**300)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _state(value: Any) -> bool:
    return _whole(value) and value in tuple(State)


def _values(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(map(_number, value)))


def _directions(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(_whole(each) and 0 <= each <= 2 for each in value)


def _one(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1


_NEEDS: Final[dict[int, dict[str, Callable[[Any], bool]]]] = {
    Code.CREATE_STUDY: {"study_name": _text, "directions": _directions},
    Code.DELETE_STUDY: {"study_id": _whole},
    Code.SET_STUDY_USER_ATTR: {"study_id": _whole, "user_attr": _one},
    Code.SET_STUDY_SYSTEM_ATTR: {"study_id": _whole, "system_attr": _one},
    Code.CREATE_TRIAL: {"study_id": _whole},
    Code.SET_TRIAL_PARAM: {"trial_id": _whole, "param_name": _text, "param_value_internal": _number, "distribution": _text},
    Code.SET_TRIAL_STATE_VALUES: {"trial_id": _whole, "state": _state, "values": _values},
    Code.SET_TRIAL_INTERMEDIATE_VALUE: {"trial_id": _whole, "step": _whole, "intermediate_value": _number},
    Code.SET_TRIAL_USER_ATTR: {"trial_id": _whole, "user_attr": _one},
    Code.SET_TRIAL_SYSTEM_ATTR: {"trial_id": _whole, "system_attr": _one},
}
