"""Spec of a job, which a submission carries. It never changes once the job is admitted.

Holds: every field is bounded; the hash of a spec is that of its canonical JSON, so equal specs have equal hashes everywhere.
"""

import hashlib
import re
import warnings
from enum import StrEnum
from math import lcm
from typing import Annotated, Any, Final

import orjson
from pydantic import Field, StringConstraints, field_validator, model_validator

from trainhouse.events.model.absence import is_absent
from trainhouse.events.model.base import Model
from trainhouse.events.model.bounds import MOST_BYTES, MOST_CHARS, MOST_COUNT, MOST_DURATION_S, InputText, Int64, Metric
from trainhouse.events.model.dataset_names import DatasetName, FieldName, SplitName, VersionReference
from trainhouse.events.model.default_project import DEFAULT_PROJECT
from trainhouse.events.model.ids import PoolName
from trainhouse.events.model.labels import MOST_QUARANTINED, Label, Sha256
from trainhouse.events.model.model_names import ModelName
from trainhouse.events.model.parallelism import Parallelism
from trainhouse.events.model.secret_names import PATTERN as SECRET_PATTERN
from trainhouse.events.model.secret_names import variable_of
from trainhouse.events.model.skipped_data import MOST_SKIPS
from trainhouse.events.model.training import Training
from trainhouse.events.model.version_names import NAME_PATTERN

