"""Ports of MLflow's API beside the gateway's own: a wait until the projections have caught up, and storage of bytes.

Holds: made at the first request, from the settings that every process reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.events.wire.topics import POINT_TOPICS, TRACKING
from trainhouse.gateway.queries.freshness import Freshness

if TYPE_CHECKING:
    from trainhouse.checkpointing.stores.s3 import S3ObjectStore

EVERYTHING = (TRACKING, *POINT_TOPICS)


@dataclass
class Ports:
    """All of them. `runs` remembers what was read of runs of late, so that a flood of points asks nothing."""

    freshness: Freshness
    objects: S3ObjectStore
    runs: dict[str, tuple[float, dict[str, object]]] = field(default_factory=dict)


def ports_of_settings(freshness: Freshness) -> Ports:
    """From environment and settings file."""
    from trainhouse.checkpointing.stores.s3 import S3ObjectStore  # boto3 is slow to import, and not needed to start

    return Ports(freshness, S3ObjectStore(StoreSettings()))
