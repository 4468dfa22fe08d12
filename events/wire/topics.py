"""The topic table: every topic, its key, its partitions and its retention, as settings of the broker.

Holds: topics are created from here and nowhere else; auto-creation is off.
"""

from dataclasses import dataclass, field

DEFAULT_DAYS = 90
HEARTBEAT_DAYS = 3
DAY_MS = 86_400_000
HOUR_MS = 3_600_000
MAX_INPUT_BYTES = 256 * 1024
MAX_JOURNAL_RECORD_BYTES = 8 * 1024 * 1024
# What a batch may unpack to before readers set it aside.
MOST_UNPACKED_BYTES = 64 * 1024 * 1024

JOBS = "trainhouse.jobs"
ADMISSION = "trainhouse.admission"
DIRECTORY = "trainhouse.directory"
CONTROL = "trainhouse.control"
DECISIONS = "trainhouse.decisions"
SNAPSHOTS = "trainhouse.snapshots"
JOURNAL_REPAIRS = "trainhouse.journal-repairs"
UPGRADES = "trainhouse.upgrades"
UPGRADES_FINISHED = "trainhouse.upgrades-finished"
TOPOLOGY = "trainhouse.topology"
ALLOCATIONS = "trainhouse.allocations"
POOLS = "trainhouse.pools"
POLICIES = "trainhouse.policies"
PROJECTS = "trainhouse.projects"
HEARTBEATS = "trainhouse.heartbeats"
PROGRESS = "trainhouse.progress"
NODE_KEYS = "trainhouse.node-keys"
VERDICTS = "trainhouse.verdicts"
METRICS = "trainhouse.metrics"
TRACKED_METRICS = "trainhouse.tracked-metrics"
TRACKING = "trainhouse.tracking"
ENVIRONMENTS = "trainhouse.environments"
CHECKPOINTS = "trainhouse.checkpoints"
LOGS = "trainhouse.logs"
STATUS = "trainhouse.status"
EXPLANATIONS = "trainhouse.explanations"
RESERVATIONS = "trainhouse.reservations"
ALERTS = "trainhouse.alerts"
DATASETS = "trainhouse.datasets"
MODELS = "trainhouse.models"
MODEL_REQUESTS = "trainhouse.model-requests"
MODEL_HISTORY = "trainhouse.model-history"
OBSERVATIONS = "trainhouse.observations"
MODEL_DRIFT = "trainhouse.model-drift"
REGISTRY = "trainhouse.registry"
STUDIES = "trainhouse.studies"
STUDY_REQUESTS = "trainhouse.study-requests"
STUDY_HISTORY = "trainhouse.study-history"
TUNING = "trainhouse.tuning"
OPERATIONS = "trainhouse.operations"
OPERATION_REPLIES = "trainhouse.operation-replies"
AUDIT = "trainhouse.audit"
NODE_AUDIT = "trainhouse.node-audit"
TOKENS = "trainhouse.tokens"
TRACES = "trainhouse.traces"
SERVICES = "trainhouse.services"
DEAD_LETTERS = "trainhouse.dead-letters"
# Where points of jobs and runs are.
POINT_TOPICS = (METRICS, TRACKED_METRICS)


# Each record carries the time at which the broker appended it. By their producers' clocks, brokers would refuse those that are more than
# an hour ahead (message.timestamp.after.max.ms, since Kafka 4) and expire those that are far behind; and nothing can be dated back to when
# a key counted that was forgotten since. When something happened, its event says.
LOG_TIME = {"message.timestamp.type": "LogAppendTime"}


@dataclass(frozen=True)
class Topic:
    """One topic. `retention_days` None means it never expires; `compacted` keeps the newest record of each key."""

    name: str
    key: str
    carries: str
    retention_days: int | None = DEFAULT_DAYS
    compacted: bool = False
    max_message_bytes: int = 1024 * 1024
    public: bool = False
    single_partition: bool = False
    extra: dict[str, str] = field(default_factory=lambda: dict(LOG_TIME))

    def config(self) -> dict[str, str]:
        """As topic configuration of the broker."""
        retention_ms = -1 if self.retention_days is None else self.retention_days * DAY_MS
        cleanup = {"cleanup.policy": "compact"} if self.compacted else {"cleanup.policy": "delete", "retention.ms": str(retention_ms)}
        return cleanup | {"max.message.bytes": str(self.max_message_bytes)} | self.extra


