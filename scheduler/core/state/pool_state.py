"""The state of one pool as bytes that another partition can take in.

Holds: the bytes are a snapshot of a partition with that pool alone, so an older format of it is lifted as a snapshot is.
Never: changes a state.
"""

import base64
import zlib
from collections.abc import Sequence

from trainhouse.events.model.handover import MAX_PART_BYTES
from trainhouse.scheduler.core.errors import BrokenInvariant
from trainhouse.scheduler.core.protocol.snapshot_steps import SCHEDULE_FORMATS
from trainhouse.scheduler.core.state.demand import kin_of
from trainhouse.scheduler.core.state.snapshot import Dumps, dump_schedule
from trainhouse.scheduler.core.state.state import ScheduleState


def pool_state(state: ScheduleState, pool: str, level: int) -> bytes:
    """A snapshot of one pool, as a program of that level reads it: its jobs, nodes, policy, promises, use, and keys of forgotten nodes.

    Run times that were learned are those of the kinds of its jobs. What is usual in the partition stays there.
    """
    alone = ScheduleState(state.partition)
    alone.pools[pool] = state.pools[pool]
    alone.jobs = {j: job for j, job in state.jobs.items() if job.pool == pool}
    alone.nodes = {n: state.nodes[n] for n in state.nodes_of_pool.get(pool, ())}
    alone.names = sorted(alone.nodes, key=lambda n: alone.nodes[n].index)
    alone.claims = {j: claim for j, claim in state.claims.items() if j in alone.jobs}
    alone.reservations = {j: held for j, held in state.reservations.items() if j in alone.jobs}
    alone.kept_keys = state.kept_keys.of_pool(pool)
    if pool in state.book.policies:
        alone.book.policies[pool] = state.book.policies[pool]
    alone.book.usage.restore(state.book.usage.rows_of(pool))
    alone.book.estimates = state.book.estimates.of_kins(kin_of(job.spec) for job in alone.jobs.values())
    return SCHEDULE_FORMATS.lowered(dump_schedule(alone, Dumps()), level)


def packed_parts(data: bytes) -> list[str]:
    """The bytes compressed, in base64, in pieces of at most MAX_PART_BYTES before base64; joined, they are base64 again."""
    packed, size = zlib.compress(data), MAX_PART_BYTES // 3 * 3
    return [base64.b64encode(packed[at : at + size]).decode() for at in range(0, len(packed), size)]


def unpacked(parts: Sequence[str]) -> bytes:
    """The bytes of all parts, in their order. Raises BrokenInvariant."""
    try:
        return zlib.decompress(base64.b64decode("".join(parts), validate=True))
    except (ValueError, zlib.error) as error:
        raise BrokenInvariant(f"the parts of a pool's state cannot be unpacked: {error}") from error
