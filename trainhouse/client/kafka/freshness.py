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
from trainhouse.events.wire.topics import STATUS

WAIT_S = 10.0
LOOK_S = 0.05
TRANSACTIONAL = frozenset({STATUS})
"""Topics whose last entry is the marker of a transaction, which no reader gets."""
log = logging.getLogger(__name__)
_HELD = """
SELECT topic, partition, max(if(done = 1, to_offset, from_offset)) AS held FROM positions FINAL
WHERE has(splitByChar(',', {topics:String}), topic) AND lane IN ('facts', 'ranks', 'metrics', 'logs') GROUP BY topic, partition
"""


def reached(kafka: KafkaSettings, sql: Sql, *topics: str, wait_s: float = WAIT_S, level: int = logging.WARNING) -> None:
    """Waits until the tables hold all that these topics hold now. Blocks. `level`: of a remark that it ended too early."""
    deadline = time.monotonic() + wait_s
    try:
        missing = _ends(kafka, topics)
        while missing:
            rows = sql.table(_HELD, {"topics": ",".join(topics)}).rows
            held = {(str(topic), int(partition)): int(offset) for topic, partition, offset in rows}
            missing = {place: end for place, end in missing.items() if held.get(place, 0) < end}
            if missing and time.monotonic() > deadline:
                log.log(level, "the tables are more than %g s behind: what was told last may be missing", wait_s)
                return
            time.sleep(LOOK_S if missing else 0)
    except (ClientError, BusUnavailableError) as error:
        log.log(level, "it is not known whether the tables hold all that was told: %s", error)


def _ends(kafka: KafkaSettings, topics: Iterable[str]) -> dict[tuple[str, int], int]:
    reader = consumer(kafka, **QUIET)
    try:
        places = [(topic, n) for topic in topics for n in partitions_of(reader, topic, METADATA_TIMEOUT_S)]
        ends = {place: watermarks(reader, *place, METADATA_TIMEOUT_S)[1] for place in places}
    finally:
        reader.close()
    seen = {place: end - (place[0] in TRANSACTIONAL) for place, end in ends.items()}
    return {place: end for place, end in seen.items() if end > 0}
