"""Points of a grid in an order that follows from the seed.

Holds: the number of a trial and the spec decide its point, whenever and however often it is asked; each point comes once. A trial whose
values the spec names takes the first point that agrees with them out of the order; where none does, it has the values that are named and
the first point's others, and takes none.
"""

from functools import lru_cache
from math import prod

import numpy as np
import numpy.typing as npt

from trainhouse.events.model.study import StudySpec
from trainhouse.events.model.study_space import Value
from trainhouse.events.model.study_values import point, same_value

Named = tuple[tuple[tuple[int, int], ...], ...]
"""By trial: index of a parameter and place of its value; a place of -1 is none of the grid's."""


def grid_values(spec: StudySpec, number: int) -> dict[str, Value] | None:
    """Returns the values of a trial; None: all points have been given."""
    counts = tuple(parameter.value_count or 0 for parameter in spec.space.values())
    order, places = _order(spec.seed, counts, tuple(_named(spec, values) for values in spec.enqueue))
    if number >= len(places) and number - len(places) >= len(order):
        return None
    place = int(places[number] if number < len(places) else order[number - len(places)])
    digits = np.unravel_index(place, counts)
    values = {name: point(parameter, int(digit)) for (name, parameter), digit in zip(spec.space.items(), digits, strict=True)}
    return values | (dict(spec.enqueue[number]) if number < len(places) else {})


def _named(spec: StudySpec, values: dict[str, Value]) -> tuple[tuple[int, int], ...]:
    named = []
    for index, (name, parameter) in enumerate(spec.space.items()):
        count = parameter.value_count or 0
        if name in values and count > 1:
            place = next((at for at in range(count) if same_value(point(parameter, at), values[name])), -1)
            named.append((index, place))
    return tuple(named)


@lru_cache(maxsize=8)
def _order(seed: int, counts: tuple[int, ...], named: Named) -> tuple[npt.NDArray[np.int64], tuple[int, ...]]:
    """Returns the points of the trials that follow those that the spec names values of, and the points of these."""
    # RandomState's stream is frozen: every version of NumPy gives the same one.
    order = np.random.RandomState(seed).permutation(prod(counts)).astype(np.int64)
    left = np.ones(len(order), dtype=bool)
    digits = np.unravel_index(order, counts)
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
