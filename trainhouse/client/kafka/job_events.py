"""Event history of one job, from Kafka itself: every event about it, once, in order.

Holds: an event that travelled over several topics (or twice over one) is told once.
"""

import dataclasses
from dataclasses import dataclass

import orjson
from confluent_kafka import Message

from trainhouse.client.backend_protocol import Happening
from trainhouse.client.kafka.scan import headers_of, scan
from trainhouse.events import Envelope, Event, InvalidEvent, JobAdmitted, JobSpec, JobStatus, JobSubmitted, decode
from trainhouse.events.model.dead_letter import DeadLetter
from trainhouse.events.security.sensitive import masked_json
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import (
    ALLOCATIONS,
    CHECKPOINTS,
    CONTROL,
    DEAD_LETTERS,
    JOBS,
    OPERATION_REPLIES,
    OPERATIONS,
    PROGRESS,
    STATUS,
    VERDICTS,
)

TOPICS = (JOBS, CONTROL, PROGRESS, ALLOCATIONS, STATUS, CHECKPOINTS, VERDICTS, OPERATIONS, OPERATION_REPLIES, DEAD_LETTERS)
MARGIN_MS = 60_000
DEAD_LETTER = "trainhouse.dead-letter.v1"


@dataclass(frozen=True)
class JobEvent:
    """One event (or one dead letter) about the job. `at_ms` is its writer's time, or else the log's."""

    at_ms: int
    topic: str
    partition: int
    offset: int
    what: Envelope | DeadLetter
    raw: bytes


def story(settings: KafkaSettings, job_id: str, since_ms: int | None = None) -> list[JobEvent]:
    """Every event about a job, oldest first. `since_ms` bounds what is read. Blocks on the brokers."""
    begin = None if since_ms is None else since_ms - MARGIN_MS
    by_identity: dict[str, JobEvent] = {}
    for message in scan(settings, TOPICS, job_id.encode(), begin):
        found = _read(message, job_id)
        if found is not None:
            by_identity.setdefault(_identity(found), found)
    return sorted(by_identity.values(), key=lambda t: (t.at_ms, TOPICS.index(t.topic), t.partition, t.offset))


def spec_of_job(settings: KafkaSettings, job_id: str) -> JobSpec | None:
    """The spec that a job was submitted with; the first submission of an id is the one that counts. Blocks."""
    found: list[tuple[int, JobSpec]] = []
    for message in scan(settings, (JOBS,), job_id.encode()):
        event = _read(message, job_id)
        if event is not None and isinstance(event.what, Envelope) and isinstance(event.what.event, JobSubmitted):
            found.append((message.timestamp()[1], event.what.event.spec))
    return min(found, key=lambda each: each[0])[1] if found else _admitted_spec(settings, job_id)


def _admitted_spec(settings: KafkaSettings, job_id: str) -> JobSpec | None:
    """Of a job that came by its project's topic."""
    for message in scan(settings, (CONTROL,), job_id.encode()):
        event = _read(message, job_id)
        if event is not None and isinstance(event.what, Envelope) and isinstance(event.what.event, JobAdmitted):
            return event.what.event.spec
    return None


def happenings(settings: KafkaSettings, job_id: str, kind: str | None, since_ms: int | None, until_ms: int | None) -> list[Happening]:
    """The story as the tables tell it, from Kafka itself: with each progress report that is not an hour old, and without delay. Blocks."""
    found = [_happening(t) for t in story(settings, job_id, since_ms)]
    in_time = (h for h in found if (since_ms or 0) <= h.at_ms and (until_ms is None or h.at_ms < until_ms))
    return [h for h in in_time if kind is None or kind in h.type]


def _happening(event: JobEvent) -> Happening:
    place = (event.topic, event.partition, event.offset)
    if isinstance(event.what, Envelope):
        node, epoch = getattr(event.what.event, "node_id", None) or "", getattr(event.what.event, "epoch", None)
        text = masked_json(event.raw.decode("utf-8", "replace"))
        summary = summary_of(event.what.event)
        return Happening(event.at_ms, event.what.type, summary, event.what.id, str(node), epoch, text, *place)
    letter = event.what
    reason = f"{letter.topic}-{letter.partition}-{letter.offset}: {letter.reason}"
    raw = orjson.dumps({"type": DEAD_LETTER, **dataclasses.asdict(letter)}).decode()
    return Happening(event.at_ms, DEAD_LETTER, reason, "", "", None, raw, *place)


def summary_of(event: Event) -> str:
    """Summarizes one event in a line."""
    from trainhouse.projections.rows.lines.summary import summarize

    if isinstance(event, JobStatus):
        return f"{event.state}" + (f": {event.reason}" if event.reason else "")
    return summarize(event)


def _read(message: Message, job_id: str) -> JobEvent | None:
    value = message.value() or b""
    place = (message.topic() or "", message.partition() or 0, message.offset() or 0)
    if message.topic() == DEAD_LETTERS:
        try:
            letter = DeadLetter.of_headers(headers_of(message))
        except (KeyError, ValueError):
            return None  # somebody wrote it by hand
        return JobEvent(message.timestamp()[1], *place, letter, value) if letter.job_id == job_id else None
    try:
        envelope = decode(value, headers_of(message))
    except InvalidEvent:
        return None  # it is a dead letter by now, and told as one
    if getattr(envelope.event, "job_id", None) != job_id:
        return None
    return JobEvent(envelope.time_ms or message.timestamp()[1], *place, envelope, value)


def _identity(event: JobEvent) -> str:
    if isinstance(event.what, Envelope):
        return f"{event.what.type} {event.what.id}"
    return event.what.key.decode()
