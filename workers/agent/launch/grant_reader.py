"""Reader of the grants of datasets, for leave to read another project's version.

Holds: nothing is read until an attempt needs it. Without a grant there is no leave: while the brokers are away from the beginning on, the
rank asks again; an agent that loses them later goes on with what it knew.
Never: decides who may have a grant; intake does.
"""

import shlex
import threading
import time

import structlog
from confluent_kafka import KafkaError, Message, TopicPartition

from trainhouse.checkpointing.errors import ObjectStoreUnavailableError
from trainhouse.events import DatasetGrantRevoked, InvalidEvent, decode
from trainhouse.events.bus.kafka import TO_END, consumer, headers_of, next_records, partitions_of, watermarks
from trainhouse.events.model.dataset_grant import GrantKey, GrantTable
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import DATASETS

DEADLINE_S = 10.0
METADATA_TIMEOUT_S = 5.0
AGAIN_S = 0.5
LOOK_AGAIN_S = 1.0
BATCH = 1_000
log = structlog.get_logger(__name__)


class GrantReader:
    """Of one agent. Safe to share by threads."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._table = GrantTable()
        self._next: dict[int, int] = {}
        # Ends of the partitions as they were last asked for, and when: a rank that asks on and on costs the brokers no more than that.
        self._looked: tuple[float, dict[int, int]] | None = None
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def covers(self, key: GrantKey) -> bool:
        """Whether a grant is known. Does not block; False as long as nothing was read."""
        with self._changed:
            return self._table.covers(key)

    def why_not(self, key: GrantKey) -> str:
        """Returns why there is no leave; empty if there is. Blocks for DEADLINE_S at most, until all that the topic has by now is read.
        Raises ObjectStoreUnavailableError where that is not read, or no word of such a grant is there: it is to be asked again."""
        self._begin()
        deadline_s = time.monotonic() + DEADLINE_S
        ends = self._ends()
        with self._changed:
            if not self._changed.wait_for(lambda: self._read_to(ends), max(0.0, deadline_s - time.monotonic())):
                raise ObjectStoreUnavailableError(f"grants of datasets are not read yet: {DATASETS} at {self._settings.bootstrap}")
            if self._table.covers(key):
                return ""
            revoked = self._table.revocation(key)
        if revoked is None:
            raise ObjectStoreUnavailableError(f"{DATASETS} has no grant of {key.reference} to project {key.project} for {key.purpose} yet")
        return _over(key, revoked)

    def close(self) -> None:
        """Ends the reading."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5.0)

    def _begin(self) -> None:
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="grants", daemon=True)
                self._thread.start()

    def _ends(self) -> dict[int, int]:
        """Ends of the topic's partitions, LOOK_AGAIN_S old at most. Blocks. Raises ObjectStoreUnavailableError."""
        if self._looked is not None and time.monotonic() < self._looked[0] + LOOK_AGAIN_S:
            return self._looked[1]
        asking = consumer(self._settings, log_level=0)
        try:
            numbers = partitions_of(asking, DATASETS, METADATA_TIMEOUT_S)
            ends = {number: watermarks(asking, DATASETS, number, METADATA_TIMEOUT_S)[1] for number in numbers}
            self._looked = time.monotonic(), ends
            return ends
        except BusUnavailableError as error:
            raise ObjectStoreUnavailableError(f"grants of datasets cannot be read: {error}") from error
        finally:
            asking.close()

    def _read_to(self, ends: dict[int, int]) -> bool:
        return all(self._next.get(number, 0) >= end for number, end in ends.items())

    def _run(self) -> None:
        while not self._stop.is_set():
            # Told of the end of a partition, as that may lie behind a transaction's marker; else it asks as who follows a topic does.
            reader = consumer(self._settings, log_level=2, **{"enable.partition.eof": TO_END["enable.partition.eof"]})
            try:
                numbers = partitions_of(reader, DATASETS, METADATA_TIMEOUT_S)
                reader.assign([TopicPartition(DATASETS, number, self._next.get(number, 0)) for number in numbers])
                while not self._stop.is_set():
                    self._take(next_records(reader, BATCH, AGAIN_S))
            except BusUnavailableError as error:
                log.warning("waiting for the brokers to read grants of datasets", error=str(error))
            except Exception:
                log.exception("reading grants of datasets failed; it begins again")
            finally:
                reader.close()
            self._stop.wait(AGAIN_S)

    def _take(self, messages: list[Message]) -> None:
        with self._changed:
            for message in messages:
                error, number, offset = message.error(), int(message.partition() or 0), int(message.offset() or 0)
                if error is None:
                    self._fold(message)
                    self._next[number] = offset + 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    self._next[number] = max(self._next.get(number, 0), offset)
                else:
                    log.warning("reading grants of datasets", error=error.str())
            if messages:
                self._changed.notify_all()

    def _fold(self, message: Message) -> None:
        try:
            self._table.fold(decode(message.value(), headers_of(message)).event)
        except InvalidEvent as invalid:
            log.warning("a record cannot be read; passing over it", topic=DATASETS, offset=message.offset(), reason=str(invalid)[:500])


def _over(key: GrantKey, revoked: DatasetGrantRevoked) -> str:
    why = f": {revoked.reason}" if revoked.reason else ""
    asks = f"trainhouse data grant {key.reference} --project {shlex.quote(key.project)} --purpose {shlex.quote(key.purpose)}"
    return (
        f"the grant of {key.reference} to project {key.project} for purpose {key.purpose} was revoked by {revoked.user}{why}; "
        f"ranks read no more of it. Its owner, project {revoked.owner}, may give it again (`{asks}`); then submit the job anew"
    )
