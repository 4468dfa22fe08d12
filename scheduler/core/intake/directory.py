"""Intake's directory as a pure machine over one partition of admission: which jobs and pools exist, and who gets a request.

Holds: one id is one job, in one pool, with one spec, for ever; a repeated event does nothing, however much came between: the same record
read again is known by its place (`origins.py`), a request sent again by its id or its time (`request_ids.py`), all else by the state; what
is refused is told to whoever asked, under the event's own id, so that a bad resubmission never hides the status of a running job; a request
that overtakes its submission waits for it, bounded in time and number, of each project and of all; a request about a pool that does not
exist is refused at once. What a project is, one partition decides, and all others take from it: a newer version counts. What came by a
project's topic concerns that project's jobs alone: of another's, it is told what it would be told of none. A job that names a secret which
is declared, and not granted to its project, is refused; what was not declared here, its agent judges. A table of many jobs is settled at a
tick: where that is stands in the journal, so all who read it have the same segments.
Never: knows whether a job is finished or whether devices exist; the scheduler of its pool does.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from trainhouse.events import (
    CancelJob,
    ChangeJob,
    ChangeProject,
    DatasetAccessRefused,
    DatasetGranted,
    DatasetGrantRevoked,
    DatasetVersionDeprecated,
    DatasetVersionPublished,
    DeprecateDataset,
    Event,
    EventId,
    GrantDataset,
    JobAdmitted,
    JobId,
    JobRejected,
    JobSpec,
    JobSubmitted,
    MovePool,
    OnDivergence,
    OutputAnswered,
    PoolCreated,
    ProjectApplied,
    PublishDataset,
    QuarantineShard,
    ReleaseShard,
    ReviewJob,
    RevokeDatasetGrant,
    SecretDeclared,
    SecretRemoved,
    ShardQuarantined,
    ShardReleased,
)
from trainhouse.events.model.absence import is_absent
from trainhouse.events.model.ids import TRAINHOUSE
from trainhouse.events.model.resume_ref import parse_resume_from
from trainhouse.events.model.routing import (
    ControlGrown,
    DatasetNoted,
    EventSeen,
    JobDirected,
    JobsSettled,
    LimitsForwarded,
    PoolRequest,
    ProjectNoted,
    RequestForwarded,
    RequestHeld,
    RequestUnheld,
)
from trainhouse.events.model.secret_names import SecretName, SecretRefusedError, usable
from trainhouse.events.model.version_names import VersionName
from trainhouse.events.wire.envelope import Envelope, rfc3339
from trainhouse.events.wire.journal import ClockTicked
from trainhouse.events.wire.topics import DIRECTORY
from trainhouse.scheduler.core.errors import UnexpectedInput
from trainhouse.scheduler.core.intake.bucket import take
from trainhouse.scheduler.core.intake.datasets import (
    SIZES_SINCE,
    deprecated_by,
    fitting,
    published_by,
    quarantined_by,
    released_by,
    resolved,
    why_not_deprecated,
    why_not_outputs,
    why_not_published,
    why_not_quarantined,
    why_not_released,
    why_not_tagged,
    why_not_usable,
    without_sizes,
)
from trainhouse.scheduler.core.intake.directory_effects import directory_effects
from trainhouse.scheduler.core.intake.directory_fold import fold_directory, one_of
from trainhouse.scheduler.core.intake.directory_state import (
    HELD_FOR_MS,
    MAX_HELD,
    MAX_HELD_OF_PROJECT,
    MAX_POOLS,
    MAX_PROJECTS,
    MAX_SECRETS,
    SETTLE_AT,
    DirectoryState,
    capture_directory,
    dump_directory,
    load_directory,
)
from trainhouse.scheduler.core.intake.fingerprint import differing_fields, fingerprint
from trainhouse.scheduler.core.intake.grant_rules import (
    access_refused,
    granted_by,
    revoked_by,
    why_no_access,
    why_not_granted,
    why_not_revoked,
)
from trainhouse.scheduler.core.intake.projects import (
    limits_of,
    limits_to_publish,
    next_version,
    rate_of,
    rule_of,
    same,
    too_many,
    why_not_in,
    why_not_priority,
    why_too_large,
)
from trainhouse.scheduler.core.intake.request_ids import MOST_AHEAD_MS
from trainhouse.scheduler.core.intake.settled_memory import MemorySettledJobs
from trainhouse.scheduler.core.protocol.levels import KNOWN_LEVELS
from trainhouse.scheduler.core.protocol.machine import Condition, Effect, Input, Leveled
from trainhouse.scheduler.core.protocol.settled import Fetch, Sealing, Segment, Settled, SettledJobs
from trainhouse.scheduler.core.protocol.snapshot_steps import DIRECTORY_FORMATS

MAX_POOLS_LISTED = 20
_TAKEN = (
    JobSubmitted
    | CancelJob
    | ChangeJob
    | ReviewJob
    | PoolCreated
    | ChangeProject
    | ProjectApplied
    | PublishDataset
    | DeprecateDataset
    | DatasetVersionPublished
    | DatasetVersionDeprecated
    | QuarantineShard
    | ReleaseShard
    | ShardQuarantined
    | ShardReleased
    | GrantDataset
    | RevokeDatasetGrant
    | DatasetGranted
    | DatasetGrantRevoked
    | SecretDeclared
    | SecretRemoved
    | ControlGrown
    | PoolRequest
)
# The level from which jobs are settled, and EventSeen names the record and time of what was handled.
SETTLES_SINCE: Final = 4
# The level from which requests to move pools are passed on.
MOVES_SINCE: Final = 5
# The level from which versions of datasets are known, and specs may name them.
DATASETS_SINCE: Final = 10
# The level from which shards are quarantined.
QUARANTINES_SINCE: Final = 11
# The level from which datasets are granted to other projects.
GRANTS_SINCE: Final = 12
# The level from which a spec may say how fast its checkpoints are uploaded: that of interactive jobs, which came with it.
PACE_SINCE: Final = 16
# Fields of a spec's checkpoint policy with the level from which a spec may name them: programs of before read no such spec.
CHECKPOINT_FIELDS_SINCE: Final = {"keep_best": 6, "host_memory_gib": 7, "peer_memory": 9, "pace": PACE_SINCE}
# The level from which jobs have outputs, and their schedulers get intake's answers.
OUTPUTS_SINCE: Final = 13
# The level from which a job may leave out data over which its loss diverged.
SKIPS_SINCE: Final = 15
# The level from which jobs may be interactive.
INTERACTIVE_SINCE: Final = 16
# The level from which a job's last checkpoint may become a version of a model.
REGISTERS_SINCE: Final = 17
# Fields of a spec with the level from which it may name them.
SPEC_FIELDS_SINCE: Final = {
    "parallelism": 8,
    "training": 9,
    "data.dataset": DATASETS_SINCE,
    "data.max_bad": QUARANTINES_SINCE,
    "data.fields": SIZES_SINCE,
    "data.schema_of": SIZES_SINCE,
    "data.owner": GRANTS_SINCE,
    "outputs": OUTPUTS_SINCE,
    "divergence.skips": SKIPS_SINCE,
    "divergence.skip_steps": SKIPS_SINCE,
    "interactive": INTERACTIVE_SINCE,
    "register": REGISTERS_SINCE,
}
# What a later one may change back: such a request must never count twice.
_CHANGES = ChangeJob | ReviewJob | ChangeProject | GrantDataset | RevokeDatasetGrant | SecretDeclared | SecretRemoved | PoolRequest


class DirectoryMachine(Leveled):
    """The machine of `trainhouse.directory`. `control_partitions`: with how many control was made; they bound a pool's until it grows.

    `index`: of settled jobs. `settle_at`: how many jobs in a partition's table become a segment.
    """

    name = "directory"
    decide_version, fold_version, lowest_level = KNOWN_LEVELS[DIRECTORY]
    formats = DIRECTORY_FORMATS
    since: Mapping[str, int] = {
        JobsSettled.event_type: SETTLES_SINCE,
        ControlGrown.event_type: SETTLES_SINCE,
        DatasetVersionPublished.event_type: DATASETS_SINCE,
        DatasetVersionDeprecated.event_type: DATASETS_SINCE,
        DatasetNoted.event_type: DATASETS_SINCE,
        ShardQuarantined.event_type: QUARANTINES_SINCE,
        ShardReleased.event_type: QUARANTINES_SINCE,
        DatasetGranted.event_type: GRANTS_SINCE,
        DatasetGrantRevoked.event_type: GRANTS_SINCE,
        DatasetAccessRefused.event_type: GRANTS_SINCE,
        OutputAnswered.event_type: OUTPUTS_SINCE,
    }
    passing: tuple[type[Event], ...] = ()

    def __init__(self, control_partitions: int = 1024, index: SettledJobs | None = None, settle_at: int = SETTLE_AT) -> None:
        self.control_partitions = control_partitions
        self._index = index if index is not None else MemorySettledJobs()
        self._settle_at = settle_at

    def initial(self, partition: int) -> DirectoryState:
        """No pools, no jobs."""
        return DirectoryState(partition, settled=Settled(self._index, partition))

    def wakes_ms(self, state: DirectoryState, after_ms: int) -> int | None:
        """Returns the time at which the next early request expires."""
        oldest = next(iter(state.held.values()), None)
        due_ms = oldest.since_ms + HELD_FOR_MS if oldest is not None else 0
        return due_ms if due_ms > after_ms else None

    def decide(self, state: DirectoryState, now_ms: int, inputs: Sequence[Input]) -> list[Event]:
        """Decisions for a batch. Raises UnexpectedInput on an event that admission does not carry."""
        turn = _Turn(state.fork(), now_ms, self.control_partitions, self._settle_at, self.level)
        for item in inputs:
            turn.handle(item.envelope)
        return turn.decisions

    def after_refusal(self, state: DirectoryState, refused: Envelope, reason: str) -> Event | None:
        """Nothing: the requester gets the answer."""
        return None

    def fold(self, state: DirectoryState, now_ms: int, inputs: Sequence[Input], decisions: Sequence[Event]) -> DirectoryState:
        """The state after a record, changed in place; the inputs are not looked at."""
        for decision in decisions:
            fold_directory(state, now_ms, decision, self.level)
        return state

    def effects(self, seq: int, now_ms: int, inputs: Sequence[Input], decisions: Sequence[Event]) -> list[Effect]:
        """Returns the effects for the schedulers, and refusals."""
        return list(directory_effects(now_ms, decisions))

    def condition(self, state: DirectoryState) -> Condition:
        """Nothing of it is about a pool: where it stops, nothing of its jobs is admitted."""
        return Condition()

    def dump(self, state: DirectoryState) -> bytes:
        """Canonical JSON."""
        return self.formats.lowered(dump_directory(state), self.level)

    def capture(self, state: DirectoryState) -> Callable[[], bytes]:
        """The same for later."""
        written = capture_directory(state)
        return lambda: self.formats.lowered(written(), self.level)

    def load(self, data: bytes) -> DirectoryState:
        """The state back, of segments that the index holds."""
        return self.load_with(data, lambda _: None)

    def load_with(self, data: bytes, fetch: Fetch) -> DirectoryState:
        """The state back. Raises StateLost where a segment is nowhere."""
        return load_directory(data, self._index, fetch)

    def segments(self, state: DirectoryState) -> Sequence[Sealing]:
        """The segments of settled jobs."""
        return () if state.settled is None else state.settled.parts

    def content(self, partition: int, segment: Segment) -> bytes:
        """The bytes of a segment. Raises StateLost."""
        return self._index.content(partition, segment)


@dataclass(slots=True)
class _Turn:
    """One `decide` at work, on an overlay of the state."""

    state: DirectoryState
    now_ms: int
    made_with: int
    settle_at: int
    level: int
    decisions: list[Event] = field(default_factory=list)
    settled: bool = False

    @property
    def control_partitions(self) -> int:
        return self.state.control_partitions or self.made_with

    @property
    def names_records(self) -> bool:
        return self.level >= SETTLES_SINCE

    def emit(self, decision: Event) -> None:
        fold_directory(self.state, self.now_ms, decision, self.level)
        self.decisions.append(decision)

    def handle(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, ClockTicked):
            self.expire()
            self.settle()
            return
        if not isinstance(event, _TAKEN):
            raise UnexpectedInput(f"{event.event_type} ({envelope.id}) is nothing that the directory takes; see the topic table")
        if isinstance(event, ControlGrown) and not self.names_records:
            return  # it comes again under the same id, once an update is finished
        if envelope.origin is not None and self.state.origins.has(envelope.origin):
            return
        digest = event_digest(envelope)
        if self.is_repeat(envelope, digest) or self.is_untimely(envelope, digest):
            return
        made_at_ms = self.made_at_ms(envelope) if isinstance(event, _CHANGES) else None
        self.emit(self.seen(envelope, digest, made_at_ms))
        match event:
            case JobSubmitted():
                self.submitted(envelope, event)
            case PoolCreated():
                self.pool_created(envelope, event)
            case ChangeProject():
                self.project_asked(envelope, event)
            case ProjectApplied():
                self.project_applied(event)
            case PublishDataset() | DeprecateDataset():
                self.dataset_asked(envelope, event)
            case DatasetVersionPublished() | DatasetVersionDeprecated():
                self.dataset_decided(event)
            case QuarantineShard() | ReleaseShard():
                self.shard_asked(envelope, event)
            case ShardQuarantined() | ShardReleased():
                self.shard_decided(event)
            case GrantDataset() | RevokeDatasetGrant():
                self.grant_asked(envelope, event)
            case DatasetGranted() | DatasetGrantRevoked():
                self.grant_decided(event)
            case SecretDeclared() | SecretRemoved():
                self.secret(envelope, event)
            case CancelJob() | ChangeJob():
                self.requested(envelope, event, digest)
            case ReviewJob():
                self.review(envelope, event)
            case ControlGrown():
                self.grown(event)
            case _:
                self.asked_of_pool(envelope, event)

    def seen(self, envelope: Envelope, digest: str, made_at_ms: int | None = None) -> EventSeen:
        """Returns the record that an event was handled, in the form of this level."""
        if not self.names_records:
            return EventSeen(digest=digest)
        project = envelope.project if made_at_ms is not None else None
        origin = "" if envelope.origin is None else str(envelope.origin)
        return EventSeen(digest=digest, origin=origin, made_at_ms=made_at_ms, project=project)

    def made_at_ms(self, envelope: Envelope) -> int:
        return envelope.time_ms if envelope.time_ms is not None else self.now_ms

    def is_repeat(self, envelope: Envelope, digest: str) -> bool:
        """Whether an event of this id was handled. That its record was, too, is noted: the id may be forgotten before it is read again."""
        known, state = bytes.fromhex(digest), self.state
        if known not in state.seen and not state.asked.knows(envelope.project, known):
            return False
        if envelope.origin is not None and self.names_records:
            self.emit(self.seen(envelope, digest))
        return True

    def is_untimely(self, envelope: Envelope, digest: str) -> bool:
        """Refuses a request that cannot be distinguished from one that counted, or whose time would keep others from it; True if it did."""
        event, made_at_ms = envelope.event, self.made_at_ms(envelope)
        if not isinstance(event, _CHANGES) or not self.names_records:
            return False
        if made_at_ms > self.now_ms + MOST_AHEAD_MS:
            why = "more than two days ahead of now; set the sender's clock, and send it again under a new id"
        elif self.state.asked.too_old(envelope.project, made_at_ms):
            why = (
                "and so many requests were made since that whether this one counted already can no longer be told; "
                "if it still holds, send it again under a new id"
            )
        else:
            return False
        reason = f"{envelope.type}: it was made at {rfc3339(made_at_ms)}, {why}"
        self.emit(self.seen(envelope, digest))
        self.reject(envelope.id, getattr(event, "job_id", None), reason, envelope.project)
        return True

    def reject(self, event_id: EventId, job_id: JobId | None, reason: str, project: str | None = None) -> None:
        fields = {"job_id": job_id, "submission_id": event_id, "reason": reason, "rejected_at_ms": self.now_ms, "project": project or ""}
        self.emit(JobRejected.model_validate(fields))

    def submitted(self, envelope: Envelope, event: JobSubmitted) -> None:
        reason = self.why_not(event, envelope.project)
        if reason:
            found = self.state.datasets
            if self.level >= GRANTS_SINCE and (refused := access_refused(found, event, envelope.id, reason, self.now_ms)) is not None:
                self.emit(refused)
            self.reject(envelope.id, event.job_id, reason, event.spec.project)
        elif self.state.job(event.job_id) is None:
            self.admit(envelope, event)

    def why_not(self, event: JobSubmitted, project: str | None) -> str:
        """Returns the reason for which a submission is refused; empty when it is not."""
        state, spec = self.state, event.spec
        owner = state.pool_of(event.job_id)
        if owner is not None and not state.belongs(event.job_id, project):
            return f"job id {event.job_id} is taken; submit it under a new id"
        if owner is not None:
            fields = differing_fields(state.fingerprint_of(event.job_id), spec)
            if "pool" in fields:
                return (
                    f"job {event.job_id} belongs to pool {owner}, for ever; it cannot be sent to pool {spec.pool}: submit it under a new id"
                )
            if fields:
                return f"job {event.job_id} exists with another spec; these fields differ: {', '.join(fields)}. Submit it under a new id"
            return ""
        later = [name for name, since in CHECKPOINT_FIELDS_SINCE.items() if self.level < since]
        written = spec.checkpoint.model_dump() if later else {}  # without what is as it was before
        too_new = [f"checkpoint.{name}" for name in later if name in written]
        too_new += [name for name, since in SPEC_FIELDS_SINCE.items() if self.level < since and not is_absent(_field(spec, name))]
        if self.level < SKIPS_SINCE and spec.divergence.action is OnDivergence.SKIP_DATA:
            too_new.append("divergence.action")
        if too_new:
            return (
                f"spec.{too_new[0]}: an update is not finished; leave it out, or run `trainhouse upgrade finish --reason TEXT` "
                "and submit again"
            )
        if spec.pool not in state.pools:
            return f"spec.pool: {self.unknown_pool(spec.pool)}, then submit again"
        try:
            for wanted in spec.secrets:
                usable(spec.project, wanted, state.secrets)
        except SecretRefusedError as error:
            return f"spec.secrets: {error}"
        if spec.resume_from is not None:
            try:
                source = parse_resume_from(spec.resume_from).job_id
            except ValueError as error:
                return str(error)
            if project is not None and not (state.pool_of(source) and state.belongs(source, project)):
                return f"resume_from: project {project} has no job {source}"
        rule = rule_of(state.projects, spec.project)
        no_access = why_no_access(state.datasets, spec) if self.level >= GRANTS_SINCE else ""
        of_data = no_access or why_not_usable(state.datasets, spec, self.owner_of_data(spec)) or why_not_outputs(state.datasets, spec)
        return of_data or why_not_in(rule, spec, event.asked_as) or self.too_many(rule)

    def owner_of_data(self, spec: JobSpec) -> str:
        """The project whose dataset a job uses, which `why_no_access` lets it; its own where it names none."""
        if self.level < GRANTS_SINCE or spec.data is None or spec.data.dataset is None:
            return spec.project
        return self.state.datasets.owner(VersionName.parse(spec.data.dataset).dataset) or spec.project

    def too_many(self, rule: ProjectApplied | None) -> str:
        """Returns the reason for which a project may submit no more just now; empty if it may."""
        rate = rate_of(rule)
        if rule is None or rate is None:
            return ""
        bucket = self.state.buckets.get(rule.project.name)
        return "" if take(rate, bucket, self.now_ms) is not None else too_many(rule, rate, bucket, self.now_ms)

    def unknown_pool(self, pool: str) -> str:
        known = sorted(self.state.pools)
        more = f" and {len(known) - MAX_POOLS_LISTED} more" if len(known) > MAX_POOLS_LISTED else ""
        listed = ", ".join(known[:MAX_POOLS_LISTED]) + more
        return (
            f"there is no pool {pool}; known: {listed or 'none yet'}. Name one of them, "
            f"or create it: `trainhouse pool create {pool}`, or a PoolCreated event on trainhouse.jobs"
        )

    def admit(self, envelope: Envelope, event: JobSubmitted) -> None:
        # Ranks and tables get a version by its hash; fingerprint and spec_sha256 are the submission's, by which clients know their job.
        spec = resolved(self.state.datasets, event.spec, self.owner_of_data(event.spec))
        admission = JobAdmitted(
            job_id=event.job_id,
            spec=spec,
            spec_sha256=event.spec.sha256(),
            submission_id=envelope.id,
            submitted_at_ms=envelope.time_ms if envelope.time_ms is not None else self.now_ms,
        )
        partition = self.state.pools[spec.pool]
        self.emit(JobDirected(pool=spec.pool, partition=partition, fingerprint=fingerprint(event.spec).hex(), admission=admission))
        for digest in self.state.held_of.get(event.job_id, ()):
            held = self.state.held[digest]
            if held.project not in (None, spec.project):
                continue  # of another project's job it learns nothing
            self.emit(RequestUnheld(digest=digest))
            reason = self.why_not_change(held.request)
            if reason:
                self.reject(held.event_id, held.job_id, f"job {held.job_id} could not be changed: {reason}", held.project)
            else:
                self.forward(held.event_id, spec.pool, held.request)

    def forward(self, event_id: EventId, pool: str, event: CancelJob | ChangeJob | ReviewJob | PoolRequest) -> None:
        of_job = {"pool": pool} if isinstance(event, CancelJob | ChangeJob | ReviewJob) else {}
        about = {"event_id": event_id, "partition": self.state.pools[pool]} | of_job
        self.emit(RequestForwarded.model_validate(about | one_of(event)))

    def asked_of_pool(self, envelope: Envelope, event: PoolRequest) -> None:
        """Passes on what concerns a pool; whether it is right for the pool's nodes, its scheduler judges."""
        if event.pool not in self.state.pools:
            self.reject(envelope.id, None, f"{envelope.type}: {self.unknown_pool(event.pool)}, then send it again under a new id")
        elif isinstance(event, MovePool) and (refused := self.why_not_moved(event)):
            self.reject(envelope.id, None, f"pool {event.pool} cannot be moved to partition {event.to_partition}: {refused}")
        else:
            self.forward(envelope.id, event.pool, event)

    def why_not_moved(self, event: MovePool) -> str:
        """Returns the reason for which a pool cannot be moved, as far as it is known here; empty if it can."""
        if self.level < MOVES_SINCE:
            return "an update is not finished; run `trainhouse upgrade finish --reason TEXT`, then ask again"
        if event.to_partition >= self.control_partitions:
            return f"there is no such partition; use 0 to {self.control_partitions - 1}, or add some: `trainhouse topics grow`"
        return ""

    def requested(self, envelope: Envelope, event: CancelJob | ChangeJob, digest: str) -> None:
        pool = self.state.pool_of(event.job_id)
        if pool is not None and self.state.belongs(event.job_id, envelope.project):
            reason = self.why_not_change(event)
            if reason:
                self.reject(envelope.id, event.job_id, f"job {event.job_id} could not be changed: {reason}", envelope.project)
                return
            self.forward(envelope.id, pool, event)
            return
        held = {"digest": digest, "event_id": envelope.id, "job_id": event.job_id, "project": envelope.project}
        self.emit(RequestHeld.model_validate(held | one_of(event)))
        self.keep_bounds(envelope.project)

    def review(self, envelope: Envelope, event: ReviewJob) -> None:
        """Passes on a review; it never waits for a submission, since no job that is not there can be judged."""
        pool = self.state.pool_of(event.job_id)
        if pool is None or not self.state.belongs(event.job_id, envelope.project):
            reason = f"job {event.job_id} cannot be reviewed: there is no such job; check the id"
            self.reject(envelope.id, event.job_id, reason, envelope.project)
        elif event.max_bad is not None and self.level < QUARANTINES_SINCE:
            why = "an update is not finished; run `trainhouse upgrade finish --reason TEXT`, or leave max_bad out"
            self.reject(envelope.id, event.job_id, f"job {event.job_id} cannot be reviewed: {why}", envelope.project)
        else:
            self.forward(envelope.id, pool, event)

    def keep_bounds(self, asking: str | None) -> None:
        """Refuses the oldest request where too many wait: of a project beyond its own bound, else of who has most of the room."""
        if asking is not None and len(self.state.held_by[asking]) > MAX_HELD_OF_PROJECT:
            why = (
                f"project {asking} has {MAX_HELD_OF_PROJECT} requests waiting for submissions, and this was the oldest; "
                "submit the jobs first, then ask again"
            )
            self.give_up(next(iter(self.state.held_by[asking])), why)
        elif len(self.state.held) > MAX_HELD:
            oldest = next(iter(self.state.held_by[self.state.most_held(asking)]))
            self.give_up(oldest, f"more than {MAX_HELD} requests wait for submissions, and this was the oldest; submit the job first")

    def why_not_change(self, event: CancelJob | ChangeJob) -> str:
        """Returns the reason for which a known job's project does not allow a change; empty if it does."""
        if not isinstance(event, ChangeJob):
            return ""
        rule = rule_of(self.state.projects, self.state.project_of(event.job_id))
        return "" if rule is None else why_not_priority(rule.project, event.priority)

    def project_asked(self, envelope: Envelope, event: ChangeProject) -> None:
        """A requested project, decided by this partition alone."""
        name, projects = event.project.name, self.state.projects
        known = projects.get(name)
        version = known.version if known else 0
        if event.replaces is not None and event.replaces != version:
            self.reject(
                envelope.id,
                None,
                f"project {name} is at version {version}, and this was made from version {event.replaces}: "
                f"look at what it is now (`trainhouse project show {name}`), and change that",
            )
        elif known is None and len(projects) >= MAX_PROJECTS:
            self.reject(envelope.id, None, f"project {name}: there are {MAX_PROJECTS} projects already; change one of them instead")
        elif not same(event, known):
            wanted = next_version(event, known, self.now_ms)
            too_large = why_too_large(projects, wanted)
            if too_large:
                self.reject(envelope.id, None, too_large)
                return
            self.emit(wanted)
            for limited in limits_to_publish(self.state.projects, name, known):
                self.emit(LimitsForwarded(limited=limited, control_partitions=self.control_partitions))

    def project_applied(self, event: ProjectApplied) -> None:
        """A project as the partition that decides about it has said; what is known already changes nothing."""
        known = self.state.projects.get(event.project.name)
        if known is None or known.version < event.version:
            self.emit(ProjectNoted(applied=event))

    def dataset_asked(self, envelope: Envelope, event: PublishDataset | DeprecateDataset) -> None:
        """A version to publish or to deprecate, decided by this partition alone."""
        datasets = self.state.datasets
        if self.level < DATASETS_SINCE:
            why = "an update is not finished; run `trainhouse upgrade finish --reason TEXT`, then ask again"
            self.reject(envelope.id, None, f"dataset {event.subject()}: {why}")
        elif isinstance(event, DeprecateDataset):
            facts = datasets.get(event.dataset, event.sha256)
            if (refused := why_not_deprecated(datasets, event)) or facts is None:
                self.reject(envelope.id, None, refused)
            else:
                self.emit(deprecated_by(event, facts.deprecated or event.reason, self.now_ms, resent=facts.deprecated is not None))
        elif self.is_unanswerable(envelope, event):
            why = "an update is not finished" if self.level < OUTPUTS_SINCE else self.unknown_pool(str(event.pool))
            self.reject(envelope.id, None, f"output {event.version.dataset} of job {event.job_id}: {why}; its scheduler asks again")
        elif refused := why_not_published(datasets, event):
            if self.is_output(envelope, event):
                self.answer(event, refused)
            else:
                self.reject(envelope.id, None, refused)
        else:
            untagged = why_not_tagged(datasets, event)
            semver = None if untagged else event.semver
            known, resent = datasets.get(event.version.dataset, event.version.sha256), not datasets.is_news(event.version, semver)
            is_output = self.is_output(envelope, event)
            job_id = event.job_id if is_output else None
            decided = published_by(fitting(datasets, event), semver, self.now_ms, known, resent, job_id)
            self.emit(decided if self.level >= SIZES_SINCE else without_sizes(decided))
            if is_output:
                self.answer(event, "")
            if untagged:
                self.reject(envelope.id, None, untagged)

    def is_output(self, envelope: Envelope, event: PublishDataset) -> bool:
        """Whether a job's scheduler asks. What came by a project's own topic is not the scheduler's, whatever it names."""
        return event.job_id is not None and event.pool in self.state.pools and envelope.project is None and self.level >= OUTPUTS_SINCE

    def is_unanswerable(self, envelope: Envelope, event: PublishDataset) -> bool:
        """Whether a job's scheduler asks that cannot be answered yet: nothing is published for it, since it asks again under another id.

        Below GRANTS_SINCE programs know no outputs: to them it is a version like any other.
        """
        asks = event.job_id is not None and event.pool is not None and envelope.project is None and self.level >= GRANTS_SINCE
        return asks and not self.is_output(envelope, event)

    def answer(self, event: PublishDataset, refusal: str) -> None:
        """Answers a job's scheduler about an output."""
        assert event.job_id is not None and event.pool is not None
        self.emit(
            OutputAnswered(
                job_id=event.job_id,
                pool=event.pool,
                partition=self.state.pools[event.pool],
                dataset=event.version.dataset,
                sha256=event.version.sha256,
                refusal=refusal,
            )
        )

    def require_level(self, event: Event) -> None:
        """Raises UnexpectedInput below the level that an event of another partition needs."""
        since = DirectoryMachine.since[event.event_type]
        if self.level < since:
            raise UnexpectedInput(f"{event.event_type}: the directory must be at level {since} before it; it is at {self.level}")

    def dataset_decided(self, event: DatasetVersionPublished | DatasetVersionDeprecated) -> None:
        """A version as the partition that decides about its dataset has said; what is known already changes nothing."""
        datasets = self.state.datasets
        self.require_level(event)
        if isinstance(event, DatasetVersionDeprecated):
            facts = datasets.get(event.dataset, event.sha256)
            if facts is not None and facts.deprecated is None:
                self.emit(DatasetNoted(deprecated=event))
        elif (
            datasets.is_news(event.version, event.semver)
            or (self.level >= SIZES_SINCE and datasets.completes(event.version))
            or (
                event.quarantine is not None
                and event.quarantine.number > datasets.shard_changes(event.version.dataset, event.version.sha256)
            )
        ):
            self.emit(DatasetNoted(published=event if self.level >= SIZES_SINCE else without_sizes(event)))

    def shard_asked(self, envelope: Envelope, event: QuarantineShard | ReleaseShard) -> None:
        """A shard to quarantine or to release, decided by this partition alone.

        One that is in quarantine already is sent again to partitions that may have missed it. What the platform asks for itself nobody
        waits for: its refusal is no record.
        """
        datasets = self.state.datasets
        number = datasets.shard_changes(event.dataset, event.sha256) + 1
        if self.level < QUARANTINES_SINCE:
            refused = f"dataset {event.subject()}: an update is not finished; run `trainhouse upgrade finish --reason TEXT`, then ask again"
        elif isinstance(event, ReleaseShard):
            refused = why_not_released(datasets, event)
        else:
            refused = why_not_quarantined(datasets, event)
        if refused:
            if event.user != TRAINHOUSE:
                self.reject(envelope.id, None, refused)
        elif isinstance(event, ReleaseShard):
            self.emit(released_by(event, number, self.now_ms))
        else:
            facts = datasets.get(event.dataset, event.sha256)
            known = facts is not None and event.shard in facts.quarantined
            self.emit(quarantined_by(event, number, self.now_ms, resent=known))

    def shard_decided(self, event: ShardQuarantined | ShardReleased) -> None:
        """A shard as the partition that decides about its dataset has said; what is no newer than what is known changes nothing."""
        self.require_level(event)
        facts = self.state.datasets.get(event.dataset, event.sha256)
        if facts is not None and event.number > facts.shard_changes:
            quarantined = isinstance(event, ShardQuarantined)
            self.emit(DatasetNoted(quarantined=event) if quarantined else DatasetNoted(released=event))

    def grant_asked(self, envelope: Envelope, event: GrantDataset | RevokeDatasetGrant) -> None:
        """A grant to give or to revoke, decided by this partition alone. One that holds is sent again to partitions that may have missed
        it."""
        datasets = self.state.datasets
        if self.level < GRANTS_SINCE:
            refused = f"dataset {event.dataset}: an update is not finished; run `trainhouse upgrade finish --reason TEXT`, then ask again"
        elif isinstance(event, GrantDataset):
            refused = why_not_granted(datasets, self.state.projects, event)
        else:
            refused = why_not_revoked(datasets, event)
        if refused:
            self.reject(envelope.id, None, refused)
        elif isinstance(event, GrantDataset):
            self.emit(granted_by(datasets, event, self.now_ms))
        else:
            self.emit(revoked_by(datasets, event, self.now_ms))

    def grant_decided(self, event: DatasetGranted | DatasetGrantRevoked) -> None:
        """A grant as the partition that decides about its dataset has said; what is no newer than what is known changes nothing."""
        self.require_level(event)
        datasets = self.state.datasets
        if datasets.owner(event.dataset) is not None and event.number > datasets.grants(event.dataset).number:
            self.emit(DatasetNoted(granted=event) if isinstance(event, DatasetGranted) else DatasetNoted(revoked=event))

    def grown(self, event: ControlGrown) -> None:
        """Pools may be given more partitions; the schedulers of those learn the limits of all projects."""
        before = self.control_partitions
        if event.partitions <= before:
            return
        self.emit(event)
        for limited in limits_of(self.state.projects, sorted(self.state.projects)):
            self.emit(LimitsForwarded(limited=limited, control_partitions=event.partitions, first_partition=before))

    def expire(self) -> None:
        """Refuses requests whose submission did not come."""
        due = []
        for digest, held in self.state.held.items():
            if self.now_ms - held.since_ms < HELD_FOR_MS:
                break
            due.append(digest)
        for digest in due:
            self.give_up(digest, f"no such job was submitted within {HELD_FOR_MS // 60_000} minutes; check the id")

    def settle(self) -> None:
        """Makes a table of many jobs a segment. On the fork it stays what it was, so all that is looked up is the same."""
        jobs = self.state.in_table()
        if self.level >= SETTLES_SINCE and jobs >= self.settle_at and not self.settled:
            self.decisions.append(JobsSettled(jobs=jobs))
            self.settled = True

    def give_up(self, digest: str, why: str) -> None:
        held = self.state.held[digest]
        what = "cancelled" if isinstance(held.request, CancelJob) else "changed"
        self.emit(RequestUnheld(digest=digest))
        self.reject(held.event_id, held.job_id, f"job {held.job_id} could not be {what}: {why}", held.project)

    def pool_created(self, envelope: Envelope, event: PoolCreated) -> None:
        known = self.state.pools.get(event.pool)
        if known == event.partition:
            return
        if known is not None:
            why = f"it cannot be created on partition {event.partition}; `trainhouse pool move` moves a pool to another partition"
            self.reject(envelope.id, None, f"pool {event.pool} exists, and was created on partition {known}: {why}")
        elif event.partition >= self.control_partitions:
            last = self.control_partitions - 1
            self.reject(envelope.id, None, f"pool {event.pool}: partition {event.partition} does not exist; use 0 to {last}")
        elif len(self.state.pools) >= MAX_POOLS:
            self.reject(envelope.id, None, f"pool {event.pool}: there are {MAX_POOLS} pools already; use one of them")
        else:
            self.emit(event)

    def secret(self, envelope: Envelope, event: SecretDeclared | SecretRemoved) -> None:
        """Notes which secrets are and whom they are granted to; agents, which have them, judge again."""
        name = SecretName(event.project, event.name)
        known = self.state.secrets.get(name)
        if isinstance(event, SecretRemoved):
            if known is not None:
                self.emit(event)
        elif known is None and len(self.state.secrets) >= MAX_SECRETS:
            self.reject(envelope.id, None, f"secret {name}: {MAX_SECRETS} are declared already; remove one")
        elif known != event.grants:
            self.emit(event)


def _field(spec: JobSpec, path: str) -> object:
    """The value at a dotted path; None where a part of it is absent."""
    value: object = spec
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


def event_digest(envelope: Envelope) -> str:
    """Returns the key by which a repeated event is recognised: CloudEvents are named by source and id together."""
    return hashlib.blake2b(f"{envelope.source}\n{envelope.id}".encode(), digest_size=8).hexdigest()
