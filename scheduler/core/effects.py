"""Effects of a record of the scheduler: orders to agents, statuses to users, pools to agents, alerts to people, attributions of
failures, and outcomes of requested changes.

Holds: an effect's id follows from its content, so that a repeat has the same one; orders go to the journal's own partition number.
"""

from collections.abc import Iterable, Iterator, Sequence

import orjson

from trainhouse.events import (
    ChangeRefused,
    CheckpointRequested,
    Event,
    FailureBlamed,
    GangAllocated,
    GangReleased,
    JobRejected,
    JobReviewed,
    JobStatus,
    NodeDesiredState,
    NodeKeyed,
    NodeNoticed,
    NodeOrders,
    NodeProbeAsked,
    NodeProbed,
    NodeRestricted,
    PolicyApplied,
    PoolCreated,
    PublishDataset,
)
from trainhouse.events.model.bad_shard import BadShardFound, BadShardNoted, QuarantineShard, ShardEvidence
from trainhouse.events.model.decisions import NodeForgotten, NodeJoined
from trainhouse.events.model.handover import FenceSent, InputRedirected, PoolFence, PoolPart, PoolTaken, RedirectedInput
from trainhouse.events.model.ids import TRAINHOUSE
from trainhouse.events.model.job_outputs import OutputsRequested
from trainhouse.events.model.pool import StartReserved, StartUnreserved
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.journal import PlacementFrozen
from trainhouse.scheduler.core.intake.directory_effects import refusal
from trainhouse.scheduler.core.protocol.machine import OWN_PARTITION, Effect, Input


def effects_of(seq: int, now_ms: int, inputs: Sequence[Input], decisions: Iterable[Event]) -> Iterator[Effect]:
    """The effects of a record's decisions, in their order."""
    for place, decision in enumerate(decisions):
        match decision:
            case JobStatus():
                yield status_effect(decision)
            case GangAllocated():
                yield _order(decision, decision.pool, f"{decision.job_id}:allocated:{decision.epoch}")
            case GangReleased():
                yield _order(decision, decision.pool, f"{decision.job_id}:released:{decision.epoch}:{seq}")
            case CheckpointRequested():
                yield _order(decision, decision.pool, f"{decision.job_id}:save:{decision.epoch}:{seq}")
            case NodeDesiredState():
                yield _order(decision, decision.pool, f"{decision.node_id}:desired:{decision.incarnation}:{seq}")
            case NodeOrders():
                yield _order(decision, decision.pool, f"{decision.node_id}:orders:{decision.incarnation}:{seq}")
            case NodeProbeAsked():
                yield _order(decision, decision.pool, f"{decision.node_id}:probe:{decision.probe}:{seq}")
            case PoolCreated():
                yield Effect(topics.POOLS, decision.pool, decision, f"pool:{decision.pool}:{decision.partition}")
            case PolicyApplied():
                yield Effect(topics.POLICIES, decision.pool, decision, f"{decision.pool}:policy:{decision.version}")
            case ChangeRefused():
                yield Effect(topics.POLICIES, decision.event_id, decision, f"{decision.event_id[:480]}:refused")
            case NodeJoined(public_key=key) if key:
                keyed = NodeKeyed(node_id=decision.node_id, pool=decision.pool, public_key=key, at_ms=now_ms)
                yield _key_of(keyed, seq, place)
            case NodeKeyed():
                yield _key_of(decision, seq, place)
            case NodeForgotten():
                forgotten = f"{decision.node_id}:forgotten:{seq}.{place}"
                yield Effect(topics.VERDICTS, decision.node_id, decision, forgotten)
                if decision.public_key:
                    yield Effect(topics.NODE_KEYS, f"{decision.pool}/{decision.node_id}", decision, forgotten)
            case NodeRestricted():
                yield Effect(topics.VERDICTS, decision.node_id, decision, f"{decision.node_id}:restricted:{seq}.{place}")
            case NodeNoticed() | NodeProbed():
                yield Effect(topics.VERDICTS, decision.node_id, decision, f"{decision.event_type}:{decision.node_id}:{seq}.{place}")
            case FailureBlamed():
                yield Effect(topics.VERDICTS, decision.job_id, decision, f"{decision.job_id}:blamed:{decision.epoch}")
            case BadShardNoted(report=report, owner=None):
                yield _quarantine(report)
            case OutputsRequested():
                yield from _outputs(decision)
            case JobReviewed():
                yield Effect(topics.VERDICTS, decision.job_id, decision, f"{decision.event_id[:480]}:reviewed")
            case JobRejected():
                yield Effect(topics.STATUS, decision.submission_id, refusal(decision), f"{decision.submission_id[:480]}:rejected")
            case StartReserved() | StartUnreserved():
                yield Effect(topics.RESERVATIONS, decision.job_id, decision, f"{decision.job_id}:reservation:{seq}.{place}")
            case PlacementFrozen():
                yield Effect(topics.ALERTS, "placement-frozen", decision, f"placement-frozen:{seq}")
            case PoolPart() | FenceSent() | InputRedirected():
                yield _to_scheduler(decision, inputs, seq, place)
            case PoolTaken(pool=pool, partition=partition):
                yield Effect(topics.POOLS, pool, PoolCreated(pool=pool, partition=partition), f"pool:{pool}:{partition}:{seq}")


