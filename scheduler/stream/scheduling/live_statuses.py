"""Live statuses of one partition's jobs: `core/handlers/live_progress` with bytes and a place in the order of publication.

Holds: a live status stands after the effects of the newest folded record and before those of the next one.
Never: raises into the publisher for what one job's progress says: that status is left out, and the next report brings another.
"""

from collections.abc import Sequence

import structlog

from trainhouse.events import Event, Order, ProgressReported
from trainhouse.events.wire.envelope import FIRST_LIVE_ORDINAL
from trainhouse.scheduler.core.effects import status_effect
from trainhouse.scheduler.core.handlers.live_progress import LiveProgress
from trainhouse.scheduler.core.protocol.publication import Outgoing, sent_of
from trainhouse.scheduler.core.state.state import ScheduleState

log_ = structlog.get_logger(__name__)


class LiveJobStatuses:
    """The port `LiveStatuses` for the scheduler's machine."""

    def __init__(self, machine_name: str) -> None:
        self._machine_name = machine_name
        self._ordinal = FIRST_LIVE_ORDINAL
        self.progress = LiveProgress()
        self.unrecorded = False
        self.unread = True

    @property
    def due(self) -> bool:
        return self.progress.due

    def read_from_end(self) -> None:
        """Marks reports that are read from now on as new."""
        self.unread = False

    def note_read(self) -> None:
        """A record is owed."""
        self.unrecorded = True

    def offer_inputs(self, state: ScheduleState, inputs: Sequence[Event], now_ms: int) -> None:
        """Takes the progress of agents that send all of it to control."""
        for event in inputs:
            if isinstance(event, ProgressReported):
                self.progress.offer(state, event, now_ms)

    def marks(self, state: ScheduleState, now_ms: int) -> list[ProgressReported]:
        """Marks that are due."""
        return self.progress.marks(state, now_ms)

    def behind(self, state: ScheduleState, decisions: Sequence[Event]) -> list[ProgressReported]:
        """Marks without which a record would rest on old progress."""
        return self.progress.behind(state, decisions)

    def own_record(self, now_ms: int, decisions: Sequence[Event]) -> None:
        """Takes the numbers that it gave."""
        self.unrecorded = False
        self.progress.own_record(now_ms, decisions)

    def foreign_record(self) -> None:
        """Lets go of all numbers and reports.

        No record is owed for them: of two owners that answer each other's records at once, none would publish, or learn that it is fenced.
        """
        self.unread, self.unrecorded = True, False
        self.progress.foreign_record()

    def resend(self) -> None:
        """Makes the statuses that were taken last due again: they may not have been published."""
        self.progress.resend()

    def outgoing(self, state: ScheduleState, partition: int, seq: int, now_ms: int, most: int) -> list[Outgoing]:
        """The statuses that are due, ready to send."""
        found: list[Outgoing] = []
        statuses = self.progress.statuses(state, now_ms, most)
        while True:
            try:
                status = next(statuses, None)
                if status is None:
                    return found
                self._ordinal += 1
                found += sent_of(status_effect(status), self._machine_name, Order(partition, seq, self._ordinal), now_ms)
            except Exception:
                log_.exception("a live status could not be made; the job's next one is tried", partition=partition, seq=seq)
                statuses = self.progress.statuses(state, now_ms, most - len(found))
