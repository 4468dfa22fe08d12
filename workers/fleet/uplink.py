"""Uplink of one agent, over the fleet's one producer; it can be cut off, as a network can.

Holds: while it is cut off, reports wait in order and heartbeats are lost, as they are for a real agent.
Never: outlives its agent: what a dead agent had not sent is told again by the next one.
"""

from collections.abc import Callable

from trainhouse.events import NodeHeartbeat, OperationReplied, envelope_of
from trainhouse.events.wire.topics import CONTROL
from trainhouse.workers.agent.core import Report
from trainhouse.workers.agent.ship.outbox import Outbox
from trainhouse.workers.agent.ship.reports import Reports
from trainhouse.workers.fleet.disk import Disk


class Uplink:
    """Sends what one start of an agent says."""

    def __init__(self, reports: Reports, outbox: Outbox, disk: Disk, node_id: str, clock_ms: Callable[[], int]) -> None:
        self._reports = reports
        self._outbox = outbox
        self._disk = disk
        self._source = f"trainhouse/agent/{node_id}"
        self._clock_ms = clock_ms
        self._held: list[Report] = []
        self.cut = False

    def located(self, partition: int, *registration: Report, opens: bool = True) -> None:
        """Commands are being read: the registration goes out first, then all that has waited; not `opens`: that waits on, until `open`."""
        self._reports.located(partition, *registration, opens=opens)
        self.ship()

    def hold(self) -> None:
        """Holds reports back from now on."""
        self._reports.hold()

    def open(self, partition: int) -> None:
        """Control is written to at `partition` from now on; what has waited goes out."""
        self._reports.open(partition)
        self.ship()

    def report(self, report: Report) -> None:
        if self.cut:
            self._held.append(report)
        else:
            self._reports.report(report)

    def progress(self, report: Report, beside: bool) -> bool:
        """Sends progress, if it can go now and the brokers keep up; otherwise the next one will do. `beside`: not to control."""
        if self.cut or not self._outbox.room() or (beside and self._reports.partition is None):
            return False
        (self._reports.progress if beside else self._reports.report)(report)
        return True

    def beat(self, beat: NodeHeartbeat) -> None:
        if not self.cut:
            self._reports.beat(beat)

    def reply(self, reply: OperationReplied) -> None:
        """An answer to a person; a person who asks a node that is cut off gets none."""
        if not self.cut:
            self._reports.reply(reply)

    def ship(self) -> None:
        """Sends what ranks wrote, as far as that is possible."""
        while not self.cut and self._reports.partition is not None and self._disk.unsent:
            found = self._disk.unsent.popleft()
            if found.topic == CONTROL:
                self._reports.report(Report(found.event, found.event_id))
                continue
            envelope = envelope_of(found.event, id=found.event_id, source=self._source, now_ms=self._clock_ms())
            self._outbox.offer(found.topic, envelope, key=found.event.subject())

    def mend(self) -> None:
        """The network is back."""
        self.cut = False
        held, self._held = self._held, []
        for report in held:
            self._reports.report(report)
        self.ship()
