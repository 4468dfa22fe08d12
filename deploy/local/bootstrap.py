"""What a fresh stack needs before its parts can work: topics, and one pool of nodes.

Always: harmless when repeated; the pool's event has one id for ever, so that a repeat is the same event.
Never: a change to what exists.
"""

from __future__ import annotations

import time

from confluent_kafka import KafkaException

from trainhouse.deploy.local import readiness
from trainhouse.events import PoolCreated, PoolName, envelope_of
from trainhouse.events.admin import create_topics
from trainhouse.events.errors import BusUnavailable
from trainhouse.events.kafka import EventProducer
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.topics import JOBS

POOL = PoolName("default")
PARTITION = 0
SOURCE = "trainhouse/up"
LEADERS_TIMEOUT_S = 30.0
POLL_S = 0.1


def prepare_bus(settings: KafkaSettings) -> bool:
    """Create the missing topics and ask for the pool if it is not known; blocks; True if the pool was asked for."""
    if create_topics(settings):
        wait_for_leaders(settings)
    if str(POOL) in readiness.pools(settings):
        return False
    event = PoolCreated(pool=POOL, partition=PARTITION)
    producer = EventProducer(settings, **readiness.QUIET)
    producer.send(JOBS, envelope_of(event, id=f"pool:{POOL}:created", source=SOURCE, now_ms=time.time_ns() // 1_000_000))
    producer.flush()
    return True


def wait_for_leaders(settings: KafkaSettings) -> None:
    """Block until the newest topics can be read: a partition has its leader a moment after the topic is made."""
    deadline = time.monotonic() + LEADERS_TIMEOUT_S
    while True:
        try:
            readiness.pools(settings)
            return
        except (BusUnavailable, KafkaException):
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)
