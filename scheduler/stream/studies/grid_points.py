"""Points of a grid in an order that follows from the seed.

Holds: the number of a trial and the spec decide its point, whenever and however often it is asked; each point comes once. A trial whose
values the spec names takes the first point that agrees with them out of the order; where none does, it has the values that are named and
the first point's others, and takes none.
"""

from collections.abc import Iterable
from functools import lru_cache
from math import prod

import numpy as np
import numpy.typing as npt

from trainhouse.events.model.study import StudySpec
from trainhouse.events.model.study_space import Parameter, Value
from trainhouse.events.model.study_values import bounds, point, same_value, step_of

Named = tuple[tuple[tuple[int, int], ...], ...]
"""By trial: index of a parameter and place of its value; a place of -1 is none of the grid's."""


def grid_values(spec: StudySpec, number: int) -> dict[str, Value] | None:
    """Returns the values of a trial; None: all points have been given."""
    counts = tuple(parameter.value_count or 0 for parameter in spec.space.values())
    several = tuple(count for count in counts if count > 1)
    order, places = _order(spec.seed, several, tuple(_named(spec, values) for values in spec.enqueue))
    if number >= len(places) and number - len(places) >= len(order):
        return None
    place = int(places[number] if number < len(places) else order[number - len(places)])
    digits = iter(np.unravel_index(place, several) if several else ())
    of_each = (int(next(digits)) if count > 1 else 0 for count in counts)
    values = {name: point(parameter, digit) for (name, parameter), digit in zip(spec.space.items(), of_each, strict=True)}
    return values | (dict(spec.enqueue[number]) if number < len(places) else {})


def _named(spec: StudySpec, values: dict[str, Value]) -> tuple[tuple[int, int], ...]:
    """The places of values that a trial names. A grid may have many: a number's place is computed, and not searched for."""
    several = [(name, parameter) for name, parameter in spec.space.items() if (parameter.value_count or 0) > 1]
    return tuple((index, _place(parameter, values[name])) for index, (name, parameter) in enumerate(several) if name in values)


def _place(parameter: Parameter, value: Value) -> int:
    count = parameter.value_count or 0
    near: Iterable[int] = range(count)
    if not parameter.choices:
        low, _ = bounds(parameter)
        about = round((float(value or 0) - low) / (step_of(parameter) or 1))
        near = range(max(0, about - 1), min(count, about + 2))
    return next((at for at in near if same_value(point(parameter, at), value)), -1)


@lru_cache(maxsize=8)
def _order(seed: int, counts: tuple[int, ...], named: Named) -> tuple[npt.NDArray[np.int64], tuple[int, ...]]:
    """Returns the points of the trials that follow those that the spec names values of, and the points of these."""
    # RandomState's stream is frozen: every version of NumPy gives the same one.
    order = np.random.RandomState(seed).permutation(prod(counts)).astype(np.int64)
    left = np.ones(len(order), dtype=bool)
    digits = np.unravel_index(order, counts) if counts else ()
    places = []
    for each in named:
        agree = left.copy()
        for index, place in each:
            agree &= digits[index] == place
        first = int(np.argmax(agree))
        if agree[first]:
            left[first] = False
        places.append(int(order[first]))
    return order[left], tuple(places)
