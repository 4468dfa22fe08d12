"""The partition of control that an agent writes to, while its pool may move to another one.

Holds: pure. Nothing is reordered between two partitions: the agent stops sending, waits until the brokers hold all that it sent, and then
registers under a new incarnation at the partition that it leaves, which passes on what comes to it in order. It sends to the new partition
when that one has answered this registration, so all that was sent before has arrived. An agent that was killed in between begins at the
partition that it wrote to last, in the same way.
Never: sends or saves; it says what may be sent where.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto

# A start waits so long for an answer by way of a partition that its agent wrote to before: that one may be halted.
START_PATIENCE_MS = 60_000
# After so long a move is no matter of a busy scheduler: a person has to look.
MOVE_PATIENCE_MS = 60_000


class Stage(Enum):
    """Stage of a change of the partition."""

    SETTLED = auto()
    LEAVING = auto()
    """What was sent is not with the brokers yet."""
    ASKED = auto()
    """The registration of a new incarnation, which is the last record there, was given out; its answer is awaited."""


@dataclass(frozen=True, slots=True)
class Home:
    """`at`: the partition that is written to; `to`: the one that the pool is on. `until_ms`: when a start waits no longer."""

    at: int
    to: int
    stage: Stage = Stage.SETTLED
    until_ms: int | None = None

    @property
    def open(self) -> bool:
        """True if reports may be sent."""
        return self.stage is Stage.SETTLED


def located(saved: int | None, partition: int, now_ms: int) -> Home:
    """Partition of control at the agent's start. `saved`: the partition that the agent wrote to before, if any."""
    if saved is None or saved == partition:
        return Home(partition, partition)
    return Home(saved, partition, Stage.ASKED, now_ms + START_PATIENCE_MS)


def moved(home: Home, partition: int) -> Home:
    """The pool is on `partition` now, and its commands are being read there."""
    return home if partition == home.to else Home(home.at, partition, Stage.LEAVING)


def quiet(home: Home) -> Home:
    """The brokers hold all that was sent to control: the agent registers there as a new incarnation, so that no other answer counts."""
    return replace(home, stage=Stage.ASKED) if home.stage is Stage.LEAVING else home


def answered(home: Home, partition: int) -> Home:
    """The scheduler of `partition` has answered the registration of the newest incarnation."""
    return Home(partition, partition) if home.stage is Stage.ASKED and partition == home.to else home


def waiting_text(home: Home, waited_ms: int) -> str:
    """Line about a move that is not through; after MOVE_PATIENCE_MS with what to do.

    The agent never goes on by itself: how a rank ended may stand in the partition before, and a stop that overtakes it makes a job that
    succeeded one that was lost.
    """
    if home.stage is Stage.LEAVING:
        text = "reports wait until the brokers hold all that was sent to the partition before"
        way_out = "see that the brokers answer this node: `trainhouse ps`"
    else:
        text = "reports wait until the pool's partition answers by way of the one before"
        way_out = (
            f"`trainhouse ps` says whether partition {home.at} of the scheduler's journal is halted, `trainhouse journal repair` mends it; "
            "ranks go on, and what they report is kept"
        )
    return text if waited_ms < MOVE_PATIENCE_MS else f"{text}, for {waited_ms // 1000} s by now: {way_out}"


def passed(home: Home, now_ms: int) -> Home:
    """Time has passed: a start that waited long enough begins at its pool's partition."""
    waited = home.stage is Stage.ASKED and home.until_ms is not None and now_ms >= home.until_ms
    return Home(home.to, home.to) if waited else home