def status_effect(status: JobStatus) -> Effect:
    """A status as it is published: under its own number, without those that the journal keeps behind it."""
    subject, number = status.subject(), status.public_seq
    public = status if status.live_room is None else status.model_copy(update={"status_seq": number, "live_room": None})
    return Effect(topics.STATUS, subject, public, f"{subject}:status:{number}")


def _quarantine(report: BadShardFound) -> Effect:
    """The request to intake: one of an attempt and a shard, however many ranks read it."""
    asked = QuarantineShard(
        dataset=report.dataset,
        sha256=report.sha256,
        shard=report.shard,
        split=report.split,
        evidence=ShardEvidence(
            fault=report.fault,
            sample=report.sample,
            expected=report.expected,
            seen=report.seen,
            job_id=report.job_id,
            rank=report.rank,
            node_id=report.node_id,
        ),
        user=TRAINHOUSE,
    )
    return Effect(topics.JOBS, asked.subject(), asked, f"{report.job_id}:bad-shard:{report.epoch}:{report.shard}")


def _outputs(decision: OutputsRequested) -> Iterator[Effect]:
    """The requests to intake, one for each output."""
    again = f":{decision.number}" if decision.number > 1 else ""  # intake handles an id once, also where its answer was lost
    for version in decision.versions:
        asked = PublishDataset(version=version, user=decision.user, job_id=decision.job_id, pool=decision.pool)
        yield Effect(topics.JOBS, asked.subject(), asked, f"{decision.job_id}:output:{decision.epoch}:{version.dataset}{again}")


def _to_scheduler(decision: PoolPart | FenceSent | InputRedirected, inputs: Sequence[Input], seq: int, place: int) -> Effect:
    """Returns the effect for the scheduler of another partition. A redirected input keeps its id, so that its sender finds the outcome."""
    to = decision.to_partition
    match decision:
        case PoolPart():
            return Effect(topics.CONTROL, str(to), decision, f"{decision.pool}:part:{decision.number}:{seq}.{place}", to)
        case FenceSent():
            fence = PoolFence(pool=decision.pool, move=decision.move)
            return Effect(topics.CONTROL, str(to), fence, f"{decision.pool}:fence:{seq}.{place}", to)
    envelope = next(i.envelope for i in inputs if i.offset == decision.offset)
    came = envelope.event
    whole = came.event if isinstance(came, RedirectedInput) else orjson.loads(encode(envelope))
    return Effect(topics.CONTROL, str(to), RedirectedInput(pool=decision.pool, to_partition=to, event=whole), envelope.id, to)


def _key_of(keyed: NodeKeyed, seq: int, place: int) -> Effect:
    return Effect(topics.NODE_KEYS, f"{keyed.pool}/{keyed.node_id}", keyed, f"{keyed.node_id}:keyed:{seq}.{place}")


def _order(event: Event, pool: str, event_id: str) -> Effect:
    return Effect(topics.ALLOCATIONS, pool, event, event_id, OWN_PARTITION)
