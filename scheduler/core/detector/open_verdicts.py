"""Saying a verdict once, and that it is over once.

Holds: a verdict has a name that the same facts give again, so that a repeat (a detector that restarted) counts once. What
stands is known by the thing that it speaks of; a verdict about that thing is not said again before it is lifted.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from trainhouse.events import Event, EventId, NodeId, NodeLost, NodeSuspected, PoolName
from trainhouse.events.model.verdict import DataStalled, DeviceDegraded, DeviceFault, GangHung, StoreSlow, StragglerDetected, VerdictLifted

MAX_NAME_CHARS: Final = 512
_NOT_IN_IDS: Final = re.compile(r"[^\x20-\x7e]")
VERDICT_TYPES: Final = (NodeSuspected, NodeLost, GangHung, StragglerDetected, DataStalled, StoreSlow, DeviceDegraded)
"""What the detector says."""


def name_of(facts: str) -> str:
    """The id of a verdict's event. Agents' values (a boot, an incarnation) may be text that no id takes: then a hash takes its place."""
    if EventId.pattern.fullmatch(facts[:MAX_NAME_CHARS]):
        return facts[:MAX_NAME_CHARS]
    digest = hashlib.sha256(facts.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{_NOT_IN_IDS.sub('?', facts)[: MAX_NAME_CHARS - 40]}:{digest}"


@dataclass(frozen=True, slots=True)
class IssuedVerdict:
    """A verdict, the id of its event, and the node whose heartbeats (or silence) caused it."""

    name: str
    event: Event
    node_id: str


@dataclass(frozen=True, slots=True)
class Stands:
    """A verdict that was published and is not over: what its lifting has to name. `sequence`: of the last heartbeat before a silence."""

    name: str
    of: str
    since_ms: int
    job_id: str | None = None
    epoch: int | None = None
    rank: int | None = None
    device_id: str | None = None
    fault: str | None = None
    incarnation: str | None = None
    sequence: int | None = None
    boot_id: str | None = None

    def lifted(self, node_id: str, pool: str, at_ms: int, evidence: str) -> IssuedVerdict:
        """The event that it is over."""
        event = VerdictLifted(
            of=self.of,
            pool=PoolName(pool),
            node_id=NodeId(node_id),
            job_id=cast(Any, self.job_id),
            epoch=cast(Any, self.epoch),
            rank=self.rank,
            device_id=cast(Any, self.device_id),
            fault=None if self.fault is None else DeviceFault(self.fault),
            since_ms=self.since_ms,
            evidence=evidence,
            at_ms=at_ms,
        )
        return IssuedVerdict(name_of(f"{VerdictLifted.event_type}:{self.name}"), event, node_id)


def stands(verdict: IssuedVerdict) -> Stands:
    """Returns the part of a verdict that the state keeps."""
    fields: Mapping[str, Any] = verdict.event.__dict__
    return Stands(
        verdict.name,
        verdict.event.event_type,
        fields.get("since_ms", fields["at_ms"]),
        fields.get("job_id"),
        fields.get("epoch"),
        fields.get("rank"),
        fields.get("device_id"),
        fields.get("fault"),
        fields.get("incarnation"),
        fields.get("sequence"),
        fields.get("boot_id"),
    )


def thing_of(event: Event) -> str:
    """Returns the subject of a verdict, or of its lifting; equal for verdicts that exclude each other. Stalls and hangs are per attempt."""
    fields: Mapping[str, Any] = event.__dict__
    of = fields.get("of", event.event_type)
    rank = fields.get("rank") if of == StragglerDetected.event_type else None
    job_id = fields.get("job_id")
    device_id = fields.get("device_id") if job_id is None else None
    return thing(of, job_id, fields.get("epoch"), rank, device_id, fields.get("fault"))


def thing(of: str, *parts: object) -> str:
    """The same from its parts: job, epoch, rank, device, fault."""
    return ":".join((of, *("" if p is None else str(p) for p in parts))).rstrip(":")
