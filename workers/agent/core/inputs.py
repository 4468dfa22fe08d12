"""Inputs of an agent.

Holds: plain frozen data; times are milliseconds since 1970.
"""

from dataclasses import dataclass

from trainhouse.events import DatasetVersion, Event, GangAllocated, Order
from trainhouse.workers.agent.core.agent_state import AttemptKey


@dataclass(frozen=True, slots=True)
class Command:
    """An event of the scheduler, or a verdict on this node. Without `order` it is never dropped as old."""

    event: Event
    order: Order | None = None


@dataclass(frozen=True, slots=True)
class LaunchDone:
    """Every rank has a process."""

    key: AttemptKey
    warm: bool


@dataclass(frozen=True, slots=True)
class LaunchRefused:
    """No rank has a process, and none will."""

    key: AttemptKey
    reason: str
    retryable: bool


@dataclass(frozen=True, slots=True)
class RankGone:
    """A rank's process has ended; both codes None when how could not be learnt."""

    key: AttemptKey
    rank: int
    exit_code: int | None
    signal: int | None
    reason: str
    at_ms: int
    by_agent: bool = False


@dataclass(frozen=True, slots=True)
class StacksTaken:
    """The stacks of a hung attempt's ranks are kept, as far as they could be read."""

    key: AttemptKey


@dataclass(frozen=True, slots=True)
class Swept:
    """No process of the attempt is left on this node."""

    key: AttemptKey


@dataclass(frozen=True, slots=True)
class Drained:
    """Everything that the attempt's ranks wrote is shipped."""

    key: AttemptKey


@dataclass(frozen=True, slots=True)
class Sealed:
    """This node's part in the outputs of an attempt is done. `makes`: it made them, as `versions`, or not, for the reason in `failure`."""

    key: AttemptKey
    makes: bool = False
    versions: tuple[DatasetVersion, ...] = ()
    failure: str = ""


@dataclass(frozen=True, slots=True)
class StopAcked:
    """The brokers hold the AttemptStopped of this attempt."""

    key: AttemptKey


@dataclass(frozen=True, slots=True)
class AttemptAdopted:
    """Found in its folder after a restart of the agent. Not `launched`: the launch was cut off, and nothing of it is left."""

    allocation: GangAllocated
    launched: bool
    warm: bool = False


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class SessionSeen:
    """The ranks of an attempt have a session that hears what is asked of it. Told only when it matters."""

    key: AttemptKey


@dataclass(frozen=True, slots=True)
class Noticed:
    """The node goes away at `deadline_ms`, says `source`."""

    source: str
    reason: str
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class NoticeWithdrawn:
    """`source` says no longer that the node goes away."""

    source: str


@dataclass(frozen=True, slots=True)
class ShutdownAsked:
    """The agent is to end within `grace_ms`, and its ranks with it."""

    grace_ms: int


OfAttempt = LaunchDone | LaunchRefused | RankGone | StacksTaken | Swept | Drained | Sealed | StopAcked | SessionSeen
AgentInput = Command | OfAttempt | AttemptAdopted | Tick | Noticed | NoticeWithdrawn | ShutdownAsked
