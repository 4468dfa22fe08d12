"""The CloudEvents 1.0 envelope of an event.

Holds: `id` names the event for ever; `order` says which effect of which journal record this is, where it is one; `traceparent` is the
extension for distributed tracing, as its writer gave it: nothing in the control plane reads it; `project` names the project whose topic an
event came by, as intake says it, None for what operators and the gateway sent: whatever an outsider wrote there is dropped. So it is with
`origin`, the record that intake re-keyed: the same record read again has the same one.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from trainhouse.events.model.base import Event
from trainhouse.events.model.bounds import MOST_COUNT, MOST_SMALL, time_within
from trainhouse.events.model.ids import EventId
from trainhouse.events.model.written_times import EPOCH as EPOCH
from trainhouse.events.model.written_times import rfc3339 as rfc3339

MAX_TOPIC_ID_CHARS: Final = 64
# Above the ordinal of any effect of a record.
FIRST_LIVE_ORDINAL: Final = 1_000_000


@dataclass(frozen=True, order=True, slots=True)
class Order:
    """The place of an effect in its journal: newer compares greater within one partition."""

    partition: int
    seq: int
    ordinal: int

    def __str__(self) -> str:
        return f"{self.partition}.{self.seq}.{self.ordinal}"

    @property
    def live(self) -> bool:
        """Whether it is of no record, but of what was published between that one's effects and the next one's."""
        return self.ordinal >= FIRST_LIVE_ORDINAL

    @classmethod
    def parse(cls, text: str) -> "Order":
        """Reads `partition.seq.ordinal`; raises ValueError on anything else."""
        partition, seq, ordinal = (int(part) for part in text.split("."))
        if not (0 <= partition <= MOST_SMALL and 0 <= seq <= MOST_COUNT and 0 <= ordinal <= MOST_COUNT):
            raise ValueError(f"order {text[:80]!r}: no journal has such a place")
        return cls(partition, seq, ordinal)


@dataclass(frozen=True, slots=True)
class Origin:
    """The record of a topic that an event was first read from. `topic_id`: a topic made anew under the same name has another one."""

    topic_id: str
    partition: int
    offset: int

    @property
    def source(self) -> str:
        """The topic's partition: offsets compare within one."""
        return f"{self.topic_id}.{self.partition}"

    def __str__(self) -> str:
        return f"{self.source}.{self.offset}"

    @classmethod
    def parse(cls, text: str) -> "Origin":
        """Reads `topic_id.partition.offset`; raises ValueError on anything else."""
        topic_id, partition, offset = text.rsplit(".", 2)
        found = cls(topic_id, int(partition), int(offset))
        bounded = 0 < len(topic_id) <= MAX_TOPIC_ID_CHARS and 0 <= found.partition <= MOST_SMALL and 0 <= found.offset <= MOST_COUNT
        if not bounded or str(found) != text:
            raise ValueError(f"origin {text[:80]!r}: no topic has such a record")
        return found


@dataclass(frozen=True, slots=True)
class Envelope:
    """One event with its CloudEvents attributes. `time_ms` is milliseconds since 1970 UTC, None when its writer gave none."""

    id: EventId
    source: str
    event: Event
    time_ms: int | None = None
    subject: str = ""
    pool: str | None = None
    causation_id: str | None = None
    correlation_id: str | None = None
    order: Order | None = None
    traceparent: str | None = None
    project: str | None = None
    origin: Origin | None = None

    @property
    def type(self) -> str:
        return self.event.event_type


def envelope_of(
    event: Event,
    *,
    id: str,
    source: str,
    now_ms: int,
    causation_id: str | None = None,
    correlation_id: str | None = None,
    order: Order | None = None,
) -> Envelope:
    """Wraps an event; subject, pool and correlation come from the event where it has them."""
    pool = getattr(event, "pool", None)
    job_id = getattr(event, "job_id", None)
    return Envelope(
        id=EventId.parse(id),
        source=source,
        event=event,
        time_ms=now_ms,
        subject=event.subject(),
        pool=str(pool) if pool is not None else None,
        causation_id=causation_id,
        correlation_id=correlation_id or (str(job_id) if job_id is not None else None),
        order=order,
    )


def from_rfc3339(text: str) -> int:
    """RFC 3339 text as milliseconds since 1970. Text without an offset is taken as UTC.

    Raises ValueError for what is no such text, InvalidEvent for a time that could not be written again.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return time_within(round((moment - EPOCH) // timedelta(microseconds=1) / 1000))
