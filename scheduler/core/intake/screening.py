"""Intake's first stage: what an outsider's record on the public topic becomes.

Holds: one record becomes an admission, or a dead letter with a reason and, where its producer can be identified, a rejection under the
event's id; nothing disappears. Stateless: repeats are the directory's business.
Never: trusts an outsider's `order`, `project` or `origin`; raises InvalidEvent; passes on a secret in a spec's `env`.
"""

import traceback
from dataclasses import dataclass, replace
from typing import get_args

from trainhouse.events import (
    ChangeProject,
    DeadLetter,
    DeprecateDataset,
    Envelope,
    EventId,
    GrantDataset,
    InvalidEvent,
    JobId,
    JobState,
    JobStatus,
    JobSubmitted,
    PoolCreated,
    PublishDataset,
    QuarantineShard,
    ReleaseShard,
    RevokeDatasetGrant,
    SecretDeclared,
    SecretRemoved,
    envelope_of,
)
from trainhouse.events.model.bounds import LATEST_MS
from trainhouse.events.model.dead_letter import MAX_KEPT_BYTES
from trainhouse.events.model.routing import PoolRequest
from trainhouse.events.security.sensitive import masked_head, refusal
from trainhouse.events.wire.codec import HEADERS, Headers, decode, encode, split
from trainhouse.events.wire.envelope import Origin
from trainhouse.events.wire.project_topics import project_of, status_topic
from trainhouse.events.wire.topic_types import TOPIC_EVENTS
from trainhouse.events.wire.topics import ADMISSION, JOBS, MAX_INPUT_BYTES, STATUS
from trainhouse.scheduler.core.intake.vouching import outcome_id, vouched
from trainhouse.scheduler.core.protocol.publication import Outgoing, set_aside

SOURCE = "trainhouse/intake"
# A client waits for an answer under the event's id, though it is about no job.
_OF_DATASETS = PublishDataset | DeprecateDataset | ReleaseShard | GrantDataset | RevokeDatasetGrant
_ANSWERED = frozenset(cls.event_type for cls in (ChangeProject, *get_args(_OF_DATASETS), *get_args(PoolRequest)))


@dataclass(frozen=True, slots=True)
class Arrived:
    """One record of the public topic, or of a project's, as it came. `topic_id`: the topic's, which is not its name's for ever."""

    partition: int
    offset: int
    timestamp_ms: int
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    topic: str = JOBS
    topic_id: str = ""

    @property
    def origin(self) -> Origin | None:
        """By which the directory knows the record again; None where the topic's id is not known."""
        return Origin(self.topic_id, self.partition, self.offset) if self.topic_id else None

    @property
    def project(self) -> str | None:
        """Project that owns the topic; None for the public one."""
        return project_of(self.topic)

    @property
    def name(self) -> str:
        """Names the record for ever."""
        return f"{self.topic}-{self.partition}-{self.offset}"


@dataclass(frozen=True, slots=True)
class Screened:
    """Messages to send for one record. `own_failure`: an error of our own code, and its place; the input may be fine. Empty: nothing."""

    outgoing: tuple[Outgoing, ...]
    own_failure: str = ""


def screen(arrived: Arrived, admission_partitions: int, now_ms: int) -> Screened:
    """Decides about one record. Never raises for what is in it."""
    try:
        return Screened(tuple(_admit(arrived, admission_partitions, now_ms)))
    except InvalidEvent as invalid:
        return Screened(_reject(arrived, invalid, now_ms))
    except Exception as error:  # our own bug: reported apart, so that operators see it
        failure = InvalidEvent(f"trainhouse failed to read it: {type(error).__name__}: {error}", **_names(arrived))
        return Screened(_reject(arrived, failure, now_ms), own_failure=_kind(error))


def _names(arrived: Arrived) -> dict[str, str | None]:
    """Job and event id of what our own code failed on, where they can be read: the sender is notified."""
    try:
        attributes, data = split(arrived.value, _headers(arrived))
    except InvalidEvent:
        return {}
    job_id, event_id = data.get("job_id") if isinstance(data, dict) else None, attributes.get("id")
    return {
        "job_id": job_id if isinstance(job_id, str) else None,
        "event_id": event_id if isinstance(event_id, str) else None,
    }


