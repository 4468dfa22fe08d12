"""Work of earlier suggestions that later ones of the same study need not do again.

Holds: nothing is taken from here unless all that it followed from is equal, so whether it is here changes how long a suggestion takes, not
what it gives. The number of studies, of trials of one, and of values of all is bounded.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from trainhouse.events.model.study import StudySpec
from trainhouse.scheduler.core.studies.trial_record import ToldTrial

MOST_STUDIES: Final = 4
MOST_TRIALS: Final = 20_000
MOST_VALUES: Final = 1_000_000
"""Values of parameters of what is kept of all studies."""
# Generations before the newest: those that end anew when a trial that began early ends late.
_MOST_GENERATIONS: Final = 16
T = TypeVar("T")


class SuggestionMemory:
    """Intermediate results of one study's suggestions."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[ToldTrial, Any, Any]] = {}
        self._values = 0
        self._generations: list[Sequence[ToldTrial]] = []
        self._after: dict[int, Any] = {}

    @property
    def values(self) -> int:
        """Number of values of parameters of the trials that are kept."""
        return self._values

    def made(self, trials: Iterable[tuple[ToldTrial, Any]], make: Callable[[int, ToldTrial, Any], T]) -> list[T]:
        """Returns `make(place, trial, detail)` of each trial with its detail, in their order."""
        results = []
        for place, (trial, detail) in enumerate(trials):
            entry = self._made.get(place)
            if entry is None or entry[0] != trial or entry[1] != detail:
                known = 0 if entry is None else len(entry[0].values)
                entry = trial, detail, make(place, trial, detail)
                if place < MOST_TRIALS and self._values - known + len(trial.values) <= MOST_VALUES:
                    self._made[place] = entry
                    self._values += len(trial.values) - known
            results.append(entry[2])
        return results

    def folded(self, generations: list[Sequence[ToldTrial]], start: T, step: Callable[[int, Sequence[ToldTrial], T], T]) -> T:
        """Returns what `step(place, generation, before)` makes of all generations, one after another."""
        pairs = zip(generations, self._generations, strict=False)
        equal = next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(generations), len(self._generations)))
        first = max((place for place in self._after if place <= equal), default=0)
        state: T = self._after.get(first, start)
        after = {place: each for place, each in self._after.items() if place <= first}
        for place in range(first, len(generations)):
            state = step(place, generations[place], state)
            after[place + 1] = state
        self._after = dict(sorted(after.items())[-_MOST_GENERATIONS:])
        self._generations = generations
        return state


_MEMORIES: Final[OrderedDict[str, SuggestionMemory]] = OrderedDict()


def memory_of(spec: StudySpec) -> SuggestionMemory:
    """Returns the memory of studies with the same space, metrics and sampler."""
    key = spec.model_dump_json(include={"space", "metrics", "sampler"})
    memory = _MEMORIES.pop(key, None) or SuggestionMemory()
    _MEMORIES[key] = memory
    while len(_MEMORIES) > 1 and (len(_MEMORIES) > MOST_STUDIES or sum(each.values for each in _MEMORIES.values()) > MOST_VALUES):
        _MEMORIES.popitem(last=False)
    return memory
