"""Wait, at the end of a command that changed or followed a job, until the next command reads it from the tables as it is.

Holds: a wait is short, and its end is no condition of anything: without tables a command reads Kafka.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from trainhouse.client import TrainhouseClient

WAIT_S: Final = 3.0
"""Seconds: the tables are half a second behind where the projector is up."""


def let_tables_follow(client: "TrainhouseClient") -> None:
    """Waits until the tables have the statuses that the brokers have now. Blocks. Over the gateway it does nothing."""
    import logging

    from trainhouse.client.kafka.backend import ByKafka
    from trainhouse.client.kafka.freshness import reached
    from trainhouse.events.wire.topics import STATUS

    if isinstance(client.way, ByKafka):
        reached(client.kafka, client.sql, STATUS, wait_s=WAIT_S, level=logging.DEBUG)
