"""Trial as a sampler gets to know it: its parameters, its state, and the values that count.

Holds: a value that is NaN or infinite never counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from trainhouse.events.model.study_decisions import TrialState
from trainhouse.events.model.study_space import Value


@dataclass(frozen=True, slots=True)
class ToldTrial:
    """One trial of a study. WAITING or RUNNING: nothing of it is known yet but its parameters, and these count in."""

    number: int
    values: Mapping[str, Value]
    state: TrialState
    objectives: tuple[float, ...] | None
    """In the order of the study's metrics; None: none that count."""
    curve: tuple[tuple[int, float], ...]
    """Step and value of the first metric at each rung that it reached."""

    @property
    def result(self) -> tuple[float, ...] | None:
        """Values by which the trial is compared with others; None where it has none: it runs, failed, or one of them is no number."""
        if self.state not in (TrialState.COMPLETE, TrialState.STOPPED) or not self.objectives:
            return None
        return self.objectives if all(isfinite(each) for each in self.objectives) else None
