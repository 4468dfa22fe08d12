"""Which event types travel on which topic.

Holds: a type that no topic carries is a mistake, and a test says so.
"""

from trainhouse.events import topics
from trainhouse.events.attempt import AttemptStarted, AttemptStopped, LaunchFailed, ProgressReported, RankExited
from trainhouse.events.base import Event
from trainhouse.events.checkpoint import (
    CheckpointCompleted,
    CheckpointFailed,
    CheckpointPruned,
    CheckpointRestored,
    CheckpointStarted,
)
from trainhouse.events.decisions import (
    CheckpointNoted,
    DevicesFreed,
    JobForgotten,
    JobMoved,
    JobProgressed,
    JobQueued,
    JobRequeued,
    JobRetuned,
    NodeGivenUp,
    NodeJoined,
    PartEnded,
    PartStarted,
    PlacementResumed,
    RankFinished,
    TokenSeen,
)
from trainhouse.events.explained import JobExplained
from trainhouse.events.gang import CheckpointRequested, GangAllocated, GangReleased, NodeDesiredState
from trainhouse.events.job import CancelJob, ChangeJob, JobAdmitted, JobRejected, JobStatus, JobSubmitted, PoolCreated
from trainhouse.events.journal import ClockTicked, InputRefused, PlacementFrozen
from trainhouse.events.node import NodeHeartbeat, NodeLost, NodeRegistered, NodeSuspected
from trainhouse.events.operations import DumpStacks, ExecuteCommand, OperationReplied
from trainhouse.events.pool import (
    ChangeRefused,
    ClaimDropped,
    CordonNode,
    CycleRan,
    DevicesClaimed,
    DrainNode,
    NodeRestricted,
    PolicyApplied,
    PolicyChanged,
    PoolJudged,
    QuarantineNode,
    StartReserved,
    StartUnreserved,
    UncordonNode,
)
from trainhouse.events.routing import EventSeen, JobDirected, RequestForwarded, RequestHeld, RequestUnheld
from trainhouse.events.telemetry import LogLines, StepMetrics

_POOL_REQUESTS: tuple[type[Event], ...] = (PolicyChanged, CordonNode, UncordonNode, DrainNode, QuarantineNode)
_REQUESTS: tuple[type[Event], ...] = (JobSubmitted, CancelJob, ChangeJob, PoolCreated, *_POOL_REQUESTS)

TOPIC_EVENTS: dict[str, tuple[type[Event], ...]] = {
    topics.JOBS: _REQUESTS,
    topics.ADMISSION: _REQUESTS,
    topics.CONTROL: (
        JobAdmitted,
        CancelJob,
        ChangeJob,
        PoolCreated,
        *_POOL_REQUESTS,
        NodeRegistered,
        NodeLost,
        AttemptStarted,
        LaunchFailed,
        RankExited,
        AttemptStopped,
        ProgressReported,
        CheckpointCompleted,
    ),
    # A journal's record holds its inputs and these, many in one record.
    topics.DIRECTORY: (
        ClockTicked,
        InputRefused,
        EventSeen,
        JobDirected,
        RequestForwarded,
        RequestHeld,
        RequestUnheld,
        PoolCreated,
        JobRejected,
    ),
    topics.DECISIONS: (
        ClockTicked,
        InputRefused,
        TokenSeen,
        PoolCreated,
        JobQueued,
        JobRetuned,
        JobMoved,
        JobRequeued,
        JobForgotten,
        PartStarted,
        RankFinished,
        PartEnded,
        DevicesFreed,
        JobProgressed,
        CheckpointNoted,
        NodeJoined,
        NodeGivenUp,
        NodeRestricted,
        PolicyApplied,
        ChangeRefused,
        StartReserved,
        StartUnreserved,
        DevicesClaimed,
        ClaimDropped,
        CycleRan,
        PoolJudged,
        PlacementFrozen,
        PlacementResumed,
        GangAllocated,
        GangReleased,
        CheckpointRequested,
        NodeDesiredState,
        JobStatus,
    ),
    topics.ALERTS: (PlacementFrozen,),
    topics.ALLOCATIONS: (GangAllocated, GangReleased, CheckpointRequested, NodeDesiredState),
    topics.POOLS: (PoolCreated,),
    topics.POLICIES: (PolicyApplied, ChangeRefused),
    topics.HEARTBEATS: (NodeHeartbeat,),
    topics.VERDICTS: (NodeSuspected, NodeLost, NodeRestricted),
    topics.METRICS: (StepMetrics,),
    topics.CHECKPOINTS: (CheckpointStarted, CheckpointCompleted, CheckpointFailed, CheckpointRestored, CheckpointPruned),
    topics.LOGS: (LogLines,),
    topics.STATUS: (JobStatus, JobRejected),
    topics.EXPLANATIONS: (JobExplained,),
    topics.RESERVATIONS: (StartReserved, StartUnreserved),
    topics.OPERATIONS: (DumpStacks, ExecuteCommand),
    topics.OPERATION_REPLIES: (OperationReplied,),
}
