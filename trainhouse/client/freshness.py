"""Whether the tables hold what a topic holds: what a job told before it ended is to be in what is read after.

Holds: a wait is bounded; one that ends too early is a warning of Python's logging, and no error: old rows are there all the same.
"""

import logging
import time

from trainhouse.client.errors import ClientError
from trainhouse.client.feed import METADATA_TIMEOUT_S, QUIET
from trainhouse.client.way import Sql
from trainhouse.events.errors import BusUnavailable
from trainhouse.events.kafka import consumer, partitions_of, watermarks
from trainhouse.events.settings import KafkaSettings

WAIT_S = 10.0
LOOK_S = 0.05
log = logging.getLogger(__name__)
_HELD = """
SELECT partition, max(if(done = 1, to_offset, from_offset)) AS held FROM positions FINAL
WHERE topic = {topic:String} AND lane IN ('facts', 'metrics') GROUP BY partition
"""


def reached(kafka: KafkaSettings, sql: Sql, topic: str, wait_s: float = WAIT_S) -> None:
    """Waits until the tables hold all that a topic holds now. Blocks."""
    deadline = time.monotonic() + wait_s
    try:
        missing = _ends(kafka, topic)
        while missing:
            held = {int(partition): int(offset) for partition, offset in sql.table(_HELD, {"topic": topic}).rows}
            missing = {partition: end for partition, end in missing.items() if held.get(partition, 0) < end}
            if missing and time.monotonic() > deadline:
                log.warning("the tables are more than %g s behind: what was told last may be missing", wait_s)
                return
            time.sleep(LOOK_S if missing else 0)
    except (ClientError, BusUnavailable) as error:
        log.warning("it is not known whether the tables hold all that was told: %s", error)


def _ends(kafka: KafkaSettings, topic: str) -> dict[int, int]:
    reader = consumer(kafka, **QUIET)
    try:
        ends = {n: watermarks(reader, topic, n, METADATA_TIMEOUT_S)[1] for n in partitions_of(reader, topic, METADATA_TIMEOUT_S)}
    finally:
        reader.close()
    return {partition: end for partition, end in ends.items() if end > 0}
