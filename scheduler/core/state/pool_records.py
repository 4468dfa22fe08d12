"""Records of one pool's state, read once for the decision to take it in and for the fold of that.

Holds: what is read is never changed: jobs and nodes are shared by all who take them in, all else is as the bytes have it.
Never: builds indexes; the state that takes the pool in does.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainhouse.events import SchedulingPolicy
from trainhouse.events.model.bounds import read_stored
from trainhouse.events.model.pool import DevicesClaimed, StartReserved
from trainhouse.scheduler.core.protocol.snapshot_steps import SCHEDULE_FORMATS, parse
from trainhouse.scheduler.core.state.records import Job, Node


@dataclass(frozen=True, slots=True)
class PoolRecords:
    """A pool as it was handed over. `jobs` in the order of their numbers, `nodes` in that of their indexes; the rest as in a snapshot."""

    pools: Mapping[str, Mapping[str, Any]]
    policies: Mapping[str, SchedulingPolicy]
    usage: tuple[tuple[Any, ...], ...]
    estimates: Any
    kept_keys: str
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]
    claims: tuple[DevicesClaimed, ...]
    reservations: tuple[StartReserved, ...]


def pool_records(data: bytes) -> PoolRecords:
    """Reads the bytes of `pool_state`, of an older format too. Raises BrokenInvariant on one that no step leads from."""
    raw = SCHEDULE_FORMATS.lifted(parse(data))
    book = raw["book"]
    return PoolRecords(
        pools={str(pool["name"]): pool for pool in raw["pools"]},
        policies={str(name): read_stored(SchedulingPolicy, policy) for name, policy in book["policies"].items()},
        usage=tuple((pool, team, resource, *map(int, track)) for pool, team, resource, *track in book["usage"]),
        estimates=book["estimates"],
        kept_keys=raw.get("kept_keys", ""),
        nodes=tuple(sorted((read_stored(Node, node) for node in raw["nodes"]), key=lambda node: node.index)),
        jobs=tuple(sorted((read_stored(Job, job) for job in raw["jobs"]), key=lambda job: job.number)),
        claims=tuple(read_stored(DevicesClaimed, claim) for claim in raw["claims"]),
        reservations=tuple(read_stored(StartReserved, held) for held in raw["reservations"]),
    )


class PoolReader:
    """Reader of a partition and its forks. It keeps what it read last until it is told to let go."""

    def __init__(self) -> None:
        self._data = b""
        self.kept: PoolRecords | None = None

    def read(self, data: bytes) -> PoolRecords:
        """The records in these bytes. Raises BrokenInvariant."""
        if self.kept is None or self._data != data:
            self.kept = pool_records(data)
            self._data = data
        return self.kept

    def ahead(self, data: bytes) -> Callable[[], None]:
        """Reads bytes in any thread; returns a function that keeps the records for `read`. Raises BrokenInvariant."""
        records = pool_records(data)

        def keep() -> None:
            self._data, self.kept = data, records

        return keep

    def let_go(self) -> None:
        """Keeps nothing."""
        self._data, self.kept = b"", None
