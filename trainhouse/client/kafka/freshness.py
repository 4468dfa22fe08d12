"""Wait until the tables hold what a topic holds, so that a read after a job's end has all of its events.

Holds: a wait is bounded; one that ends too early is a warning of Python's logging, and no error: old rows are there all the same.
"""

import logging
import time
from collections.abc import Iterable

from trainhouse.client.backend_protocol import Sql
from trainhouse.client.errors import ClientError
from trainhouse.client.kafka.status_feed import METADATA_TIMEOUT_S, QUIET
from trainhouse.events.bus.kafka import consumer, partitions_of, watermarks
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.settings import KafkaSettings

WAIT_S = 10.0
LOOK_S = 0.05
log = logging.getLogger(__name__)
_HELD = """
SELECT topic, partition, max(if(done = 1, to_offset, from_offset)) AS held FROM positions FINAL
WHERE has(splitByChar(',', {topics:String}), topic) AND lane IN ('facts', 'ranks', 'metrics') GROUP BY topic, partition
"""


def reached(kafka: KafkaSettings, sql: Sql, *topics: str, wait_s: float = WAIT_S) -> None:
    """Waits until the tables hold all that these topics hold now. Blocks."""
    deadline = time.monotonic() + wait_s
    try:
        missing = _ends(kafka, topics)
        while missing:
            rows = sql.table(_HELD, {"topics": ",".join(topics)}).rows
            held = {(str(topic), int(partition)): int(offset) for topic, partition, offset in rows}
            missing = {place: end for place, end in missing.items() if held.get(place, 0) < end}
            if missing and time.monotonic() > deadline:
                log.warning("the tables are more than %g s behind: what was told last may be missing", wait_s)
                return
            time.sleep(LOOK_S if missing else 0)
    except (ClientError, BusUnavailableError) as error:
        log.warning("it is not known whether the tables hold all that was told: %s", error)


def _ends(kafka: KafkaSettings, topics: Iterable[str]) -> dict[tuple[str, int], int]:
    reader = consumer(kafka, **QUIET)
    try:
        places = [(topic, n) for topic in topics for n in partitions_of(reader, topic, METADATA_TIMEOUT_S)]
        ends = {place: watermarks(reader, *place, METADATA_TIMEOUT_S)[1] for place in places}
    finally:
        reader.close()
    return {place: end for place, end in ends.items() if end > 0}
