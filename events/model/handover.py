"""Moves of a pool from one partition of control to another: the request, the hand-over, and what is passed on after it.

Holds: the partition that a pool leaves decides the hand-over in one record, with the pool's whole state; what it still receives about the
pool goes on to the other partition, after that state and in the order in which it came.
Never: shown in SQL with its content: a pool's state and redirected inputs hold whole job specs.
"""

from typing import Any, ClassVar, Final

from pydantic import Field

from trainhouse.events.model.absence import is_absent
from trainhouse.events.model.asked import RequestedBy
from trainhouse.events.model.base import Event
from trainhouse.events.model.bounds import Count, CutText, ShortText, SmallCount, TimestampMs
from trainhouse.events.model.ids import EventId, NodeId, PoolName

MAX_PART_BYTES: Final = 160 * 1024
"""Of packed state in one part: with base64 and the envelope it stays below topics.MAX_INPUT_BYTES."""
MAX_PARTS: Final = 32
"""Of one hand-over, which is one journal record."""
_MAX_PART_CHARS: Final = 4 * MAX_PART_BYTES // 3 + 4


class MovePool(Event, type="trainhouse.pool.move.v1", public_input=True):
    """A request to move a pool, with its jobs and nodes, to another partition of control. Jobs go on meanwhile."""

    pool: PoolName
    to_partition: int = Field(ge=0, lt=1024)
    reason: str = Field("", max_length=1024)
    user: str = Field("unknown", max_length=128)
    requested_by: RequestedBy | None = None


class PoolHandedOver(Event, type="trainhouse.decision.pool-handed-over.v1"):
    """A pool left this partition, with so many jobs and nodes. `move` is the id of the request; `sha256` that of the state, unpacked."""

    pool: PoolName
    move: EventId
    to_partition: SmallCount
    parts: int = Field(ge=1, le=MAX_PARTS, description="parts of its state")
    sha256: ShortText = Field(description="SHA-256 of the unpacked state, in hexadecimal")
    jobs: Count = Field(description="jobs that went with it")
    nodes: Count = Field(description="nodes that went with it")
    reason: str = Field("", max_length=1024)
    user: str = Field("unknown", max_length=128)
    at_ms: TimestampMs


class PoolPart(Event, type="trainhouse.pool.part.v1"):
    """Part `number` (from 0) of `of` of a pool's state: base64 of a piece of the zlib stream of a snapshot of the pool alone.

    `at_ms`: journal time of the hand-over, behind which that of the receiving partition must not be.
    """

    # Whole job specs, in a form in which the values of their variables cannot be masked.
    unshown: ClassVar[Any] = {"data"}

    pool: PoolName
    move: EventId
    from_partition: SmallCount
    to_partition: SmallCount
    number: SmallCount = Field(description="number of the part, from 0")
    of: int = Field(ge=1, le=MAX_PARTS, description="how many there are")
    sha256: ShortText = Field(description="SHA-256 of the whole unpacked state, in hexadecimal")
    at_ms: TimestampMs = Field(description="journal time of the hand-over, in milliseconds since 1970")
    data: str = Field(max_length=_MAX_PART_CHARS, description="base64 of a piece of the zlib stream")
    reason: str = Field("", max_length=1024)
    user: str = Field("unknown", max_length=128)


class PoolPartRefused(Event, type="trainhouse.pool.part-refused.v1"):
    """A part of a pool's state could not be taken, for people: where no whole state came before it, the pool is on no partition now."""

    pool: PoolName
    move: EventId
    from_partition: SmallCount
    to_partition: SmallCount
    number: SmallCount = Field(description="number of the part, from 0")
    of: SmallCount = Field(description="how many there are")
    offset: Count = Field(description="offset of its record in the partition of trainhouse.control that refused it")
    reason: CutText = Field(description="why it was refused")
    at_ms: TimestampMs


class PoolPartReceived(Event, type="trainhouse.decision.pool-part-received.v1"):
    """A part of a pool's state arrived, and is kept until the last one has."""

    unshown: ClassVar[Any] = {"part": {"data"}}

    part: PoolPart = Field(description="the part")


class PoolTaken(Event, type="trainhouse.decision.pool-taken.v1"):
    """All parts arrived: the pool is on this partition from now on, with so many jobs and nodes."""

    pool: PoolName
    move: EventId
    from_partition: SmallCount
    partition: SmallCount = Field(description="partition that has the pool from now on")
    jobs: Count = Field(description="jobs that came with it")
    nodes: Count = Field(description="nodes that came with it")
    reason: str = Field("", max_length=1024)
    user: str = Field("unknown", max_length=128)
    at_ms: TimestampMs


class InputRedirected(Event, type="trainhouse.decision.input-redirected.v1"):
    """The input at `offset` is about a pool that left this partition, and goes on to the one where the pool is.

    `forget_key`: the node of which it asks that its key be forgotten, which holds for what still arrives here, too.
    """

    offset: Count = Field(description="offset of the input on this partition")
    pool: PoolName
    to_partition: SmallCount
    forget_key: NodeId | None = Field(None, exclude_if=is_absent, description="node of which it asks that its key be forgotten")


class RedirectedInput(Event, type="trainhouse.pool.redirected-input.v1"):
    """An input about a pool, as it arrived at a partition that the pool had left: a whole CloudEvent, for `to_partition` alone."""

    pool: PoolName
    to_partition: SmallCount
    event: dict[ShortText, Any] = Field(max_length=64, description="whole CloudEvent")


class HandoverClosed(Event, type="trainhouse.decision.handover-closed.v1"):
    """So long after a hand-over, no input is left from before it: which jobs and keys went with the pool is forgotten here."""

    pool: PoolName
    move: EventId


class FenceSent(Event, type="trainhouse.decision.fence-sent.v1"):
    """A pool came back to a partition that it had left: a fence follows the inputs that still go the long way round."""

    pool: PoolName
    move: EventId
    to_partition: SmallCount


class PoolFence(Event, type="trainhouse.pool.fence.v1"):
    """Passed on as an input about the pool is, until it is back where it was sent: all redirected before it is back, too."""

    pool: PoolName
    move: EventId


class DetourEnded(Event, type="trainhouse.decision.detour-ended.v1"):
    """Nothing was redirected since the fence that came back was sent: inputs about the pool are handled where they arrive from now on."""

    pool: PoolName
    move: EventId
