"""Pools as the detector knows them: their limits, by the policy that counts, and their partition of control.

Holds: a verdict on which the scheduler acts goes to the newest partition of its pool, and every verdict to people, under the node's key, so
that all verdicts on a node are in one partition, in order. A record that cannot be read, or whose content is not valid, is passed
over with a dead letter: what was known before still counts.
Never: lets such a record stop the detector.
"""

import structlog

from trainhouse.events import DeadLetter, Event, InvalidEvent, NodeHeartbeat, NodeKeyed, NodeLost, PoolCreated, envelope_of
from trainhouse.events.model.decisions import NodeForgotten
from trainhouse.events.model.pool import PolicyApplied
from trainhouse.events.model.verdict import DeviceDegraded, GangHung
from trainhouse.events.security.vetting import key_that_counts
from trainhouse.events.wire.codec import HEADERS, decode, encode
from trainhouse.events.wire.topics import CONTROL, NODE_KEYS, POLICIES, POOLS, VERDICTS
from trainhouse.scheduler.core.detector import DetectorMachine, IssuedVerdict
from trainhouse.scheduler.core.protocol.publication import Outgoing, set_aside
from trainhouse.scheduler.stream.detection.detector_history import read_back
from trainhouse.scheduler.stream.interfaces import Entry, Log, Tail

SOURCE = "trainhouse/detector"
ALL = 2**62
ACTED_ON = (NodeLost, GangHung, DeviceDegraded)
log_ = structlog.get_logger(__name__)


class DetectorPools:
    """Follows the topics of pools, of policies and of nodes' keys, from their beginning; all are compacted and small.

    The first look takes in all that is there: no node is judged by limits that are not those of its pool.
    """

    def __init__(self, log: Log, machine: DetectorMachine) -> None:
        self._log = log
        self._machine = machine
        self._tails: dict[str, Tail] = {}
        self._partition: dict[str, int] = {}
        self._keys: dict[str, dict[str, str]] = {}

    async def follow(self) -> list[Outgoing]:
        """Reads what is new; gives the answers to unreadable records. Raises LogUnavailableError."""
        answers: list[Outgoing] = []
        for topic in (POOLS, POLICIES, NODE_KEYS):
            tail = self._tails.get(topic)
            if tail is None:
                entries, end = await read_back(self._log, topic, 0, ALL)
                self._tails[topic] = await self._log.open_tail(topic, {0: end})
            else:
                entries = await tail.take(0.001)
            answers += [answer for entry in entries if (answer := self._taken(topic, entry)) is not None]
        return answers

    def _taken(self, topic: str, entry: Entry) -> Outgoing | None:
        """The dead letter of a record that does not count; None of one that does, and of a tombstone."""
        if entry.value is None:
            return None
        try:
            self._note(decode(entry.value, entry.headers).event)
        except Exception as error:  # whatever it says: one record must not stop the judging of all nodes
            why = str(error) if isinstance(error, InvalidEvent) else repr(error)
            log_.warning(
                "passed over, what was known before counts", topic=topic, partition=entry.partition, offset=entry.offset, error=why
            )
            return set_aside(DeadLetter(topic, entry.partition, entry.offset, why), entry.value)
        return None

    def _note(self, event: Event) -> None:
        if isinstance(event, PoolCreated):
            self._partition[event.pool] = event.partition
        elif isinstance(event, NodeKeyed):
            self._keys.setdefault(event.node_id, {})[event.pool] = event.public_key
        elif isinstance(event, NodeForgotten):
            # Its name is bound in the scheduler's state; here a node counts that registers again, and then its key comes again.
            self._keys.get(event.node_id, {}).pop(event.pool, None)
            if not self._keys.get(event.node_id, {"": ""}):
                del self._keys[event.node_id]
        elif isinstance(event, PolicyApplied):
            self._machine.apply(event.pool, event.policy.failures.detection)

    def key_of(self, beat: NodeHeartbeat, signed_by: str) -> str:
        """The public key of the node that a heartbeat names, of whichever pool; empty where none is known."""
        of_node = self._keys.get(beat.node_id, {})
        return key_that_counts(of_node.get(beat.pool, ""), {key for key in of_node.values() if key}, signed_by)

    def outgoing(self, verdict: IssuedVerdict, now_ms: int) -> list[Outgoing]:
        """The records of a verdict."""
        value = encode(envelope_of(verdict.event, id=verdict.name, source=SOURCE, now_ms=now_ms))
        found = [Outgoing(VERDICTS, verdict.node_id.encode(), value, HEADERS)]
        if isinstance(verdict.event, ACTED_ON):
            partition = self._partition.get(verdict.event.pool)
            if partition is None:
                log_.error("the pool of a verdict is not known; nobody can act on it", pool=verdict.event.pool, id=verdict.name)
            else:
                found.append(Outgoing(CONTROL, str(partition).encode(), value, HEADERS, partition))
        return found
