"""All that happened to one job, from Kafka itself: every event about it, once, in order.

Holds: an event that travelled over several topics (or twice over one) is told once.
"""

from dataclasses import dataclass

from confluent_kafka import Message

from trainhouse.client.scan import headers_of, scan
from trainhouse.events import Envelope, InvalidEvent, JobSpec, JobSubmitted, decode
from trainhouse.events.dead_letter import DeadLetter
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.topics import ALLOCATIONS, CHECKPOINTS, CONTROL, DEAD_LETTERS, JOBS, OPERATION_REPLIES, OPERATIONS, STATUS, VERDICTS

TOPICS = (JOBS, CONTROL, ALLOCATIONS, STATUS, CHECKPOINTS, VERDICTS, OPERATIONS, OPERATION_REPLIES, DEAD_LETTERS)
MARGIN_MS = 60_000


@dataclass(frozen=True)
class Told:
    """One event (or one dead letter) about the job. `at_ms` is its writer's time, or else the log's."""

    at_ms: int
    topic: str
    partition: int
    offset: int
    what: Envelope | DeadLetter
    raw: bytes


def story(settings: KafkaSettings, job_id: str, since_ms: int | None = None) -> list[Told]:
    """Every event about a job, oldest first. `since_ms` bounds what is read. Blocks on the brokers."""
    begin = None if since_ms is None else since_ms - MARGIN_MS
    told: dict[str, Told] = {}
    for message in scan(settings, TOPICS, job_id.encode(), begin):
        found = _read(message, job_id)
        if found is not None:
            told.setdefault(_identity(found), found)
    return sorted(told.values(), key=lambda t: (t.at_ms, TOPICS.index(t.topic), t.partition, t.offset))


def spec_of_job(settings: KafkaSettings, job_id: str) -> JobSpec | None:
    """The spec that a job was submitted with; the first submission of an id is the one that counts. Blocks."""
    found: list[tuple[int, JobSpec]] = []
    for message in scan(settings, (JOBS,), job_id.encode()):
        told = _read(message, job_id)
        if told is not None and isinstance(told.what, Envelope) and isinstance(told.what.event, JobSubmitted):
            found.append((message.timestamp()[1], told.what.event.spec))
    return min(found, key=lambda each: each[0])[1] if found else None


def _read(message: Message, job_id: str) -> Told | None:
    value = message.value() or b""
    place = (message.topic() or "", message.partition() or 0, message.offset() or 0)
    if message.topic() == DEAD_LETTERS:
        letter = DeadLetter.of_headers(headers_of(message))
        return Told(message.timestamp()[1], *place, letter, value) if letter.job_id == job_id else None
    try:
        envelope = decode(value, message.headers())
    except InvalidEvent:
        return None  # it is a dead letter by now, and told as one
    if getattr(envelope.event, "job_id", None) != job_id:
        return None
    return Told(envelope.time_ms or message.timestamp()[1], *place, envelope, value)


def _identity(told: Told) -> str:
    if isinstance(told.what, Envelope):
        return f"{told.what.type} {told.what.id}"
    return told.what.key.decode()
