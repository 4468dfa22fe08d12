"""One heartbeat as the rules look at it, and what they say.

Holds: what a rule finds goes through here, so that it is published once and lifted once.
"""

from dataclasses import dataclass, field
from typing import TypedDict

from trainhouse.events import AttemptHeartbeat, AttemptNumber, Epoch, Event, JobId, PoolName
from trainhouse.events.model.failure_policy import Detection
from trainhouse.scheduler.core.detector.open_verdicts import IssuedVerdict, name_of, stands, thing_of
from trainhouse.scheduler.core.detector.state import NodeWatch


class OfGang(TypedDict):
    """Fields that every verdict about a gang has."""

    pool: PoolName
    job_id: JobId
    attempt: AttemptNumber
    epoch: Epoch
    at_ms: int


@dataclass(slots=True)
class Look:
    """`at_ms` is the heartbeat's own time, `now_ms` the detector's. `seen_ms`: time since the heartbeat before; None if there was a gap.

    `behind`: the agent has not read what its ranks are at now.
    """

    node: NodeWatch
    limits: Detection
    at_ms: int
    now_ms: int
    seen_ms: int | None = None
    behind: bool = False
    issued: list[IssuedVerdict] = field(default_factory=list)

    def of_gang(self, beat: AttemptHeartbeat) -> OfGang:
        """The fields of a verdict about an attempt."""
        return {"pool": self.node.pool, "job_id": beat.job_id, "attempt": beat.attempt, "epoch": beat.epoch, "at_ms": self.now_ms}

    def issue(self, event: Event, *name: object) -> None:
        """A verdict, unless it stands. `name`: what the same facts give again."""
        about = thing_of(event)
        if about in self.node.stands:
            return
        found = IssuedVerdict(name_of(":".join((event.event_type, *(str(n) for n in name)))), event, self.node.node_id)
        self.node.stands[about] = stands(found)
        self.issued.append(found)

    def lifts(self, about: str, evidence: str) -> None:
        """It is over, if it stood."""
        stood = self.node.stands.pop(about, None)
        if stood is not None:
            self.issued.append(stood.lifted(self.node.node_id, self.node.pool, self.now_ms, evidence))
