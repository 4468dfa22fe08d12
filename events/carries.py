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
from trainhouse.events.gang import CheckpointRequested, GangAllocated, GangReleased, NodeDesiredState
from trainhouse.events.job import CancelJob, ChangeJob, JobAdmitted, JobRejected, JobStatus, JobSubmitted, PoolCreated
from trainhouse.events.node import NodeHeartbeat, NodeLost, NodeRegistered, NodeSuspected
from trainhouse.events.operations import DumpStacks, ExecuteCommand, OperationReplied
from trainhouse.events.telemetry import LogLines, StepMetrics

_REQUESTS: tuple[type[Event], ...] = (JobSubmitted, CancelJob, ChangeJob, PoolCreated)

TOPIC_EVENTS: dict[str, tuple[type[Event], ...]] = {
    topics.JOBS: _REQUESTS,
    topics.ADMISSION: _REQUESTS,
    topics.CONTROL: (
        JobAdmitted,
        CancelJob,
        ChangeJob,
        PoolCreated,
        NodeRegistered,
        NodeLost,
        AttemptStarted,
        LaunchFailed,
        RankExited,
        AttemptStopped,
        ProgressReported,
        CheckpointCompleted,
    ),
    topics.ALLOCATIONS: (GangAllocated, GangReleased, CheckpointRequested, NodeDesiredState),
    topics.POOLS: (PoolCreated,),
    topics.HEARTBEATS: (NodeHeartbeat,),
    topics.VERDICTS: (NodeSuspected, NodeLost),
    topics.METRICS: (StepMetrics,),
    topics.CHECKPOINTS: (CheckpointStarted, CheckpointCompleted, CheckpointFailed, CheckpointRestored, CheckpointPruned),
    topics.LOGS: (LogLines,),
    topics.STATUS: (JobStatus, JobRejected),
    topics.OPERATIONS: (DumpStacks, ExecuteCommand),
    topics.OPERATION_REPLIES: (OperationReplied,),
}
