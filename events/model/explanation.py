"""Explanation of a waiting job: a typed answer with its numbers, derived from the scheduler's state and published when it changes.

Holds: the answer is whole (needs, refusals and by how much, what would unblock it, when); its texts repeat it in words.
Never: a fact of the journal: any reader who folds the journal to the same record gives the same answer.
"""

from enum import StrEnum

from pydantic import Field

from trainhouse.events.model.base import Event, Model
from trainhouse.events.model.bounds import MOST_ITEMS, Change, ComputedRatio, Count, CutText, DueMs, ShortText, SmallCount, TimestampMs
from trainhouse.events.model.ids import JobId, PoolName


class Obstacle(StrEnum):
    """Reason that keeps a job waiting."""

    NO_NODES = "NO_NODES"
    NODES_CLOSED = "NODES_CLOSED"
    NO_ROOM = "NO_ROOM"
    CLAIMED = "CLAIMED"
    DEVICE_TYPE = "DEVICE_TYPE"
    DEVICE_MEMORY = "DEVICE_MEMORY"
    CPUS = "CPUS"
    MEMORY = "MEMORY"
    LABELS = "LABELS"
    ISOLATION = "ISOLATION"
    SPOT = "SPOT"
    TOPOLOGY = "TOPOLOGY"
    QUOTA = "QUOTA"
    ORDER = "ORDER"
    RESERVATION = "RESERVATION"
    COMING = "COMING"
    BACKOFF = "BACKOFF"
    FROZEN = "FROZEN"
    NEXT_CYCLE = "NEXT_CYCLE"


class Refusal(Model):
    """One refusal. `by`: the node group, team, project, topology level or job that refuses; `asked` and `available` in devices.

    `count`: how many nodes (domains of a level) refuse for this reason; `examples`: a few of them.
    """

    obstacle: Obstacle
    by: CutText = ""
    count: Count = 0
    asked: Change | None = None
    available: Change | None = None
    examples: tuple[CutText, ...] = Field((), max_length=16)
    text: CutText


class ScoreTerms(Model):
    """score = (100 - priority) + wait bonus - over-share penalty."""

    priority: ComputedRatio
    wait_bonus: ComputedRatio
    over_share_penalty: ComputedRatio
    total: ComputedRatio


class JobExplained(Event, type="trainhouse.job.explained.v1"):
    """Explanation of one job's waiting, as of `at_ms`. `place`: its place in the pool's order (1 is next) among `waiting` jobs.

    `reserved_start_ms`: the start time that is held for it. `eta_ms`: when it is expected to start, None where nothing is known;
    `eta_from` names the basis of the expectation.
    """

    job_id: JobId
    pool: PoolName
    team: ShortText
    at_ms: TimestampMs
    waiting_since_ms: TimestampMs
    place: SmallCount = Field(ge=1)
    waiting: SmallCount = Field(ge=1)
    needs: CutText
    obstacle: Obstacle
    text: CutText
    refusals: tuple[Refusal, ...] = Field((), max_length=MOST_ITEMS)
    unblock: tuple[CutText, ...] = Field((), max_length=MOST_ITEMS)
    score: ScoreTerms | None = None
    reserved_start_ms: DueMs | None = None
    eta_ms: DueMs | None = None
    eta_from: CutText = ""
