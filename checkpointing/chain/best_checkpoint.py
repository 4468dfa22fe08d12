"""The best checkpoint of a job by a metric that its program measures: kept by the tag `best`.

Holds: the best value is that of the checkpoint which the tag names, so that it outlasts an attempt. A save that fails leaves both as they
were. A tagged checkpoint that cannot be read, or has another metric, is beaten by any value.
Of rank 0; `is_best` and `begin` are of the training thread, `saved` of the one that committed.
"""

import math
from dataclasses import dataclass
from typing import Literal

from trainhouse.checkpointing.chain.commits import read_entry
from trainhouse.checkpointing.chain.manifest import Manifest
from trainhouse.checkpointing.chain.references import BEST, references, tag
from trainhouse.checkpointing.errors import DamagedError, UnknownFormatError
from trainhouse.checkpointing.stores.object_store import ObjectStore


@dataclass(frozen=True)
class Score:
    """Value of a metric; `best`: which of two values is the better one."""

    metric: str
    value: float
    best: Literal["min", "max"]

    def beats(self, other: float) -> bool:
        """Whether it is better than another value."""
        return self.value < other if self.best == "min" else self.value > other


class BestCheckpoint:
    """Of one job. The first `is_best` and `saved` block on the store, and raise CheckpointError."""

    def __init__(self, objects: ObjectStore, job_id: str) -> None:
        self._objects = objects
        self._job_id = job_id
        self._best: float | None = None
        self._has_read = False
        self._under_way: Score | None = None

    def is_best(self, score: Score) -> bool:
        """Whether it beats the best checkpoint, and the one under way."""
        if not self._has_read:
            self._best = self._tagged(score.metric)
            self._has_read = True
        under_way = self._under_way
        rivals = (self._best, under_way.value if under_way is not None else None)
        return math.isfinite(score.value) and all(rival is None or score.beats(rival) for rival in rivals)

    def begin(self, score: Score | None) -> None:
        """Notes which score the save under way is to have; None: none, or that save failed."""
        self._under_way = score

    def saved(self, score: Score, commit: int) -> None:
        """Moves the tag to a best state that was committed."""
        tag(self._objects, self._job_id, BEST, commit)
        self._best = score.value

    def _tagged(self, metric: str) -> float | None:
        by_commit = references(self._objects, self._job_id).by_commit
        commit = next((commit for commit, names in by_commit.items() if BEST in names), None)
        try:
            entry = None if commit is None else read_entry(self._objects, self._job_id, commit)
        except (DamagedError, UnknownFormatError):
            return None
        return entry.metrics.get(metric) if isinstance(entry, Manifest) else None
