"""Sends the agent's own events: reports to control, heartbeats, replies to operations, accesses.

Holds: reports leave in the order in which the machine made them; those made before the node is registered, or while its pool changes its
partition, wait for that, and what a rank wrote goes out before its end is told. The brokers hold a heartbeat of an incarnation before it
registers, so that the detector knows it: however soon its silence begins, it is told of by that name.
Any other heartbeat is never repeated: an old one says nothing.
"""

from collections import deque
from collections.abc import Callable

from confluent_kafka import KafkaException

from trainhouse.events import CheckpointSkipped, Envelope, Event, NodeAccess, NodeHeartbeat, OperationReplied, envelope_of
from trainhouse.events.bus.kafka import EventProducer
from trainhouse.events.model.node_audit import Outcome
from trainhouse.events.wire.topics import CHECKPOINTS, CONTROL, HEARTBEATS, NODE_AUDIT, OPERATION_REPLIES, PROGRESS
from trainhouse.workers.agent.core import AttemptKey, Identity, Report
from trainhouse.workers.agent.ship.outbox import Outbox

MAX_HELD = 100_000
Acked = Callable[[AttemptKey], None]


class Reports:
    """`acked` is called when an AttemptStopped is with the brokers, `waited` before a report is sent that had to wait."""

    def __init__(
        self,
        outbox: Outbox,
        pulse: EventProducer,
        identity: Identity,
        acked: Acked,
        clock_ms: Callable[[], int],
        waited: Callable[[Report], None] = lambda _: None,
    ) -> None:
        self._outbox = outbox
        self._pulse = pulse
        self._node_id = identity.node_id
        self._pool = identity.pool
        self._acked = acked
        self._clock_ms = clock_ms
        self._waited = waited
        self._registrations = 0
        self._held: deque[Report] = deque(maxlen=MAX_HELD)
        self.partition: int | None = None

    def hold(self) -> None:
        """Holds reports back from now on; a registration that waits for its heartbeat is given up."""
        self.partition = None
        self._registrations += 1

    def register(self, partition: int, beat: NodeHeartbeat, *registration: Report, opens: bool = True) -> None:
        """Sends `registration` once the brokers hold `beat`, the first of its incarnation; what is reported meanwhile waits.

        Not `opens`: what is reported waits on, until `open`.
        """
        self.hold()
        number = self._registrations

        def acked() -> None:
            if number == self._registrations:  # else another one, or a move, came after it
                self.located(partition, *registration, opens=opens)

        self._outbox.offer(HEARTBEATS, self._wrap_beat(beat), key=self._node_id, on_ack=acked)

    def located(self, partition: int, *first: Report, opens: bool = True) -> None:
        """Control's partition is known: `first` goes out before all that has waited."""
        for report in first:
            self._send(partition, report)
        if opens:
            self.open(partition)

    def open(self, partition: int) -> None:
        """Control is written to at `partition` from now on; what has waited goes out."""
        self.partition = partition
        held, self._held = list(self._held), deque(maxlen=MAX_HELD)
        for report in held:
            self._waited(report)
            self.report(report)

    def report(self, report: Report) -> None:
        """Sends to control, or keeps it until the node is registered."""
        if self.partition is None:
            self._held.append(report)
        else:
            self._send(self.partition, report)

    def _send(self, partition: int, report: Report) -> None:
        stops = report.stops
        self._outbox.offer(
            CONTROL,
            self._wrap(report.event, report.event_id),
            key=self._pool,
            partition=partition,
            on_ack=None if stops is None else lambda: self._acked(stops),
        )

    def progress(self, report: Report) -> None:
        """Sends progress beside control, if the node is registered; otherwise the next one will do."""
        if self.partition is not None:
            self._outbox.offer(PROGRESS, self._wrap(report.event, report.event_id), key=self._pool, partition=self.partition)

    def beat(self, beat: NodeHeartbeat) -> None:
        """Sends a heartbeat, if the brokers take it soon; otherwise the next one will do."""
        try:
            self._pulse.send(HEARTBEATS, self._wrap_beat(beat), key=self._node_id, on_ack=lambda *_: None)
        except (BufferError, KafkaException):
            pass

    def reply(self, reply: OperationReplied) -> None:
        """Sends a part of an answer to an operation."""
        event_id = f"{reply.request_id}:{reply.node_id}:{reply.rank}:{reply.part}"
        self._outbox.offer(OPERATION_REPLIES, self._wrap(reply, event_id), key=reply.request_id)

    def skipped(self, event: CheckpointSkipped) -> None:
        """Sends the warning of an attempt that saves nothing; repeats have the same id."""
        self._outbox.offer(CHECKPOINTS, self._wrap(event, f"{event.job_id}:{int(event.epoch)}:checkpoint-skipped"), key=str(event.job_id))

    def accessed(self, access: NodeAccess) -> None:
        """Sends what the audit is told."""
        place = ",".join(map(str, access.ranks)) if access.outcome is Outcome.ENDED else ""
        event_id = f"{self._node_id}:access:{access.access_id}:{access.outcome}:{place}"[:512]
        self._outbox.offer(NODE_AUDIT, self._wrap(access, event_id), key=self._node_id)

    def _wrap_beat(self, beat: NodeHeartbeat) -> Envelope:
        return self._wrap(beat, f"{beat.node_id}:{beat.incarnation}:beat:{beat.sequence}")

    def _wrap(self, event: Event, event_id: str) -> Envelope:
        return envelope_of(event, id=event_id, source=f"trainhouse/agent/{self._node_id}", now_ms=self._clock_ms())
