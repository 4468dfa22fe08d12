"""Reader of the grants of datasets, for leave to read another project's version.

Holds: nothing is read until an attempt needs it. Without a grant there is no leave: while the brokers are away from the beginning on, the
rank asks again; an agent that loses them later goes on with what it knew, and says so in its log. The reading begins again after any error.
Never: decides who may have a grant; intake does.
"""

import shlex
import threading
import time
from collections.abc import Iterable

import structlog
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

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
MOST_AGAIN_S = 5.0
CHECK_S = 20.0
"""Between two looks of the reading thread at the ends of the topic, which show whether all of it is read."""
STALE_S = 180.0
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
        # When all of the topic was last known to be read, or the reading began; and when the log last said that this is long ago.
        self._current_s = time.monotonic()
        self._warned_s = self._current_s
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def covers(self, key: GrantKey) -> bool:
        """Whether a grant is known. Does not block; False as long as nothing was read."""
        with self._changed:
            if self._thread is not None:
                self._begin()  # as long as a grant is known, nothing else asks: a thread that ended would never be seen
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
                self._current_s = self._warned_s = time.monotonic()
            if (self._thread is None or not self._thread.is_alive()) and not self._stop.is_set():
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
        pause_s = AGAIN_S
        while not self._stop.is_set():
            before_s = self._current_s
            try:
                self._follow()
            except BusUnavailableError as error:
                log.warning("waiting for the brokers to read grants of datasets", error=str(error))
            except Exception:
                log.exception("reading grants of datasets failed; it begins again")
            self._warn_if_stale()
            pause_s = AGAIN_S if self._current_s > before_s else pause_s
            self._stop.wait(pause_s)
            pause_s = min(MOST_AGAIN_S, 2 * pause_s)

    def _follow(self) -> None:
        """Reads the topic until the end. Raises BusUnavailableError, KafkaException."""
        # Told of the end of a partition, as that may lie behind a transaction's marker; else it asks as who follows a topic does.
        reader = consumer(self._settings, log_level=2, **{"enable.partition.eof": TO_END["enable.partition.eof"]})
        try:
            numbers = partitions_of(reader, DATASETS, METADATA_TIMEOUT_S)
            reader.assign([TopicPartition(DATASETS, number, self._next.get(number, 0)) for number in numbers])
            check_s = time.monotonic() + CHECK_S
            while not self._stop.is_set():
                self._take(next_records(reader, BATCH, AGAIN_S))
                if time.monotonic() >= check_s:
                    self._check(reader, numbers)
                    check_s = time.monotonic() + CHECK_S
        finally:
            reader.close()

    def _check(self, reader: Consumer, numbers: Iterable[int]) -> None:
        """Notes whether all is read. A client that lost its brokers for good (see `events/bus/outage.py`) gives no answer: raises
        BusUnavailableError, and another is made."""
        ends = {number: watermarks(reader, DATASETS, number, METADATA_TIMEOUT_S)[1] for number in numbers}
        if self._read_to(ends):
            self._current_s = time.monotonic()
        self._warn_if_stale()

    def _warn_if_stale(self) -> None:
        now_s = time.monotonic()
        if now_s - max(self._current_s, self._warned_s) >= STALE_S:
            self._warned_s = now_s
            log.warning(
                "grants of datasets could not be read for long: what was granted before counts, revocations since then are not known; "
                "are the brokers up, and does this agent reach them?",
                topic=DATASETS,
                for_s=round(now_s - self._current_s),
                brokers=self._settings.bootstrap,
            )

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