def _kind(error: Exception) -> str:
    """Returns the key of a fault: faults alike raise the same error in the same line."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {last.name}, {last.filename.rpartition('/')[2]}:{last.lineno}"


def _admit(arrived: Arrived, admission_partitions: int, now_ms: int) -> list[Outgoing]:
    _small_enough(len(arrived.value or b""), None)
    envelope = decode(arrived.value, _headers(arrived))
    if not isinstance(envelope.event, TOPIC_EVENTS[JOBS]):
        allowed = ", ".join(cls.event_type for cls in TOPIC_EVENTS[JOBS])
        raise InvalidEvent(f"{envelope.type} does not belong on {arrived.topic}; send one of {allowed}", **_hints(envelope))
    sent = envelope  # with its id as it was sent: a refusal puts the project before it
    envelope = vouched(envelope, arrived.project)
    if isinstance(envelope.event, ChangeProject | QuarantineShard | _OF_DATASETS):
        # How many partitions must know of it is intake's to say.
        envelope = replace(envelope, event=envelope.event.model_copy(update={"admission_partitions": admission_partitions}))
    time_ms = envelope.time_ms if envelope.time_ms is not None else min(max(arrived.timestamp_ms, 0), LATEST_MS) or now_ms
    if isinstance(envelope.event, JobSubmitted) and (sensitive := refusal(envelope.event.spec)):
        raise InvalidEvent(f"spec.{sensitive}", **_hints(sent))
    value = encode(replace(envelope, order=None, time_ms=time_ms, origin=arrived.origin))
    _small_enough(len(value), sent)
    if isinstance(envelope.event, PoolCreated | SecretDeclared | SecretRemoved):  # what every part of the directory must know
        key = (envelope.event.pool if isinstance(envelope.event, PoolCreated) else envelope.event.project).encode()
        return [Outgoing(ADMISSION, key, value, HEADERS, partition) for partition in range(admission_partitions)]
    if isinstance(envelope.event, PoolRequest):
        # One partition of admission for all that is asked of a pool, so that it is decided in the order in which it was asked.
        return [Outgoing(ADMISSION, envelope.event.pool.encode(), value, HEADERS)]
    return [Outgoing(ADMISSION, str(envelope.event.subject()).encode(), value, HEADERS)]


def _small_enough(size: int, envelope: Envelope | None) -> None:
    if size > MAX_INPUT_BYTES:
        hints = _hints(envelope) if envelope else {}
        raise InvalidEvent(
            f"the event has {size} bytes, at most {MAX_INPUT_BYTES} are allowed; put large things into the object store and name them",
            **hints,
        )


def _reject(arrived: Arrived, invalid: InvalidEvent, now_ms: int) -> tuple[Outgoing, ...]:
    reason = str(invalid)
    job_id, event_id = invalid.job_id or "", invalid.event_id or ""
    letter = DeadLetter(arrived.topic, arrived.partition, arrived.offset, reason, job_id[:512], event_id[:512])
    out = [set_aside(letter, _without_env(arrived.value or b""))]
    if job_id or _answered(arrived):
        out.extend(_rejections(arrived, job_id, event_id, reason, now_ms))
    return tuple(out)


def _without_env(value: bytes) -> bytes:
    """A record as it came, as far as it is kept, but for the values of `env`: those may be why it is refused."""
    kept = value[:MAX_KEPT_BYTES]
    return masked_head(kept.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape") if b'"env"' in kept else value


def _answered(arrived: Arrived) -> bool:
    """Whether it is a request about a pool or project, whose client waits for an answer under the event's id."""
    try:
        kind = split(arrived.value, _headers(arrived))[0].get("type")
    except InvalidEvent:
        return False
    return isinstance(kind, str) and kind in _ANSWERED


def _rejections(arrived: Arrived, job_id: str, event_id: str, reason: str, now_ms: int) -> list[Outgoing]:
    """Keyed by the event's id, so that it never overwrites the status of a running job; on the project's topic too, where one sent it."""
    project = arrived.project
    candidate = outcome_id(project, event_id)
    submission = candidate if event_id and EventId.pattern.fullmatch(candidate) else outcome_id(project, arrived.name)
    status = JobStatus(
        job_id=JobId(job_id) if JobId.pattern.fullmatch(job_id) else None,
        status_seq=0,
        state=JobState.REJECTED,
        reason=reason,
        submission_id=EventId(submission),
        project=project or "",
        updated_at_ms=now_ms,
    )
    envelope = envelope_of(status, id=f"rejected:{arrived.name}", source=SOURCE, now_ms=now_ms)
    topics = (STATUS,) if project is None else (STATUS, status_topic(project))
    return [Outgoing(topic, submission.encode(), encode(envelope), HEADERS) for topic in topics]


def _headers(arrived: Arrived) -> Headers:
    return arrived.headers


def _hints(envelope: Envelope) -> dict[str, str | None]:
    job_id = getattr(envelope.event, "job_id", None)
    return {"job_id": str(job_id) if job_id is not None else None, "event_id": str(envelope.id)}
