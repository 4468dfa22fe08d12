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

    obstacle: Obstacle = Field(description="kind of what refuses it")
    by: CutText = Field("", description="name of what refuses it, such as a team or a pool")
    count: Count = 0
    asked: Change | None = Field(None, description="how much the job asks for")
    available: Change | None = Field(None, description="how much there is")
    examples: tuple[CutText, ...] = Field((), max_length=16, description="some of the nodes or jobs that it is about")
    text: CutText = Field(description="sentence for a person")


class ScoreTerms(Model):
    """score = (100 - priority) + wait bonus - over-share penalty."""

    priority: ComputedRatio = Field(description="points of the priority")
    wait_bonus: ComputedRatio = Field(description="points of the wait")
    over_share_penalty: ComputedRatio = Field(description="points lost for its team's share")
    total: ComputedRatio = Field(description="their sum")


class JobExplained(Event, type="trainhouse.job.explained.v1"):
    """Explanation of one job's waiting, as of `at_ms`. `place`: its place in the pool's order (1 is next) among `waiting` jobs.

    `reserved_start_ms`: the start time that is held for it. `eta_ms`: when it is expected to start, None where nothing is known;
    `eta_from` names the basis of the expectation.
    """

    job_id: JobId
    pool: PoolName
    team: ShortText = Field(description="owner of the job's quota")
    at_ms: TimestampMs
    waiting_since_ms: TimestampMs = Field(description="begin of the wait, in milliseconds since 1970")
    place: SmallCount = Field(ge=1, description="place in the queue of its pool, from 1")
    waiting: SmallCount = Field(ge=1, description="jobs that wait there")
    needs: CutText = Field(description="what the job needs, for a person")
    obstacle: Obstacle = Field(description="what the job waits for")
    text: CutText = Field(description="the same as a sentence")
    refusals: tuple[Refusal, ...] = Field((), max_length=MOST_ITEMS, description="what refuses it, and by how much")
    unblock: tuple[CutText, ...] = Field((), max_length=MOST_ITEMS, description="changes that would let it start")
    score: ScoreTerms | None = Field(None, description="terms of its score, under the order `score`")
    reserved_start_ms: DueMs | None = Field(None, description="promised start, in milliseconds since 1970")
    eta_ms: DueMs | None = Field(None, description="expected start, in milliseconds since 1970")
    eta_from: CutText = Field("", description="what that expectation rests on")