Variable = Annotated[str, StringConstraints(max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
SecretReference = Annotated[str, StringConstraints(max_length=257, pattern=SECRET_PATTERN)]
MOST_RANKS: Final = 65536
MOST_NEEDED_FIELDS: Final = 256
MOST_HYPERPARAMETERS: Final = 512
DEFAULT_MAX_BAD: Final = 0.001
"""Share of the places of each pass that may stay empty, where neither the spec nor the program says one."""
MOST_OUTPUTS: Final = 16
FORMER_MAX_INTERVAL_S: Final = 1800.0  # the default until it became 600 s; recorded specs have it in words
Scalar = bool | Int64 | Metric | InputText | None


class Resources(Model):
    """Resources of each rank."""

    device_type: Label = Field("any", description='type of the devices; "any": what the pool has, "cpu": cpu slots')
    cpus_per_device: float | None = Field(None, gt=0, le=4096, description="cores for each rank")
    memory_gib_per_device: float | None = Field(None, gt=0, le=65536, description="main memory for each rank, in GiB")
    device_memory_gib: float | None = Field(None, gt=0, le=65536, description="least memory of the device itself, in GiB")
    device_share: int | None = Field(None, ge=1, le=1000, description="thousandths of one device, for a job of one rank")


class Role(Model):
    """Some ranks of a gang that do another work than the rest. What is left out is as the spec says for all."""

    name: Label = Field(description="name of the role, in ROLE_NAME of its ranks")
    ranks: int = Field(ge=1, le=65536, description="ranks of this role")
    resources: Resources | None = Field(None, description="resources of each of its ranks; default: those of the job")
    command: tuple[InputText, ...] | None = Field(
        None, min_length=1, max_length=1024, description="command of its ranks; default: that of the job"
    )


class Gang(Model):
    """All ranks of a job, started together or not at all. One rank holds one device."""

    ranks: int = Field(1, ge=1, le=65536, description="ranks of the gang, one device each")
    roles: tuple[Role, ...] = Field(
        (), max_length=64, description="roles, whose ranks follow each other in this order; empty: all ranks are alike"
    )
    min_ranks: int | None = Field(
        None, ge=1, le=65536, description="fewest ranks to start with; an elastic gang grows from there to `ranks`"
    )
    require: Label | None = Field(None, description="topology level (nvlink, node, rack, pod …) of which one domain must hold all ranks")
    prefer: Label | None = Field(None, description="topology level of which one domain holds all ranks if it can")
    group_ranks: int = Field(
        1,
        ge=1,
        le=65536,
        description="consecutive ranks, such as a tensor-parallel group, that share one NVLink domain; 1: the tp of the layout, if any",
    )

    @model_validator(mode="after")
    def _consistent(self) -> "Gang":
        names = [r.name for r in self.roles]
        if len(set(names)) != len(names):
            raise ValueError(f"roles: {next(n for n in names if names.count(n) > 1)} is named twice; keep one of them")
        total = sum(r.ranks for r in self.roles)
        if self.roles and total != self.ranks:
            raise ValueError(f"roles have {total} ranks together, but the gang has ranks = {self.ranks}; make them equal")
        if self.min_ranks is not None and self.min_ranks > self.ranks:
            raise ValueError(f"min_ranks = {self.min_ranks} is more than ranks = {self.ranks}; ranks is the most that the gang takes")
        if self.roles and self.min_ranks is not None and self.min_ranks < self.ranks:
            raise ValueError("min_ranks and roles exclude each other: a gang with roles has one size; leave one of them out")
        for what, count in [("ranks", self.ranks), ("min_ranks", self.min_ranks or 0), *((f"role {r.name}", r.ranks) for r in self.roles)]:
            if count % self.group_ranks:
                raise ValueError(f"group_ranks = {self.group_ranks} does not divide {what} = {count}; every rank is in one whole group")
        return self

    @property
    def least_ranks(self) -> int:
        """The fewest ranks with which it runs."""
        return self.min_ranks or self.ranks


class Placement(Model):
    """Nodes that may run a job."""

    node_labels: dict[Label, InputText] = Field(
        default_factory=dict, max_length=64, description="labels that a node must have, with their values"
    )
    spot: bool = Field(True, description="whether nodes with the label spot=true may be used, which may be taken away at any time")


class Runtime(Model):
    """Runtime of a rank: a command, as torchrun's environment contract expects it.

    `command[0]` may be `python`: it then means `interpreter`, or the agent's own where none is given.
    An argument may hold `{name}` of a hyperparameter.
    """

    command: tuple[InputText, ...] = Field(
        min_length=1,
        max_length=1024,
        description="program and arguments; `python` means `interpreter`, and `{name}` a hyperparameter's value",
    )
    interpreter: InputText | None = Field(None, description="Python on the nodes that `python` means; default: the agent's setting")
    image_digest: str | None = Field(
        None,
        max_length=MOST_CHARS,
        pattern=r"^.+@sha256:[0-9a-f]{64}$|^sha256:[0-9a-f]{64}$",
        description="image that the agents must run in, by its digest; others do not launch the job",
    )


class CodeArchive(Model):
    """The packed working folder, named by its content, and where it came from."""

    uri: InputText = Field(description="place of the archive in the object store")
    sha256: Sha256 = Field(description="SHA-256 of the archive, in hexadecimal")
    size_bytes: int = Field(0, ge=0, le=MOST_BYTES, description="size of the archive, in bytes")
    git_commit: InputText | None = Field(None, description="commit that was checked out")
    git_diff_uri: InputText | None = Field(None, description="place of the difference to that commit in the object store")
    git_dirty: bool = Field(False, description="whether the folder differed from its commit")


class DataReference(Model):
    """Immutable input data: a published version of a dataset, or data elsewhere that is opaque to the platform."""

    uri: str | None = Field(
        None, min_length=1, max_length=4096, exclude_if=is_absent, description="address of opaque data, handed to ranks as it is"
    )
    sha256: Sha256 | None = Field(
        None, exclude_if=is_absent, description="SHA-256 of opaque data, in hexadecimal; handed to ranks, checked by nothing"
    )
    dataset: VersionReference | None = Field(
        None,
        exclude_if=is_absent,
        description="version of a dataset: NAME@sha256:…, or NAME@1.2.0, which intake replaces by the hash that has this tag",
    )
    split: SplitName | None = Field(
        None, exclude_if=is_absent, description="split of the dataset that the job reads; default: its session says"
    )
    purpose: Label | None = Field(
        None,
        exclude_if=is_absent,
        description="what it is used for, one of the dataset's purposes if it has any; default: the job's",
    )
    max_bad: float | None = Field(
        None,
        ge=0,
        le=1,
        exclude_if=is_absent,
        description="share of the places of each pass that may stay empty, as their samples cannot be read or decoded; beyond it the job "
        "saves and is NEEDS_REVIEW; default: 0.001",
    )
    fields: dict[FieldName, Label] | None = Field(
        None,
        min_length=1,
        max_length=MOST_NEEDED_FIELDS,
        exclude_if=is_absent,
        description="fields that the program reads, with the types that it takes, as `json.text: text` or `json.score: float|int`; a "
        "version that lacks one, or has it with another type, is refused; `trainhouse data show` lists a version's",
    )
    schema_of: VersionReference | None = Field(
        None,
        exclude_if=is_absent,
        description="version whose fields the program was written for, as NAME@1.0.0: a version that lacks one of them, or has it with "
        "another type, is refused",
    )
    quarantined: tuple[Sha256, ...] = Field(
        (),
        max_length=MOST_QUARANTINED,
        exclude_if=is_absent,
        description="shards of the version that are in quarantine, by hash; filled in by intake",
    )
    owner: Label | None = Field(
        None,
        exclude_if=is_absent,
        description="project that owns the dataset, where the job reads another's by a grant; filled in by intake",
    )

    @model_validator(mode="after")
    def _one_form(self) -> "DataReference":
        if self.dataset is not None:
            if self.uri is not None or self.sha256 is not None:
                raise ValueError("data: dataset excludes uri and sha256; name a published version or data elsewhere, not both")
            return self
        if self.max_bad is not None or self.quarantined:
            raise ValueError(f"data: {'max_bad' if self.max_bad is not None else 'quarantined'} is for a dataset; name one")
        if self.fields is not None or self.schema_of is not None:
            raise ValueError(f"data: {'fields' if self.fields is not None else 'schema_of'} is for a dataset; name one")
        if self.owner is not None:
            raise ValueError("data: owner is for a dataset, and filled in by intake; leave it out")
        if self.split is not None or self.purpose is not None:
            raise ValueError(f"data: {'split' if self.split is not None else 'purpose'} is for a dataset; name one: `dataset: NAME@1.2.0`")
        if self.uri is None or self.sha256 is None:
            raise ValueError("data: name a published version (`dataset: NAME@1.2.0`), or data elsewhere by both uri and sha256")
        return self

    @property
    def address(self) -> str:
        """Name of the data in lineage: the version, or the address."""
        return self.dataset or self.uri or ""

    @property
    def content_sha256(self) -> str:
        """Hash of the data, or of its manifest; empty where a version is named by its tag."""
        if self.dataset is not None:
            return self.dataset.partition("@sha256:")[2]
        return self.sha256 or ""


class MetricMode(StrEnum):
    """Direction in which a metric is better."""

    MIN = "min"
    MAX = "max"

    @property
    def sign(self) -> float:
        """Factor by which values are multiplied so that the least is the best."""
        return 1.0 if self is MetricMode.MIN else -1.0


class UploadPace(StrEnum):
    """Pace of uploads while training runs; what training waits for always goes at full pace."""

    BACKGROUND = "background"
    FULL = "full"


class CheckpointPolicy(Model):
    """Schedule of a session's saves, and retention. Without `every_*` the session chooses within the bounds.

    `max_interval_s` bounds the time between saves by `every_steps`, too; `every_s` decides alone. The newest `keep_last` stay, the best
    `keep_best`, and what a tag or another job refers to.
    """

    every_steps: int | None = Field(None, ge=1, le=MOST_COUNT, description="steps from one save to the next; default: the session chooses")
    every_s: float | None = Field(
        None, gt=0, le=MOST_DURATION_S, description="seconds from one save to the next, whatever the other bounds"
    )
    min_interval_s: float = Field(30.0, gt=0, le=MOST_DURATION_S, description="least seconds between saves that the session chooses itself")
    max_interval_s: float = Field(
        600.0, gt=0, le=MOST_DURATION_S, description="most seconds between saves, those by `every_steps` included"
    )
    keep_last: int = Field(3, ge=1, le=1000, description="newest checkpoints that are kept; older ones are pruned")
    keep_best: int | None = Field(
        None, ge=1, le=1000, exclude_if=is_absent, description="checkpoints that are kept beside them: the best by `metric`; default: none"
    )
    metric: InputText | None = Field(
        None, min_length=1, exclude_if=is_absent, description="metric of `keep_best`, by the name that the session logs; default: loss"
    )
    mode: MetricMode | None = Field(
        None, exclude_if=is_absent, description="whether the least (`min`) or the greatest (`max`) value is the best; default: min"
    )
    host_memory_gib: float | None = Field(
        None,
        gt=0,
        le=65536,
        exclude_if=is_absent,
        description="most GiB of main memory that a rank copies its state to for the upload; a larger state goes in waves, for which "
        "training waits; default: no limit",
    )

    peer_memory: bool = Field(
        True,
        exclude_if=bool,
        description="whether checkpoints are copied into another node's memory, too, in another rack where there is one, "
        "and read from it first",
    )
    pace: UploadPace = Field(
        UploadPace.BACKGROUND,
        exclude_if=lambda pace: pace == UploadPace.BACKGROUND,
        description="how fast a checkpoint is uploaded while training runs: `background` leaves processors and bandwidth to training, "
        "`full` does not; what training waits for (a preemption, a notice, the end, the next save) goes at full pace in any case",
    )

    @model_validator(mode="after")
    def _best_by_what(self) -> "CheckpointPolicy":
        if self.keep_best is None and (self.metric or self.mode):
            raise ValueError(f"checkpoint: {'metric' if self.metric else 'mode'} is for keep_best; say how many of the best to keep")
        return self

    @property
    def longest_s(self) -> float:
        """Seconds after which a checkpoint is due by the clock, at the latest."""
        return self.every_s or max(self.min_interval_s, self.max_interval_s)

    @property
    def asked(self) -> bool:
        """Whether the spec says anything of checkpoints; one that was written with the default of before says nothing."""
        return self not in (CheckpointPolicy(), CheckpointPolicy(max_interval_s=FORMER_MAX_INTERVAL_S))


class Limits(Model):
    """Bounds of a job: how often it may restart, how long it may run, how long it may take to stop."""

    restarts: int = Field(
        3,
        ge=0,
        le=1000,
        description="how often it is restarted after failures of its own or of unknown cause; those of the fleet count for nothing",
    )
    run_time_s: float | None = Field(
        None,
        gt=0,
        le=MOST_DURATION_S,
        description="seconds of running in all, restarts included; then it saves and is FAILED; default: no limit",
    )
    grace_s: float = Field(15.0, ge=0, le=3600, description="seconds between SIGTERM and SIGKILL")


DEFAULT_SKIPS: Final = 3
DEFAULT_SKIP_STEPS: Final = 2
"""A loss may still be sound whose gradients spoil the next one."""


class OnDivergence(StrEnum):
    """Reaction to a loss that is no number or explodes: the job FAILED, goes back some checkpoints, goes back and leaves out the data that
    did it, or nothing."""

    HALT = "halt"
    ROLLBACK = "rollback"
    SKIP_DATA = "skip_data"
    IGNORE = "ignore"


class Divergence(Model):
    """Divergence check of the logged `loss` by the session.

    It diverged when it is no finite number, or more than `explode_factor` x its own usual size (absent: not watched). `rollback`
    goes `checkpoints` back, `rollbacks` times at most; then the job is FAILED. `skip_data` goes back as well, and leaves out the data of
    the last `skip_steps` steps up to the one that diverged, `skips` times at most.
    """

    action: OnDivergence = Field(OnDivergence.HALT, description="reaction to a diverged loss")
    explode_factor: float | None = Field(
        None,
        gt=1,
        le=MOST_COUNT,
        description="multiple of the loss's own usual size that counts as diverged; default: only NaN and infinities do",
    )
    checkpoints: int = Field(1, ge=1, le=1000, description="checkpoints to go back at a rollback")
    rollbacks: int = Field(1, ge=1, le=1000, description="rollbacks of one job; the next divergence makes it FAILED")
    skips: int | None = Field(
        None,
        ge=1,
        le=MOST_SKIPS,
        exclude_if=is_absent,
        description=f"times that one job leaves out data (`skip_data`); the next divergence makes it FAILED; default: {DEFAULT_SKIPS}",
    )
    skip_steps: int | None = Field(
        None,
        ge=1,
        le=10_000,
        exclude_if=is_absent,
        description="steps whose data are left out (`skip_data`): the one whose loss diverged, and those right before it; "
        f"default: {DEFAULT_SKIP_STEPS}, and at least all since the last sound loss",
    )


class InteractiveKind(StrEnum):
    """Program that a person works with."""

    SHELL = "shell"
    NOTEBOOK = "notebook"


class Interactive(Model):
    """Interactive work in rank 0 of a job on one node, which people reach by the gateway."""

    kind: InteractiveKind = Field(
        InteractiveKind.SHELL, description="`shell`: a terminal, whose end is the job's; `notebook`: Jupyter, beside terminals"
    )
    idle_limit_s: float = Field(
        3600.0,
        ge=1,
        le=MOST_DURATION_S,
        description="seconds without traffic of its users and without work of its processors or devices, after which the job ends",
    )


# Of the metaclass, for virtual subclasses, which a spec has none of.
warnings.filterwarnings("ignore", message='Field name "register" in "JobSpec" shadows')


class JobSpec(Model):
    """The whole spec of a job. Only `runtime.command` is required."""

    name: Label = Field("job", description="name of the job, from which its id begins")
    project: Label = Field(DEFAULT_PROJECT, description="owner of jobs and data")
    purpose: Label | None = Field(None, exclude_if=is_absent, description="what the job is for: one that its project has approved")
    team: Label = Field("default", description="owner of the quota that the job's devices count towards")
    user: Label = Field("unknown", description="who submits it; a gateway fills in its token's user")
    pool: PoolName = Field(PoolName("default"), description="pool of nodes that runs it")
    priority: int = Field(50, ge=0, le=100, description="0 is the highest, 100 the lowest")
    seed: int = Field(0, ge=0, lt=2**63, description="seed of the generators of Python, NumPy and torch")
    gang: Gang = Field(Gang(ranks=1), description="ranks; a number alone means `ranks`")
    parallelism: Parallelism | None = Field(
        None, exclude_if=is_absent, description="layout of the model over the ranks, of `session.mesh`; default: each rank a replica"
    )
    training: Training | None = Field(
        None, exclude_if=is_absent, description="how steps are computed, for the session's `prepare`, `accumulate`, `backward` and others"
    )
    resources: Resources = Field(Resources(), description="what each rank needs")
    placement: Placement = Field(Placement(), description="which nodes may run it")
    runtime: Runtime = Field(description="command, and the Python and image that it needs")
    code: CodeArchive | None = Field(None, description="folder that ranks start in a copy of; `submit` fills it in")
    env: dict[Variable, InputText] = Field(default_factory=dict, max_length=512, description="environment variables of ranks")
    env_allow: tuple[Variable, ...] = Field((), max_length=512, description="variables of `env` that look like secrets and are none")
    secrets: tuple[SecretReference, ...] = Field(
        (),
        max_length=64,
        description="secrets that ranks get as environment variables: NAME of the job's own project (else the default "
        "one's), or PROJECT/NAME of one that is granted to it",
    )
    hyperparameters: dict[Label, Scalar] = Field(
        default_factory=dict,
        max_length=MOST_HYPERPARAMETERS,
        description="values that `session.hyperparameters` reads, and that fill `{name}` in the command",
    )
    data: DataReference | None = Field(None, description="immutable input data: a version of a dataset, or data elsewhere")
    outputs: tuple[DatasetName, ...] = Field(
        (),
        max_length=MOST_OUTPUTS,
        exclude_if=is_absent,
        description="datasets of the job's project that ranks write to `session.output(NAME)`; each gets a version when the job succeeds",
    )
    register: ModelName | None = Field(
        None,
        exclude_if=is_absent,
        description="name of a model of the job's project: the job's last checkpoint becomes its next version when the job succeeds",
    )
    checkpoint: CheckpointPolicy = Field(CheckpointPolicy(), description="when a session saves, and what is kept")
    preemptible: bool = Field(True, description="whether it may be stopped so that another job can start")
    resume_from: str | None = Field(
        None, max_length=256, description="another job's checkpoint to begin from: JOB, JOB@COMMIT, JOB@step:N or JOB@best"
    )
    limits: Limits = Field(Limits(), description="how often it may restart, how long it may run and take to stop")
    divergence: Divergence = Field(Divergence(), description="reaction to a loss that is no number, or explodes")
    labels: dict[Label, InputText] = Field(default_factory=dict, max_length=64, description="notes on the job; nothing is decided by them")
    interactive: Interactive | None = Field(
        None,
        exclude_if=is_absent,
        description="interactive work in its rank 0, as `trainhouse shell` and `trainhouse notebook` submit it; default: none",
    )

    @field_validator("gang", mode="before")
    @classmethod
    def _ranks_alone(cls, value: Any) -> Any:
        return {"ranks": value} if isinstance(value, int) and not isinstance(value, bool) else value

    @model_validator(mode="after")
    def _reserved_variables(self) -> "JobSpec":
        secrets = [variable_of(name) for name in dict.fromkeys(self.secrets)]
        taken = sorted(k for k in (*self.env, *secrets) if k in RESERVED_VARIABLES or k.startswith("TRAINHOUSE_"))
        if taken:
            raise ValueError(f"env: {', '.join(taken)} are set by the launcher; remove them from the spec")
        both = sorted(set(self.env) & set(secrets))
        if both:
            raise ValueError(f"env and secrets both name {', '.join(both)}; keep one of them")
        twice = sorted({name for name in secrets if secrets.count(name) > 1})
        if twice:
            raise ValueError(f"secrets: two of them would be the variable {twice[0]}; keep one of them")
        return self

    @field_validator("register", mode="before")
    @classmethod
    def _model_named(cls, value: Any) -> Any:
        if isinstance(value, str) and not re.fullmatch(NAME_PATTERN, value):
            raise ValueError(
                f"{value[:200]!r} names no model of the job's project: write 1 to 128 letters, digits, '.', '_' and '-', beginning with a "
                "letter or digit, and no project before it"
            )
        return value

    @field_validator("outputs")
    @classmethod
    def _outputs_once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"{twice[0]} comes twice; name each output once")
        return names

    @model_validator(mode="after")
    def _shares(self) -> "JobSpec":
        share = self.resources.device_share
        if share is not None and share < 1000 and self.gang.ranks > 1:
            raise ValueError(
                f"resources.device_share = {share} is for a job of one rank; this gang has {self.gang.ranks}, and gangs take whole devices"
            )
        shared = next((r.name for r in self.gang.roles if r.resources is not None and r.resources.device_share is not None), None)
        if shared is not None:
            raise ValueError(f"gang.roles: {shared} has a device_share; roles take whole devices, remove it")
        return self

    @model_validator(mode="after")
    def _alone(self) -> "JobSpec":
        if self.interactive is not None and self.gang.ranks > 1 and self.gang.require != "node":
            raise ValueError(f"interactive is for one node: with ranks = {self.gang.ranks} set gang.require = node")
        return self

    @model_validator(mode="after")
    def _registers_a_checkpoint(self) -> "JobSpec":
        if self.register is not None and self.interactive is not None:
            raise ValueError(
                "register and interactive exclude each other: an interactive job saves no checkpoint that could become a version; leave "
                "one of them out"
            )
        return self

    @model_validator(mode="after")
    def _laid_out(self) -> "JobSpec":
        layout, gang = self.parallelism, self.gang
        if layout is None:
            return self
        if len(gang.roles) > 1:
            raise ValueError(
                "parallelism and gang.roles exclude each other: a layout is for ranks that do the same work; leave one of them out"
            )
        if layout.ranks != gang.ranks:
            raise ValueError(f"parallelism: {layout.sizes_text}, but the gang has ranks = {gang.ranks}; make them equal")
        if gang.least_ranks % layout.replica_ranks:
            raise ValueError(
                f"gang.min_ranks = {gang.min_ranks} is no multiple of {layout.replica_text}, the ranks of one replica of the model; "
                "an elastic gang changes dp alone"
            )
        if gang.group_ranks > 1 and gang.group_ranks % layout.tp and layout.tp % gang.group_ranks:
            raise ValueError(
                f"gang.group_ranks = {gang.group_ranks} would split tensor-parallel groups of tp = {layout.tp}; "
                f"leave it out (then it is {layout.tp}), or make one a multiple of the other"
            )
        return self

    @model_validator(mode="after")
    def _batch_kept(self) -> "JobSpec":
        if self.training is None or self.training.micro_batches is None:
            return self
        if len(self.gang.roles) > 1:
            raise ValueError("training.global_batch and gang.roles exclude each other: a batch is of ranks that do the same work")
        for name, ranks in (("ranks", self.gang.ranks), ("min_ranks", self.gang.least_ranks)):
            if self.ranks_of_batch % ranks:
                raise ValueError(
                    f"gang.{name} = {ranks} cannot keep training.global_batch = {self.training.global_batch} in micro-batches of "
                    f"{self.training.micro_batch}; sizes that can: {self._sizes_text()}"
                )
        return self

    @property
    def ranks_of_batch(self) -> int:
        """Number of ranks of which each size of the gang is a divisor, so that it keeps the global batch; 0: no size is bound to it."""
        micro_batches = self.training.micro_batches if self.training is not None else None
        one_share = self.parallelism.tp * self.parallelism.pp if self.parallelism is not None else 1
        return (micro_batches or 0) * one_share

    def _sizes_text(self, most: int = 12) -> str:
        """Sizes that keep the global batch, the nearest to `ranks` at the end."""
        step = lcm(self.parallelism.replica_ranks if self.parallelism is not None else 1, self.gang.group_ranks)
        found = [n for n in range(step, min(self.ranks_of_batch, MOST_RANKS) + 1, step) if self.ranks_of_batch % n == 0]
        below = [n for n in found if n <= self.gang.ranks][-most:] + [n for n in found if n > self.gang.ranks][:2]
        return ", ".join(map(str, below)) or "none"

    @property
    def group_ranks(self) -> int:
        """Consecutive ranks that share one NVLink domain: as the gang says, else a tensor-parallel group."""
        return self.parallelism.tp if self.parallelism is not None and self.gang.group_ranks == 1 else self.gang.group_ranks

    @property
    def shares_device(self) -> bool:
        """Whether its one rank has only a part of its device."""
        return self.resources.device_share is not None and self.resources.device_share < 1000

    def role_of(self, rank: int) -> tuple[Role | None, int]:
        """The role that a rank has, if the gang has roles, and the first rank of that role."""
        first = 0
        for role in self.gang.roles:
            if rank < first + role.ranks:
                return role, first
            first += role.ranks
        return None, 0

    def canonical_json(self) -> bytes:
        """The spec as sorted JSON: every field of the first version, and later ones where they say something."""
        fields = self.model_dump(mode="json")
        non_default = self.model_dump(mode="json", exclude_defaults=True)
        for name in _LATER_NAMES - non_default.keys():
            fields.pop(name)
        for section, names in _LATER_FIELDS.items():
            for name in names:
                if name not in non_default.get(section, {}):
                    fields[section].pop(name)
            if not fields[section]:
                fields.pop(section)
        return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)

    def sha256(self) -> str:
        """Hex SHA-256 of the canonical JSON."""
        return hashlib.sha256(self.canonical_json()).hexdigest()


RESERVED_VARIABLES = frozenset(
    {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"}
    | {"ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES"}
    | {"TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE"}
)

# A spec that says nothing of these has the hash that it had before they existed.
_LATER_NAMES: Final = frozenset({"env_allow"})
_LATER_FIELDS: Final = {
    "gang": ("roles", "min_ranks", "require", "prefer", "group_ranks"),
    "resources": ("device_memory_gib", "device_share"),
    "placement": ("node_labels", "spot"),
    "divergence": ("action", "explode_factor", "checkpoints", "rollbacks"),
}
