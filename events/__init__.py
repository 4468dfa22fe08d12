"""Every event of Trainhouse: models, envelope, codec, topics and Kafka clients.

Holds: an event is one frozen pydantic model with a stable type string; nothing here imports another Trainhouse package.
Never: decides anything, or does work at import.
"""

from trainhouse.events.attempt import (
    AttemptStarted,
    AttemptStopped,
    LaunchFailed,
    ProgressReported,
    RankExited,
)
from trainhouse.events.base import Event, Model, event_class, event_classes
from trainhouse.events.checkpoint import (
    CheckpointCompleted,
    CheckpointFailed,
    CheckpointPruned,
    CheckpointRestored,
    CheckpointStarted,
)
from trainhouse.events.codec import decode, encode
from trainhouse.events.dead_letter import DeadLetter
from trainhouse.events.envelope import Envelope, Order, envelope_of
from trainhouse.events.errors import EventError, InvalidEvent, UnknownEventType
from trainhouse.events.gang import (
    CheckpointRequested,
    GangAllocated,
    GangReleased,
    NodeDesiredState,
    NodePlacement,
)
from trainhouse.events.ids import AttemptNumber, DeviceId, Epoch, EventId, JobId, NodeId, PoolName
from trainhouse.events.job import (
    CancelJob,
    ChangeJob,
    JobAdmitted,
    JobRejected,
    JobState,
    JobStatus,
    JobSubmitted,
    LastCheckpoint,
    PoolCreated,
)
from trainhouse.events.node import (
    AttemptHeartbeat,
    AttemptRef,
    Device,
    DeviceHealth,
    NodeHeartbeat,
    NodeLost,
    NodeRegistered,
    NodeSuspected,
    RankHeartbeat,
    RankState,
)
from trainhouse.events.operations import DumpStacks, ExecuteCommand, OperationReplied
from trainhouse.events.policy import SchedulingPolicy
from trainhouse.events.pool import (
    ChangeRefused,
    CordonNode,
    DrainNode,
    NodeRestricted,
    PolicyApplied,
    PolicyChanged,
    QuarantineNode,
    Restriction,
    UncordonNode,
)
from trainhouse.events.spec import (
    CheckpointPolicy,
    CodeArchive,
    DataReference,
    Gang,
    JobSpec,
    Limits,
    Placement,
    Resources,
    Role,
    Runtime,
)
from trainhouse.events.telemetry import LogLines, StepMetrics

__all__ = [
    "AttemptHeartbeat",
    "AttemptNumber",
    "AttemptRef",
    "AttemptStarted",
    "AttemptStopped",
    "CancelJob",
    "ChangeJob",
    "ChangeRefused",
    "CheckpointCompleted",
    "CheckpointFailed",
    "CheckpointPolicy",
    "CheckpointPruned",
    "CheckpointRequested",
    "CheckpointRestored",
    "CheckpointStarted",
    "CodeArchive",
    "CordonNode",
    "DataReference",
    "DeadLetter",
    "Device",
    "DeviceHealth",
    "DeviceId",
    "DrainNode",
    "DumpStacks",
    "Envelope",
    "Epoch",
    "Event",
    "EventError",
    "EventId",
    "ExecuteCommand",
    "Gang",
    "GangAllocated",
    "GangReleased",
    "InvalidEvent",
    "JobAdmitted",
    "JobId",
    "JobRejected",
    "JobSpec",
    "JobState",
    "JobStatus",
    "JobSubmitted",
    "LastCheckpoint",
    "LaunchFailed",
    "Limits",
    "LogLines",
    "Model",
    "NodeDesiredState",
    "NodeHeartbeat",
    "NodeId",
    "NodeLost",
    "NodePlacement",
    "NodeRegistered",
    "NodeRestricted",
    "NodeSuspected",
    "OperationReplied",
    "Order",
    "Placement",
    "PolicyApplied",
    "PolicyChanged",
    "PoolCreated",
    "PoolName",
    "ProgressReported",
    "QuarantineNode",
    "RankExited",
    "RankHeartbeat",
    "RankState",
    "Resources",
    "Restriction",
    "Role",
    "Runtime",
    "SchedulingPolicy",
    "StepMetrics",
    "UncordonNode",
    "UnknownEventType",
    "decode",
    "encode",
    "envelope_of",
    "event_class",
    "event_classes",
]
