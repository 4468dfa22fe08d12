"""Values of a study's metrics that one trial's job has logged and that the tuner does not have yet. Pure.

Holds: of each metric the newest value waits, and besides it each one of the first metric by which the trial reaches a rung. A metric is
that of the least rank which logs it.
"""

from dataclasses import dataclass, field
from typing import Final

from trainhouse.events import StepMetrics, StudySpec
from trainhouse.events.model.bounds import MOST_COUNT
from trainhouse.scheduler.core.studies.stopping import rungs_passed

MOST_NAMES: Final = 16
MOST_NAME_CHARS: Final = 256


@dataclass(slots=True)
class TrialValues:
    """Values of one trial. `names`: metrics that it logged, for a trial that lacks one of the study's; `places`: topics and partitions that
    they were read from; `sent_s`: when it was sent."""

    spec: StudySpec
    names: set[str] = field(default_factory=set)
    places: set[tuple[str, int]] = field(default_factory=set)
    sent_s: float = float("-inf")
    _ranks: dict[str, int] = field(default_factory=dict)
    _newest: dict[str, tuple[int, float]] = field(default_factory=dict)
    _reached: list[tuple[int, float]] = field(default_factory=list)
    _first_step: int | None = None

    def take(self, event: StepMetrics) -> None:
        """Takes the points of one record, in their order."""
        room = MOST_NAMES - len(self.names)
        self.names |= set([name for name in event.metrics if name not in self.names and len(name) <= MOST_NAME_CHARS][:room])
        for metric in self.spec.metrics:
            column = event.metrics.get(metric.name)
            if column is None or event.rank > self._ranks.get(metric.name, event.rank):
                continue
            self._ranks[metric.name] = event.rank
            is_first = metric == self.spec.metrics[0]
            for step, value in zip(event.steps, column, strict=False):
                if value is not None and 0 <= step <= MOST_COUNT:
                    self._put(metric.name, step, value, is_first)

    def _put(self, name: str, step: int, value: float, is_first: bool) -> None:
        self._newest[name] = (step, value)
        if is_first and (self._first_step is None or step > self._first_step):
            if rungs_passed(self.spec.early_stopping, self._first_step, step):
                self._reached.append((step, value))
            self._first_step = step

    @property
    def is_urgent(self) -> bool:
        """Whether a rung was reached."""
        return bool(self._reached)

    def pending(self) -> list[tuple[int, dict[str, float]]]:
        """Step and values of what waits, in the order of steps."""
        by_step: dict[int, dict[str, float]] = {}
        first = self.spec.metrics[0].name
        for step, value in self._reached:
            by_step.setdefault(step, {})[first] = value
        for name, (step, value) in self._newest.items():
            by_step.setdefault(step, {})[name] = value
        return sorted(by_step.items())

    def sent(self, now_s: float) -> None:
        """Forgets what waits: the tuner has it."""
        self._newest.clear()
        self._reached.clear()
        self.sent_s = now_s
