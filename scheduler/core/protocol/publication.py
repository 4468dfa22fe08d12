"""Outgoing messages of a folded record: the machine's effects and the protocol's own, as bytes ready to send.

Holds: depends on the record alone, so every process derives the same bytes; each effect names its place (partition, seq, ordinal).
A status of a project's job is also for the project's own topic, the same bytes; the sender looks up whether there is one.
Never: sends.
"""

from dataclasses import dataclass, replace
from typing import TypeVar

import orjson

from trainhouse.events import DeadLetter, EventId, JobId, JobState, JobStatus, NodeId, Order, SignatureRefused, envelope_of
from trainhouse.events.model.dead_letter import MAX_KEPT_BYTES
from trainhouse.events.model.handover import PoolPart, PoolPartRefused
from trainhouse.events.wire.codec import HEADERS, encode
from trainhouse.events.wire.journal import InputRefused, JournaledInput, JournalRecord
from trainhouse.events.wire.project_topics import may_have_topics, status_topic
from trainhouse.events.wire.topics import DEAD_LETTERS, STATUS, VERDICTS
from trainhouse.scheduler.core.protocol.journal import machine_part
from trainhouse.scheduler.core.protocol.machine import OWN_PARTITION, Effect, Machine
from trainhouse.scheduler.core.protocol.refusal_limits import alike_of, key_of

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One record to send. `partition` None: by key, as Java's partitioner does. `alike`: of records with the same, a few are enough."""

    topic: str
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]
    partition: int | None = None
    alike: str = ""


def outgoing(machine: Machine[S], input_topic: str, partition: int, record: JournalRecord) -> list[Outgoing]:
    """The effects of a record that counted, in their order."""
    inputs, decisions = machine_part(record)
    effects = list(machine.effects(record.seq, record.now_ms, inputs, decisions)) if inputs or decisions else []
    letters: list[Outgoing] = []
    for refusal in record.decisions:
        if isinstance(refusal, InputRefused):
            source = next(i for i in record.inputs if i.offset == refusal.offset)
            effects.extend(_review(refusal, source, record.now_ms))
            effects.extend(_part_of_pool(refusal, source, record.now_ms))
            effects.extend(_forged(refusal, input_topic, partition, record.now_ms))
            letters.append(_dead_letter(refusal, source, input_topic, partition))
    found: list[Outgoing] = []
    for ordinal, effect in enumerate(effects):
        found += sent_of(effect, machine.name, Order(partition, record.seq, ordinal), record.now_ms)
    return found + letters


def sent_of(effect: Effect, machine_name: str, order: Order, now_ms: int) -> list[Outgoing]:
    """Returns the messages of one effect at its place in the journal."""
    event = effect.event
    envelope = envelope_of(event, id=effect.event_id, source=f"trainhouse/{machine_name}", now_ms=now_ms, order=order)
    out = Outgoing(
        effect.topic,
        effect.key.encode(),
        encode(envelope if effect.pool is None else replace(envelope, pool=effect.pool)),
        HEADERS,
        order.partition if effect.partition == OWN_PARTITION else effect.partition,
        alike_of(event.claimed, event.reason) if isinstance(event, SignatureRefused) else "",
    )
    if isinstance(event, JobStatus) and effect.topic == STATUS and may_have_topics(event.project):
        return [out, replace(out, topic=status_topic(event.project))]
    return [out]


def set_aside(letter: DeadLetter, value: bytes | None) -> Outgoing:
    """A record that does not count, with why."""
    return Outgoing(DEAD_LETTERS, letter.key, (value or b"")[:MAX_KEPT_BYTES], tuple(letter.headers()))


def _dead_letter(refusal: InputRefused, source: JournaledInput, topic: str, partition: int) -> Outgoing:
    job_id, _ = _about(refusal, source)
    letter = DeadLetter(topic, partition, refusal.offset, refusal.reason, job_id, refusal.event_id)
    return set_aside(letter, source.as_came())


def _forged(refusal: InputRefused, topic: str, partition: int, now_ms: int) -> list[Effect]:
    """A record in another's name is reported to people; of alike ones, the sender passes on a few."""
    if not refusal.forged:
        return []
    return [
        Effect(
            VERDICTS,
            key_of(refusal.forged),
            signature_refused(refusal.forged, refusal.reason, topic, partition, refusal.offset, now_ms),
            f"signature-refused:{topic}-{partition}-{refusal.offset}",
        )
    ]


def signature_refused(claimed: str, reason: str, topic: str, partition: int, offset: int, now_ms: int) -> SignatureRefused:
    """Returns the notice to people about a record in another's name."""
    kind, _, name = claimed.partition(" ")
    node_id = NodeId(name) if kind == "node" and NodeId.pattern.fullmatch(name) else None
    return SignatureRefused(node_id=node_id, claimed=claimed, reason=reason, topic=topic, partition=partition, offset=offset, at_ms=now_ms)


def _part_of_pool(refusal: InputRefused, source: JournaledInput, now_ms: int) -> list[Effect]:
    """A refused part of a pool's state is reported to people: the pool may be on no partition."""
    if refusal.refused_type != PoolPart.event_type or refusal.forged:
        return []
    try:
        data = orjson.loads(source.raw or b"")["data"]
        about = {name: data[name] for name in ("pool", "move", "from_partition", "to_partition", "number", "of")}
        event = PoolPartRefused.model_validate(about | {"offset": refusal.offset, "reason": refusal.reason, "at_ms": now_ms})
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return []  # the dead letter has it
    return [Effect(VERDICTS, event.pool, event, f"pool-part-refused:{event.pool}:{event.to_partition}-{refusal.offset}")]


def _about(refusal: InputRefused, source: JournaledInput) -> tuple[str, str]:
    """The job and the type of what was refused, empty where neither could be read. Older records hold it as an envelope."""
    return (source.job_id, source.type) if source.is_event else (refusal.job_id, refusal.refused_type)


def _review(refusal: InputRefused, source: JournaledInput, now_ms: int) -> list[Effect]:
    """Our own code failed on a readable input about a job: its user is notified, under the event's id so that no status is overwritten."""
    job_id, kind = _about(refusal, source)
    if not JobId.pattern.fullmatch(job_id) or not refusal.event_id:
        return []
    status = JobStatus(
        job_id=JobId(job_id),
        status_seq=0,
        state=JobState.NEEDS_REVIEW,
        reason=f"{kind} was set aside: {refusal.reason}; it is in {DEAD_LETTERS}",
        submission_id=EventId(refusal.event_id),
        updated_at_ms=now_ms,
    )
    return [Effect(STATUS, refusal.event_id, status, f"refused:{refusal.event_id}"[:512])]
