"""Bad samples of the job's dataset: reports to the scheduler, and the count over all ranks.

Holds: of each shard a rank reports the first bad sample alone, and of a bounded number of shards. A count that ranks exchanged is in the
loader's state, so it goes on after a restart at any number of ranks; of ranks that read the same share, one counts. Whether there are too
many is one decision of all ranks.
"""

import time
from collections.abc import Callable, Iterable
from typing import Final

from trainhouse.events.model.version_names import VersionName
from trainhouse.workers.data.data_loader import Excess, Loader
from trainhouse.workers.data.sharded_dataset import BadSample
from trainhouse.workers.session.context import Context
from trainhouse.workers.session.logging.sink import Sink
from trainhouse.workers.session.process_groups import Gang

MOST_SHARDS: Final = 4
"""That one rank reports in an attempt: of 64 in a thousand ranks each, reports would flood the scheduler."""
MOST_LOADERS: Final = 8
"""Of those that are tracked; ranks exchange a number for each."""


class BadSamples:
    """Reports and count of one rank."""

    def __init__(self, context: Context, gang: Gang, sink: Sink, step: Callable[[], int]) -> None:
        self._context, self._gang, self._sink, self._step = context, gang, sink, step
        self._loaders: tuple[Loader, ...] = ()
        self._shards = set[str]()
        self._exceeded = False
        self._counts: bool | None = None

    def track(self, parts: Iterable[object]) -> None:
        """The ranks count together what these loaders leave out, and stop together; outside of a job a program ends by an error."""
        self._loaders = tuple(part for part in parts if isinstance(part, Loader))[:MOST_LOADERS]
        for loader in self._loaders:
            loader.gathered = self._context.job_id is not None

    @property
    def due(self) -> bool:
        """Whether this rank has something that the others have to know."""
        return any(loader.bad_here or loader.excess() is not None for loader in self._loaders)

    def exchange(self) -> Excess | None:
        """Adds up the counts of all ranks; returns that of a loader that has too many on any rank, the same on all. Collective."""
        numbers = [float(loader.bad_here) if self._is_counted() else 0.0 for loader in self._loaders]
        totals = self._gang.add(numbers + [0.0] * (MOST_LOADERS - len(numbers)))
        for loader, more in zip(self._loaders, totals, strict=False):
            loader.exchanged(loader.bad_of_gang + int(more))
        own = next((excess for loader in self._loaders if (excess := loader.excess()) is not None), None)
        # Ranks may track different loaders, or none, or be a batch ahead of others.
        first = self._gang.first(own is not None)
        if first is None:
            return None
        numbers = [0.0, 0.0, 0.0] if own is None else [float(own.bad), float(own.allowed), float(own.samples)]
        bad, allowed, samples = map(int, self._gang.broadcast_from(first, numbers))
        return Excess(bad, allowed, samples, "" if own is None else own.last)

    def _is_counted(self) -> bool:
        """Whether this rank is the first of those that read its share."""
        if self._counts is None:
            layout, rank = self._context.layout, self._context.rank
            self._counts = all(layout.data_rank(other) != layout.data_rank(rank) for other in range(rank))
        return self._counts

    def found(self, bad: BadSample) -> None:
        """Reports the shard, if it is one of the job's version that was not reported, nor in quarantine at the job's start."""
        data = self._context.data
        if data is None or not bad.shard or bad.version != data.dataset or bad.shard in data.quarantined:
            return
        if bad.shard in self._shards or len(self._shards) >= MOST_SHARDS:
            return
        self._shards.add(bad.shard)
        name = VersionName.parse(bad.version)
        self._sink.event(
            "BadShardFound",
            {
                "dataset": name.dataset,
                "sha256": name.sha256,
                "shard": bad.shard,
                "split": bad.split,
                "fault": str(bad.fault),
                "sample": bad.sample or str(bad.index),
                "expected": bad.expected,
                "seen": bad.seen,
                "at_ms": _now_ms(),
            },
        )

    def exceeded(self, excess: Excess) -> None:
        """Reports, once, that more samples are bad than are allowed."""
        if self._exceeded:
            return
        self._exceeded = True
        counts = {"bad": excess.bad, "allowed": excess.allowed, "samples": excess.samples, "last": excess.last}
        self._sink.event("TooManyBadSamples", counts | {"step": self._step(), "at_ms": _now_ms()})


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
