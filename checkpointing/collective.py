"""Steps that all ranks of a gang take together, over a process group or alone.

Holds: if a step fails on one rank, every rank raises, and the same kind of error: no rank goes on with half of a decision.
Never: makes a process group; its timeout is its maker's. All methods are collective and block.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch.distributed as dist

from trainhouse.checkpointing.errors import (
    CheckpointError,
    InvalidStateError,
    KeysEndedError,
    ObjectStoreUnavailableError,
    RankFailedError,
    StaleEpochError,
)

T = TypeVar("T")
# The most telling first: what one rank knows of the fence outweighs what went wrong elsewhere.
_PRECEDENCE = (StaleEpochError, InvalidStateError, KeysEndedError, ObjectStoreUnavailableError, CheckpointError)


class Ranks:
    """The ranks of a process group; the default group if None; alone if torch.distributed is not initialized."""

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self.group = group

    @property
    def alone(self) -> bool:
        """True if there is no process group at all."""
        return not (dist.is_available() and dist.is_initialized())

    @property
    def rank(self) -> int:
        return 0 if self.alone else dist.get_rank(self.group)

    @property
    def world_size(self) -> int:
        return 1 if self.alone else dist.get_world_size(self.group)

    @property
    def store(self) -> Any:
        """The group's key-value store (torch.distributed.Store), for what is no collective. Safe to use from other threads."""
        group = self.group or dist.group.WORLD
        assert group is not None
        return group.get_group_store()

    def all(self, work: Callable[[], T]) -> list[T]:
        """Runs `work` on every rank; everybody gets all results, by rank."""
        mine = attempt(work)
        results = [mine]
        if not self.alone:
            results = [mine] * self.world_size
            dist.all_gather_object(results, mine, group=self.group)
        return list(values(dict(enumerate(results)), self.world_size).values())

    def each(self, work: Callable[[], T]) -> T:
        """Runs `work` on every rank; each gets its own result, which need not be picklable."""
        kept: list[T] = []
        self.all(lambda: kept.append(work()))
        return kept[0]

    def first(self, work: Callable[[], T]) -> T:
        """Runs `work` on rank 0; everybody gets its result."""
        return self.some([0], work)[0]

    def some(self, ranks: Sequence[int], work: Callable[[], T]) -> dict[int, T]:
        """Runs `work` on these ranks; everybody gets their results. Unlike `all`, it moves these results and no more: gathering
        pads what each rank has to the largest."""
        outcomes: dict[int, Outcome] = {}
        for rank in ranks:
            sent = [attempt(work) if self.rank == rank else None]
            if not self.alone:
                dist.broadcast_object_list(sent, group=self.group, group_src=rank)
            assert sent[0] is not None
            outcomes[rank] = sent[0]
        return values(outcomes, self.world_size)


class Alone(Ranks):
    """One process that acts for itself, whatever process groups there are: the others of its gang are gone."""

    def __init__(self) -> None:
        super().__init__(None)

    @property
    def alone(self) -> bool:
        return True


class Outcome:
    """A result, or the error instead of it."""

    def __init__(self, value: object = None, error: CheckpointError | None = None) -> None:
        self.value = value
        self.error = error


def attempt(work: Callable[[], T]) -> Outcome:
    try:
        return Outcome(value=work())
    except CheckpointError as error:
        return Outcome(error=error)
    except Exception as error:
        failed = RankFailedError(f"{type(error).__name__}: {error}")
        failed.__cause__ = error
        return Outcome(error=failed)


def values(outcomes: Mapping[int, Outcome], world_size: int) -> dict[int, Any]:
    """The results by rank. Raises the most telling error."""
    failed = {rank: o.error for rank, o in outcomes.items() if o.error is not None}
    for kind in _PRECEDENCE:
        for rank, error in failed.items():
            if isinstance(error, kind):
                note = f"(on rank {rank} of {world_size})"
                if note not in getattr(error, "__notes__", ()):
                    error.add_note(note)
                raise error
    return {rank: o.value for rank, o in outcomes.items()}
