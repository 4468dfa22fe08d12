"""Bootstrap of a fresh stack, before its parts can work: topics, and one pool of nodes.

Always: harmless when repeated; the pool's event has one id for ever, so that a repeat is the same event.
Never: a change to what exists.
"""

from __future__ import annotations

import time

from trainhouse.deploy.local.supervision import readiness
from trainhouse.events import PoolCreated, PoolName, envelope_of
from trainhouse.events.bus.admin import create_topics
from trainhouse.events.bus.kafka import ONE_SHOT, EventProducer
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import JOBS

POOL = PoolName("default")
PARTITION = 0
SOURCE = "trainhouse/up"


def prepare_bus(settings: KafkaSettings) -> bool:
    """Create the missing topics and ask for the pool if it is not known; blocks; True if the pool was asked for."""
    create_topics(settings)
    if str(POOL) in readiness.patiently(lambda: readiness.pools(settings)):
        return False
    event = PoolCreated(pool=POOL, partition=PARTITION)
    producer = EventProducer(settings, **ONE_SHOT, **readiness.QUIET)
    producer.send(JOBS, envelope_of(event, id=f"pool:{POOL}:created", source=SOURCE, now_ms=time.time_ns() // 1_000_000))
    producer.flush()
    return True