TOPICS: tuple[Topic, ...] = (
    Topic(
        JOBS, "any", "JobSubmitted, CancelJob, ChangeJob, ReviewJob, PoolCreated, PolicyChanged, ChangeProject, DrainNode …", public=True
    ),
    Topic(ADMISSION, "job", "requests that passed screening, keyed by job", retention_days=None),
    Topic(
        DIRECTORY,
        "partition",
        "the journal of intake's directory",
        retention_days=None,
        max_message_bytes=MAX_JOURNAL_RECORD_BYTES,
    ),
    Topic(
        CONTROL,
        "partition of the pool",
        "admitted jobs, limits of projects, registrations, attempt and checkpoint reports, verdicts",
        retention_days=7,
    ),
    Topic(
        DECISIONS,
        "as control",
        "the journal of the scheduler",
        retention_days=None,
        max_message_bytes=MAX_JOURNAL_RECORD_BYTES,
    ),
    Topic(
        SNAPSHOTS,
        "journal and partition",
        "pointers to the newest snapshots of journals",
        compacted=True,
        single_partition=True,
    ),
    Topic(
        JOURNAL_REPAIRS,
        "journal, partition, offset and hash",
        "JournalRepaired: records of a journal that count as empty",
        compacted=True,
        single_partition=True,
        extra=LOG_TIME,
    ),
    Topic(TOPOLOGY, "topic", "TopicRecorded: how many partitions each topic has", compacted=True, single_partition=True),
    Topic(
        UPGRADES,
        "journal and process",
        "ProgramRunning: which programs follow a journal",
        compacted=True,
        single_partition=True,
    ),
    Topic(
        UPGRADES_FINISHED,
        "journal and level",
        "UpgradeFinished: the level that the writers of a journal go to; operators alone write it",
        compacted=True,
        single_partition=True,
    ),
    Topic(
        ALLOCATIONS,
        "pool",
        "GangAllocated, GangReleased, CheckpointRequested, NodeDesiredState, NodeOrders",
        retention_days=7,
        max_message_bytes=4 * 1024 * 1024,
    ),
    Topic(POOLS, "pool", "PoolCreated, with its partition", compacted=True, single_partition=True),
    Topic(
        POLICIES,
        "pool, or event id of a refusal",
        "PolicyApplied: the policy of a pool; ChangeRefused: why a change does not count",
        compacted=True,
        public=True,
        single_partition=True,
    ),
    Topic(
        PROJECTS,
        "project",
        "ProjectApplied: members, purposes and limits of a project",
        compacted=True,
        public=True,
        single_partition=True,
    ),
    Topic(HEARTBEATS, "node", "NodeHeartbeat", retention_days=HEARTBEAT_DAYS),
    Topic(
        PROGRESS,
        "partition of the pool",
        "ProgressReported while an attempt goes on, signed by its node; its first and last one are on control",
        retention_days=1,
        # The newest of each job is all that anybody reads.
        extra={"retention.ms": str(HOUR_MS), "segment.ms": str(HOUR_MS // 4)} | LOG_TIME,
    ),
    Topic(
        NODE_KEYS,
        "pool and node",
        "NodeKeyed: the public key of each node; NodeForgotten: one that is gone for good",
        compacted=True,
        single_partition=True,
        # The keys of before stay for as long as there are records that they signed: tables that are built anew show those too.
        extra={"min.compaction.lag.ms": str(DEFAULT_DAYS * DAY_MS)} | LOG_TIME,
    ),
    Topic(
        VERDICTS,
        "node or job",
        "the detector's verdicts; NodeForgotten, NodeRestricted, NodeNoticed, NodeProbed, FailureBlamed",
    ),
    Topic(METRICS, "job", "StepMetrics of ranks, many points in one record, signed by their node", retention_days=3),
    Topic(TRACKED_METRICS, "job", "StepMetrics that clients log, by the gateway or an import", retention_days=3),
    Topic(
        TRACKING,
        "job, experiment, model, dataset, or document",
        "runs that Trainhouse did not schedule, parameters, tags, artifacts, logged models; CheckpointDeleted, DatasetDriftMeasured, "
        "DocumentSaved",
        max_message_bytes=2 * 1024 * 1024,
    ),
    Topic(
        ENVIRONMENTS,
        "job",
        "EnvironmentCaptured: where a rank ran; TraceRecorded; MediaRecorded; ArtifactRecorded; DataRead; signed by its node",
        max_message_bytes=2 * 1024 * 1024,
    ),
    Topic(CHECKPOINTS, "job", "CheckpointStarted, -Completed, -Failed, -Restored, -Pruned, signed by a node of the job"),
    Topic(LOGS, "job", "LogLines, signed by their node", retention_days=3),
    Topic(
        STATUS,
        "job, or event id of a rejection",
        "JobStatus: the whole current status of a job",
        compacted=True,
        public=True,
    ),
    Topic(EXPLANATIONS, "job", "JobExplained: why a job waits, when the answer changed", compacted=True, public=True),
    Topic(RESERVATIONS, "job", "StartReserved, StartUnreserved: promised start times", compacted=True),
    Topic(ALERTS, "rule", "alerts"),
    Topic(
        DATASETS,
        "dataset",
        "DatasetVersionPublished, DatasetVersionDeprecated: versions of datasets; their bad shards, and grants of them",
        retention_days=None,
        public=True,
        # In words, for stacks that made the topic when it expired: what is in `extra` they are given.
        extra={"retention.ms": "-1"} | LOG_TIME,
    ),
    Topic(
        MODELS,
        "project and model",
        "ModelStatus: stages, gate and newest versions of a model",
        compacted=True,
        public=True,
        # In words, for stacks that made the topic when it expired: what is in `extra` they are given.
        extra={"cleanup.policy": "compact"} | LOG_TIME,
    ),
    Topic(
        MODEL_REQUESTS,
        "project and model",
        "ModelRegistered, ModelEvaluated, ModelApproved, ModelPromotionRequested …: requests to the registry of models",
        retention_days=7,
        public=True,
        single_partition=True,
    ),
    Topic(
        REGISTRY,
        "partition",
        "the journal of the registry of models",
        retention_days=None,
        max_message_bytes=MAX_JOURNAL_RECORD_BYTES,
        single_partition=True,
    ),
    Topic(
        MODEL_HISTORY,
        "project and model",
        "ModelVersionRegistered, ModelPromoted, ModelRolledBack, ModelRequestRefused …: decisions of the registry of models",
        retention_days=None,
        public=True,
        single_partition=True,
    ),
    Topic(
        OBSERVATIONS,
        "project and model",
        "PredictionsObserved, ReferenceRecorded: histograms and labels of a model in service, and what they are compared with",
        public=True,
        max_message_bytes=2 * 1024 * 1024,
    ),
    Topic(MODEL_DRIFT, "project and model", "ModelDriftMeasured: drift of a window of predictions, measured by alerts"),
    Topic(
        STUDIES,
        "project and study",
        "StudyStatus: state, best trials and trials by state of a study",
        compacted=True,
        public=True,
        # In words, for stacks that made the topic when it expired: what is in `extra` they are given.
        extra={"cleanup.policy": "compact"} | LOG_TIME,
    ),
    Topic(
        STUDY_REQUESTS,
        "project and study",
        "StudyCreated, StudyStopRequested …: requests to the tuner; what its process observes of trials, and values that it suggests",
        retention_days=7,
        public=True,
        single_partition=True,
    ),
    Topic(
        TUNING,
        "partition",
        "the journal of the tuner",
        retention_days=None,
        max_message_bytes=MAX_JOURNAL_RECORD_BYTES,
        single_partition=True,
    ),
    Topic(
        STUDY_HISTORY,
        "project and study",
        "StudyBegun, TrialStarted, TrialEnded, StudyRequestRefused …: decisions of the tuner",
        retention_days=None,
        public=True,
        single_partition=True,
    ),
    Topic(OPERATIONS, "node", "DumpStacks, ExecuteCommand, OpenTunnel, ProfileRanks", retention_days=1),
    Topic(OPERATION_REPLIES, "request", "OperationReplied", retention_days=1),
    Topic(
        AUDIT,
        "user",
        "AccessGranted, AccessRefused, RequestAccepted …: requests to the gateway, and their users; DatasetAccessRefused",
        retention_days=365,
    ),
    Topic(
        NODE_AUDIT,
        "node",
        "NodeAccess: commands, stacks and secrets that a node granted or refused",
        retention_days=365,
    ),
    Topic(TOKENS, "token", "TokenIssued, TokenRevoked", compacted=True, single_partition=True),
    Topic(SERVICES, "service", "ServiceMeasured: service level of a part of the platform"),
    Topic(TRACES, "job", "JobTraced: the exporter's progress on a job", compacted=True, single_partition=True),
    Topic(
        DEAD_LETTERS,
        "topic, partition and offset",
        "records that could not be read: the raw bytes, with the reason in headers",
        max_message_bytes=2 * 1024 * 1024,
    ),
)


def topic(name: str) -> Topic:
    """The row of one topic; raises KeyError."""
    return {t.name: t for t in TOPICS}[name]
