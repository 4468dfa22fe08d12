"""Lines of the log about jobs: what a journal's folded records did to them.

Holds: a line only for a record that counted and that this process wrote; at most MOST lines a record, then how many were left out.
"""

import logging

import structlog

from trainhouse.events import Event, FailureBlamed, GangAllocated, GangReleased, JobRejected
from trainhouse.events.model.decisions import JobMoved
from trainhouse.events.runtime.logs import ids_of
from trainhouse.events.wire.journal import JournalRecord

MOST = 50
LOGGED: tuple[type[Event], ...] = (JobMoved, GangAllocated, GangReleased, FailureBlamed, JobRejected)
log_ = structlog.get_logger(__name__)
_enabled = logging.getLogger(__name__)


def log_decisions(record: JournalRecord, partition: int) -> None:
    """One line for each decision that moved a job."""
    if not _enabled.isEnabledFor(logging.INFO):
        return
    logged = [decision for decision in record.decisions if isinstance(decision, LOGGED)]
    for decision in logged[:MOST]:
        more = {name: str(value) for name in ("state", "reason", "category") if (value := getattr(decision, name, None)) is not None}
        if isinstance(decision, JobMoved):
            more["phase"] = type(decision.phase).__name__
        log_.info("decided", type=decision.event_type, partition=partition, seq=record.seq, **ids_of(decision), **more)
    if len(logged) > MOST:
        log_.info("decided more", partition=partition, seq=record.seq, left_out=len(logged) - MOST)
