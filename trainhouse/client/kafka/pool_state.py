"""Pools with their devices, jobs and teams, from the journals of their schedulers."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trainhouse.client.backend_protocol import Row
from trainhouse.client.pool_view import EMPTY
from trainhouse.events.runtime.clock import wall_ms

if TYPE_CHECKING:
    from trainhouse.events.settings import KafkaSettings


def overview(kafka: "KafkaSettings", pools: Mapping[str, int]) -> list[Row]:
    """One row for each of these pools (by partition), with the use of each team in it. Blocks."""
    from trainhouse.client.kafka.present import schedule_at
    from trainhouse.scheduler.state_rows import cluster
    from trainhouse.scheduler.time_travel import NoSuchMomentError

    try:
        now = schedule_at(kafka, partitions=sorted(set(pools.values())))
    except NoSuchMomentError:
        return [{"pool": pool, "partition": pools[pool]} | EMPTY for pool in sorted(pools)]
    # An idle journal has no record for up to two minutes; time passes all the same.
    found = cluster((f.state for f in now.partitions.values()), max(now.last_ms, wall_ms()))
    rows = {row["pool"]: row for row in found["pools"]}
    return [
        rows.get(pool, {"pool": pool, "partition": pools[pool]} | EMPTY) | {"teams": [t for t in found["teams"] if t["pool"] == pool]}
        for pool in sorted(pools)
    ]
