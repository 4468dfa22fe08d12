"""Which event types travel on which topic.

Holds: a type that no topic carries is a mistake, and a test says so.
"""

from trainhouse.events import topics
from trainhouse.events.alert import AlertFired, AlertResolved
from trainhouse.events.attempt import (
    AttemptStarted,
    AttemptStopped,
    LaunchFailed,
    LossDiverged,
    ProgressReported,
    RankExited,
    SessionOpened,
)
from trainhouse.events.audit import AccessEnded, AccessGranted, AccessRefused, AuditLost, RequestAccepted, TokenIssued, TokenRevoked
from trainhouse.events.base import Event
from trainhouse.events.checkpoint import (
    CheckpointCompleted,
    CheckpointFailed,
    CheckpointPruned,
    CheckpointRestored,
    CheckpointSkipped,
    CheckpointStarted,
)
from trainhouse.events.decisions import (
    CheckpointNoted,
    DevicesFreed,
    EvidenceFound,
    JobForgotten,
    JobMoved,
    JobProgressed,
    JobQueued,
    JobRequeued,
    JobRetuned,
    NodeForgotten,
    NodeGivenUp,
    NodeJoined,
    PartEnded,
    PartStarted,
    PlacementResumed,
    RankFinished,
    TokenSeen,
    TrustChanged,
)
from trainhouse.events.explained import JobExplained
from trainhouse.events.gang import CheckpointRequested, GangAllocated, GangReleased, NodeDesiredState, NodeOrders
from trainhouse.events.job import CancelJob, ChangeJob, JobAdmitted, JobRejected, JobStatus, JobSubmitted, PoolCreated
from trainhouse.events.journal import ClockTicked, InputRefused, PlacementFrozen
from trainhouse.events.node import (
    NodeHeartbeat,
    NodeKeyed,
    NodeLost,
    NodeNoticed,
    NodeProbeAsked,
    NodeProbed,
    NodeRegistered,
    NodeSuspected,
    SignatureRefused,
)
from trainhouse.events.node_audit import NodeAccess
from trainhouse.events.operations import DumpStacks, ExecuteCommand, OperationReplied
from trainhouse.events.pool import (
    ChangeRefused,
    ClaimDropped,
    CordonNode,
    CycleRan,
    DevicesClaimed,
    DrainNode,
    ForgetNodeKey,
    NodeRestricted,
    PolicyApplied,
    PolicyChanged,
    PoolJudged,
    QuarantineNode,
    StartReserved,
    StartUnreserved,
    UncordonNode,
)
from trainhouse.events.project import ChangeProject, ProjectApplied, ProjectLimited
from trainhouse.events.repair import JournalRepaired, PartitionHalted
from trainhouse.events.routing import EventSeen, JobDirected, LimitsForwarded, ProjectNoted, RequestForwarded, RequestHeld, RequestUnheld
from trainhouse.events.secret import SecretDeclared, SecretRemoved
from trainhouse.events.service import ServiceMeasured
from trainhouse.events.telemetry import LogLines, StepMetrics
from trainhouse.events.traced import JobTraced
from trainhouse.events.tracking import (
    ArtifactLogged,
    EnvironmentCaptured,
    ExperimentChanged,
    InputsLogged,
    ParametersLogged,
    TagsChanged,
    TrackedRunBegun,
    TrackedRunChanged,
)
from trainhouse.events.verdict import (
    DataStalled,
    DeviceDegraded,
    FailureBlamed,
    GangHung,
    StoreSlow,
    StragglerDetected,
    VerdictLifted,
)

_POOL_REQUESTS: tuple[type[Event], ...] = (PolicyChanged, CordonNode, UncordonNode, DrainNode, QuarantineNode, ForgetNodeKey)
_SECRETS: tuple[type[Event], ...] = (SecretDeclared, SecretRemoved)
_REQUESTS: tuple[type[Event], ...] = (JobSubmitted, CancelJob, ChangeJob, PoolCreated, ChangeProject, *_SECRETS, *_POOL_REQUESTS)

TOPIC_EVENTS: dict[str, tuple[type[Event], ...]] = {
    topics.JOBS: _REQUESTS,
    topics.ADMISSION: (*_REQUESTS, ProjectApplied),
    topics.CONTROL: (
        JobAdmitted,
        CancelJob,
        ChangeJob,
        PoolCreated,
        *_POOL_REQUESTS,
        ProjectLimited,
        NodeRegistered,
        NodeLost,
        AttemptStarted,
        LaunchFailed,
        RankExited,
        AttemptStopped,
        SessionOpened,
        ProgressReported,
        CheckpointCompleted,
        LossDiverged,
        NodeNoticed,
        NodeProbed,
        GangHung,
        DeviceDegraded,
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
        ProjectApplied,
        ProjectNoted,
        LimitsForwarded,
        *_SECRETS,
        JobRejected,
    ),
    topics.DECISIONS: (
        ClockTicked,
        InputRefused,
        TokenSeen,
        PoolCreated,
        ProjectLimited,
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
        EvidenceFound,
        NodeJoined,
        NodeKeyed,
        NodeGivenUp,
        NodeForgotten,
        NodeNoticed,
        NodeProbed,
        TrustChanged,
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
        NodeOrders,
        NodeProbeAsked,
        FailureBlamed,
        JobStatus,
    ),
    topics.ALERTS: (PlacementFrozen, AlertFired, AlertResolved),
    topics.ALLOCATIONS: (GangAllocated, GangReleased, CheckpointRequested, NodeDesiredState, NodeOrders, NodeProbeAsked),
    topics.POOLS: (PoolCreated,),
    topics.POLICIES: (PolicyApplied, ChangeRefused),
    topics.PROJECTS: (ProjectApplied,),
    topics.HEARTBEATS: (NodeHeartbeat,),
    topics.NODE_KEYS: (NodeKeyed, NodeForgotten),
    topics.JOURNAL_REPAIRS: (JournalRepaired,),
    topics.VERDICTS: (
        PartitionHalted,
        NodeSuspected,
        NodeLost,
        NodeForgotten,
        NodeRestricted,
        NodeNoticed,
        NodeProbed,
        GangHung,
        StragglerDetected,
        DataStalled,
        StoreSlow,
        DeviceDegraded,
        VerdictLifted,
        FailureBlamed,
        SignatureRefused,
    ),
    topics.METRICS: (StepMetrics,),
    topics.TRACKED_METRICS: (StepMetrics,),
    topics.TRACKING: (
        ExperimentChanged,
        TrackedRunBegun,
        TrackedRunChanged,
        ParametersLogged,
        TagsChanged,
        ArtifactLogged,
        InputsLogged,
    ),
    topics.ENVIRONMENTS: (EnvironmentCaptured,),
    topics.CHECKPOINTS: (CheckpointStarted, CheckpointCompleted, CheckpointFailed, CheckpointSkipped, CheckpointRestored, CheckpointPruned),
    topics.LOGS: (LogLines,),
    topics.STATUS: (JobStatus, JobRejected),
    topics.EXPLANATIONS: (JobExplained,),
    topics.RESERVATIONS: (StartReserved, StartUnreserved),
    topics.TRACES: (JobTraced,),
    topics.SERVICES: (ServiceMeasured,),
    topics.OPERATIONS: (DumpStacks, ExecuteCommand),
    topics.OPERATION_REPLIES: (OperationReplied,),
    topics.AUDIT: (AccessRefused, AccessGranted, AccessEnded, RequestAccepted, AuditLost),
    topics.NODE_AUDIT: (NodeAccess,),
    topics.TOKENS: (TokenIssued, TokenRevoked),
}
