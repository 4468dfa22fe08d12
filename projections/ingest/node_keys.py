"""Public keys of nodes over time: whether a heartbeat is its node's.

Holds: the rules are the detector's (events/security/vetting.py). What counts is a key that the node has now, or had at the heartbeat's own
time, so tables that are built anew show heartbeats that were signed before a node's key was forgotten.
Never: says that a heartbeat counts because its node had no key yet, once it has one.
"""

from __future__ import annotations

import threading
from bisect import bisect_right

import structlog
from confluent_kafka import TopicPartition

from trainhouse.events.bus.kafka import TO_END, consumer, read_to_end, watermarks
from trainhouse.events.model.decisions import NodeForgotten
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.model.node import NodeHeartbeat, NodeKeyed
from trainhouse.events.security.signing import Signature, signature_of
from trainhouse.events.security.vetting import Known, VettingRules, key_events, key_that_counts, refusal
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import DAY_MS, DEFAULT_DAYS, HEARTBEATS, NODE_KEYS
from trainhouse.projections.ingest.reader import PATIENCE, PROJECTOR_GROUP, record_of
from trainhouse.projections.record import Record

_FOR_EVER_MS = 2**63
_LOOK_TIMEOUT_S = 5.0
_RETRY_S = 0.05
_MOST_PAUSE_S = 1.0
log = structlog.get_logger(__name__)


class NodeKeys:
    """Known keys of nodes. `required`: a node that has none must sign all the same."""

    def __init__(self, required: bool = False) -> None:
        self.required = required
        self._rules = VettingRules(required)
        # By node and pool, by time: from then on that key was the node's; an empty one was none.
        self._keys: dict[str, dict[str, list[tuple[int, str]]]] = {}
        # Forgotten nodes by pool and name, and since when, the oldest first: their keys count for as long as there are records of them.
        self._forgotten: dict[tuple[str, str], int] = {}

    def forget(self, event: NodeForgotten, at_ms: int | None = None) -> None:
        """A node is forgotten; its keys go with the last records that they may have signed."""
        now_ms, name = event.at_ms if at_ms is None else at_ms, (str(event.pool), str(event.node_id))
        self._forgotten.pop(name, None)
        self._forgotten[name] = now_ms
        while self._forgotten and (oldest := next(iter(self._forgotten.items())))[1] < now_ms - DEFAULT_DAYS * DAY_MS:
            (pool, node_id), _ = oldest
            del self._forgotten[pool, node_id]
            self._keys.get(node_id, {}).pop(pool, None)
            if not self._keys.get(node_id, {"": []}):
                del self._keys[node_id]

    def note(self, event: NodeKeyed, at_ms: int | None = None) -> None:
        """From that time on this counts too: the brokers', where it is known, since they date what is signed as well."""
        pools = self._keys.setdefault(event.node_id, {})
        self._forgotten.pop((str(event.pool), str(event.node_id)), None)
        times, new = pools.get(event.pool, []), (event.at_ms if at_ms is None else at_ms, event.public_key)
        if new not in times and _at(times, new[0]) != event.public_key:
            # Replaced as a whole: others look at the list meanwhile.
            pools[event.pool] = sorted([*times, new], key=lambda each: each[0])

    def follow(self) -> None:
        """Notes what was said since the last call, where these keys are followed somewhere."""

    def current(self, stop: threading.Event) -> bool:
        """Waits until all is known that was said before the call; False where `stop` was set before."""
        return not stop.is_set()

    def why_not_theirs(self, beat: NodeHeartbeat, record: Record) -> str:
        """Returns the reason that the record's heartbeat is not from the node that it names; empty for a valid one."""
        signature = signature_of(record.headers)
        now = self._key(beat, signature, _FOR_EVER_MS)
        why = self._refusal(beat, record, signature, now)
        if why and (before := self._key(beat, signature, beat.at_ms)) and before != now:
            return self._refusal(beat, record, signature, before)
        return why

    def keys_of(self, node_id: str, at_ms: int) -> frozenset[str]:
        """The keys that the node has now, or had at that time, in any pool."""
        times = self._keys.get(node_id, {}).values()
        return frozenset(key for one in list(times) for at in (_FOR_EVER_MS, at_ms) if (key := _at(one, at)))

    def nodes_of(self, public_key: str, at_ms: int) -> frozenset[str]:
        """The nodes whose key this is now, or was at that time."""
        return frozenset(node_id for node_id in list(self._keys) if public_key in self.keys_of(node_id, at_ms))

    def _refusal(self, beat: NodeHeartbeat, record: Record, signature: Signature | None, key: str) -> str:
        return refusal(self._rules, Known({beat.node_id: key}, {}), HEARTBEATS, record.value or b"", signature, beat)

    def _key(self, beat: NodeHeartbeat, signature: Signature | None, at_ms: int) -> str:
        pools = self._keys.get(beat.node_id, {})
        at = {pool: _at(times, at_ms) for pool, times in pools.items()}
        return key_that_counts(at.get(beat.pool, ""), {key for key in at.values() if key}, signature.public_key if signature else "")


def _at(times: list[tuple[int, str]], at_ms: int) -> str:
    """The key that counted then; empty before the first."""
    number = bisect_right(times, at_ms, key=lambda each: each[0])
    return times[number - 1][1] if number else ""


class KafkaNodeKeys(NodeKeys):
    """The keys on the brokers' topic. May be shared by threads."""

    def __init__(self, kafka: KafkaSettings, required: bool = False, group: str = PROJECTOR_GROUP) -> None:
        super().__init__(required)
        self._reader = consumer(kafka, group=group, **(PATIENCE | TO_END))
        self._lock = threading.Lock()
        self._end = -1

    def follow(self) -> None:
        """Notes what stands on the topic as of the call. Blocks; raises BusUnavailableError where none of it was read ever."""
        try:
            self._catch_up()
        except BusUnavailableError as error:
            if self._end < 0:
                raise
            log.warning("nodes' keys are not read now; what is known of them counts on", error=str(error))

    def current(self, stop: threading.Event) -> bool:
        """Waits as long as the brokers are away, or hold back what a transaction has not committed. Blocks."""
        pause_s = _RETRY_S
        while not stop.is_set():
            try:
                if self._catch_up():
                    return True
            except BusUnavailableError as error:
                log.warning("nodes' keys are not read now; what they sign waits", error=str(error))
            stop.wait(pause_s)
            pause_s = min(2 * pause_s, _MOST_PAUSE_S)
        return False

    @property
    def assigned(self) -> list[TopicPartition]:
        """Partitions that are assigned to the reader."""
        return list(self._reader.assignment())

    def close(self) -> None:
        """Leaves."""
        self._reader.close()

    def _catch_up(self) -> bool:
        """Reads what is there; whether that was all, to the end as of the call."""
        with self._lock:
            _, end = watermarks(self._reader, NODE_KEYS, 0, _LOOK_TIMEOUT_S)
            if end != self._end:
                try:
                    self._end = self._read(end)
                finally:
                    # Or it goes on to ask the brokers for more, 50 times a second: it waits for an end 20 ms only.
                    self._reader.unassign()
            return self._end >= end

    def _read(self, end: int) -> int:
        """Notes what was not read yet; the offset that was reached."""
        reached = {0: end}
        for message in read_to_end(self._reader, NODE_KEYS, [0], starts={0: max(0, self._end)}, reached=reached):
            record = record_of(message)
            for event in key_events([(record.value, record.headers)]):
                if isinstance(event, NodeForgotten):
                    self.forget(event, record.timestamp_ms)
                else:
                    self.note(event, record.timestamp_ms)
        return reached[0]
