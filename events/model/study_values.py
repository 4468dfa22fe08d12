"""Values of a parameter as trials have them. Pure.

Holds: `1`, `1.0` and `true` stay three choices, and the type of a choice is that of the spec. A number is within its bounds, on its step,
an int where the parameter is one.
"""

from collections.abc import Callable, Mapping
from math import isfinite

from trainhouse.events.model.study_space import NumberKind, Parameter, Value


def exists(parameter: Parameter, values: Mapping[str, Value]) -> bool:
    """Whether a parameter exists beside the values of those before it."""
    return all(name in values and choice_index(choices, values[name]) is not None for name, choices in parameter.when.items())


def same_value(one: Value, other: Value) -> bool:
    """Whether two values are the same: numbers by their size, all else by type too, so that `true` is not 1."""
    if type(one) is type(other):
        return one == other
    return isinstance(one, int | float) and isinstance(other, int | float) and bool not in (type(one), type(other)) and one == other


def choice_index(choices: tuple[Value, ...], value: Value) -> int | None:
    """Returns the place of a value among choices: of its own type, else an equal number."""
    same = [place for place, choice in enumerate(choices) if same_value(choice, value)]
    return next((place for place in same if type(choices[place]) is type(value)), same[0] if same else None)


def index_of_choices(choices: tuple[Value, ...]) -> Callable[[Value], int]:
    """Returns the function that gives the place of a value among choices. It raises ValueError where the value is none of them."""
    exact = {(type(choice), choice): place for place, choice in reversed(list(enumerate(choices)))}

    def index(value: Value) -> int:
        place = exact.get((type(value), value))
        if place is None:
            place = choice_index(choices, value)
        if place is None:
            raise ValueError(f"{value!r} is none of the choices")
        return place

    return index


def value_fault(name: str, parameter: Parameter, value: Value) -> str:
    """Returns why a value is none of the parameter; empty text: it is one."""
    if parameter.choices:
        if choice_index(parameter.choices, value) is None:
            return f"{name} = {value!r} is none of its choices"
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        return f"{name} = {value!r} is no number"
    low, high = bounds(parameter)
    if not low <= value <= high:
        return f"{name} = {value!r} is not between {low!r} and {high!r}"
    if step_of(parameter) is not None and abs(nearest(parameter, value) - value) > 1e-8 * max(abs(value), parameter.step or 1.0):
        return f"{name} = {value!r} is not on its step: the nearest value is {nearest(parameter, value)!r}"
    return ""


def point(parameter: Parameter, place: int) -> Value:
    """Returns the value at a place among those that can be counted (`Parameter.value_count`)."""
    if parameter.choices:
        return parameter.choices[place]
    low, high = bounds(parameter)
    return low if low == high else min(low + place * (step_of(parameter) or 0), high)


def nearest(parameter: Parameter, drawn: float) -> int | float:
    """Returns the parameter's value that is nearest to a number."""
    if not isfinite(drawn):
        raise ValueError(f"the sampler drew {drawn}, which is no number")
    low, high = bounds(parameter)
    step = step_of(parameter)
    if step is not None and low != high:
        places = int((high - low) / step + 1e-9)
        drawn = low + min(max(round((drawn - low) / step), 0), places) * step
    drawn = min(max(drawn, low), high)
    return int(drawn) if parameter.kind is NumberKind.INT else float(drawn)


def bounds(parameter: Parameter) -> tuple[int | float, int | float]:
    """Returns the least and the greatest value of a range."""
    assert parameter.low is not None and parameter.high is not None  # nosec B101  # validated
    if parameter.kind is NumberKind.INT:
        return int(parameter.low), int(parameter.high)
    return float(parameter.low), float(parameter.high)


def step_of(parameter: Parameter) -> int | float | None:
    """Returns the distance of values; None: they are not counted, or so close that floats do not keep them apart."""
    if parameter.kind is NumberKind.INT:
        return int(parameter.step or 1)
    return parameter.step if parameter.value_count is not None else None
