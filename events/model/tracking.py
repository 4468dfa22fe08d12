"""Tracking: runs that Trainhouse did not schedule, and the logged data of any run (parameters, tags, artifacts, environment).

Holds: a tracked run's id is a job id, so that metrics, logs and lineage of both kinds are the same. An event holds the changes; the newest
value of one thing counts, in the order of the job's partition, but a parameter's first value stays. An experiment is known by an id that
follows from its name, so that two writers who create the same one mean the same.
Never: carries points; those are StepMetrics.
"""

import hashlib
import re
from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from trainhouse.events.model.base import Event, Model
from trainhouse.events.model.bounds import ByteCount, Count, InputText, LongText, SmallCount, TimestampMs
from trainhouse.events.model.default_project import DEFAULT_PROJECT
from trainhouse.events.model.ids import AttemptNumber, Epoch, JobId, NodeId
from trainhouse.events.model.job import JobState
from trainhouse.events.model.labels import Label, Sha256

DEFAULT_EXPERIMENT: Final = "Default"
DEFAULT_EXPERIMENT_ID: Final = "0"
MAX_NAMED: Final = 1000
MODEL_ID: Final = re.compile("m-[0-9a-f]{32}")
MAX_TRACE_BYTES: Final = 64 * 2**20
TRACE_PATH: Final = "^profiles/([0-9a-zA-Z_-]{1,128})/rank-([0-9]{1,10})[.]pt[.]trace[.]json[.]gz$"  # of trace_path
Key = Annotated[str, StringConstraints(min_length=1, max_length=250, pattern=r"^[^\x00-\x1f]+$")]
Text = Annotated[str, StringConstraints(max_length=20_000)]
ExperimentName = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f]+$")]
ExperimentId = Annotated[str, StringConstraints(max_length=18, pattern=r"^[0-9]{1,18}$")]


def experiment_id_of(name: str) -> str:
    """The id of the experiment of this name: up to 18 digits of its SHA-256; the default one's is 0."""
    if name == DEFAULT_EXPERIMENT:
        return DEFAULT_EXPERIMENT_ID
    return _digits_of(name)


def experiment_id_of_project(project: str) -> str:
    """The id of the experiment that a project's scheduled jobs are in, as the view `experiment_runs` has it."""
    return DEFAULT_EXPERIMENT_ID if project == DEFAULT_PROJECT else _digits_of(project)


def _digits_of(name: str) -> str:
    return str(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % 10**18)


def project_of(experiment: str) -> str:
    """Project of an experiment: `vision/resnet` and `vision` belong to the project `vision`, the default one to `default`."""
    if experiment == DEFAULT_EXPERIMENT:
        return DEFAULT_PROJECT
    return experiment.strip("/").split("/", 1)[0][:128] or DEFAULT_PROJECT


def is_model_id(text: str) -> bool:
    """Whether this is the id of a logged model; no run and no job of a client's has such an id."""
    return MODEL_ID.fullmatch(text) is not None


def artifact_key(job_id: str, sha256: str) -> str:
    """Key in the object store of an artifact's content."""
    return f"artifacts/{job_id}/{sha256}"


def trace_path(request_id: str, rank: int) -> str:
    """Path of a rank's trace among its job's artifacts."""
    return f"profiles/{request_id}/{trace_file(rank)}"


def trace_file(rank: int) -> str:
    """Name of a rank's trace, as torch's own tools name one."""
    return f"rank-{rank}.pt.trace.json.gz"


class ExperimentChanged(Event, type="trainhouse.tracking.experiment-changed.v1"):
    """An experiment was made, or something about it is new. `deleted` None: as it was."""

    experiment_id: ExperimentId = Field(description="id of the experiment")
    name: ExperimentName = Field(description="name of the experiment")
    project: Label
    user: str = Field("", max_length=128)
    created: bool = Field(False, description="whether it is new")
    deleted: bool | None = Field(None, description="whether it is deleted; none: stays")
    tags: dict[Key, Text] = Field({}, max_length=MAX_NAMED, description="tags that were set")
    deleted_tags: tuple[Key, ...] = Field((), max_length=MAX_NAMED, description="tags that were removed")
    at_ms: TimestampMs

    def subject(self) -> str:
        return str(self.experiment_id)


class TrackedRunBegun(Event, type="trainhouse.tracking.run-begun.v1"):
    """Start of a run that Trainhouse did not schedule. `client` is the program that logs it: mlflow, tensorboard …"""

    job_id: JobId
    experiment_id: ExperimentId = Field(description="id of its experiment")
    experiment: ExperimentName = Field(description="name of its experiment")
    project: Label
    name: str = Field("", max_length=500, description="name of the run")
    user: str = Field("", max_length=256)
    client: Label = Field("mlflow", description="program that logs, such as mlflow")
    state: JobState = Field(JobState.RUNNING, description="state of the run")
    started_at_ms: TimestampMs = Field(description="begin of the run, in milliseconds since 1970")


class TrackedRunChanged(Event, type="trainhouse.tracking.run-changed.v1"):
    """Changes of a run: its state and end, its name, whether it is deleted. None: as it was."""

    job_id: JobId
    state: JobState | None = Field(None, description="state from here on; none: stays")
    ended_at_ms: TimestampMs | None = Field(None, description="end of the run, in milliseconds since 1970")
    name: str | None = Field(None, max_length=500, description="name from here on; none: stays")
    deleted: bool | None = Field(None, description="whether it is deleted; none: stays")
    at_ms: TimestampMs


class ParametersLogged(Event, type="trainhouse.tracking.parameters-logged.v1"):
    """Parameters of a run, as text. The first value of each stays."""

    job_id: JobId
    parameters: dict[Key, Text] = Field(max_length=MAX_NAMED, description="values by name")
    at_ms: TimestampMs


class TagsChanged(Event, type="trainhouse.tracking.tags-changed.v1"):
    """Tags of a run that were set, and those that were removed."""

    job_id: JobId
    tags: dict[Key, Text] = Field({}, max_length=MAX_NAMED, description="tags that were set")
    deleted: tuple[Key, ...] = Field((), max_length=MAX_NAMED, description="tags that were removed")
    at_ms: TimestampMs


class ArtifactLogged(Event, type="trainhouse.tracking.artifact-logged.v1"):
    """A file of a run is stored: its bytes lie under `uri`, and a newer one of the same path takes its place."""

    job_id: JobId
    path: str = Field(min_length=1, max_length=1024, description="path of the file within the run")
    uri: str = Field(min_length=1, max_length=2048, description="place of the file in the object store")
    sha256: Sha256 = Field(description="SHA-256 of the file, in hexadecimal")
    size_bytes: ByteCount = Field(description="size of the file, in bytes")
    deleted: bool = Field(False, description="whether it was removed")
    at_ms: TimestampMs


class TraceRecorded(Event, type="trainhouse.tracking.trace-recorded.v1"):
    """A profiler's trace of one rank's steps is stored, as an artifact of its job."""

    job_id: JobId
    attempt: AttemptNumber
    epoch: Epoch
    rank: SmallCount
    node_id: NodeId | None = None
    path: str = Field(max_length=1024, pattern=TRACE_PATH, description="path of the trace among the job's artifacts")
    uri: str = Field(min_length=1, max_length=2048, description="place of the trace in the object store")
    sha256: Sha256 = Field(description="SHA-256 of the trace, in hexadecimal")
    size_bytes: int = Field(ge=0, le=MAX_TRACE_BYTES, description="size of the trace, in bytes")
    first_step: SmallCount = Field(description="number of the first step in it")
    steps: SmallCount = Field(description="number of steps in it")
    at_ms: TimestampMs

    def is_of_rank(self) -> bool:
        """Whether path and place are its rank's and its job's. A rank names them, and might name another's."""
        named = re.fullmatch(TRACE_PATH, self.path)
        return named is not None and named[2] == str(self.rank) and self.uri.endswith(f"/artifacts/{self.job_id}/{self.sha256}")


class DatasetUsed(Model):
    """One dataset that a run read, as its client describes it."""

    name: str = Field(min_length=1, max_length=500, description="name of the data set")
    digest: str = Field(min_length=1, max_length=64, description="hash of its content")
    source_type: str = Field("", max_length=256, description="kind of its source")
    source: str = Field("", max_length=65_535, description="where it comes from")
    context: str = Field("", max_length=500, description="use of it, such as training")
    schema_text: str = Field("", max_length=65_535, description="its columns, as the client describes them")
    profile: str = Field("", max_length=65_535, description="its statistics, as the client describes them")


class InputsLogged(Event, type="trainhouse.tracking.inputs-logged.v1"):
    """Datasets that a run read."""

    job_id: JobId
    datasets: tuple[DatasetUsed, ...] = Field(max_length=MAX_NAMED, description="data sets that the run used")
    at_ms: TimestampMs


class LoggedModelChanged(Event, type="trainhouse.tracking.logged-model-changed.v1"):
    """A client logged a model, or something about it is new: its parameters, tags and files have its id in place of a run's.

    `status`, `deleted`: None where they are as they were.
    """

    model_id: JobId = Field(description="id of the logged model, m- and 32 hexadecimal digits")
    experiment_id: ExperimentId = Field(description="id of its experiment")
    experiment: ExperimentName = Field(description="name of its experiment")
    project: Label
    name: str = Field("", max_length=500, description="name of the model; several may have one")
    user: str = Field("", max_length=256, description="person who logged it")
    model_type: str = Field("", max_length=500, description="kind of the model, as its client says")
    source_run_id: JobId | None = Field(None, description="run or job that made it; none: not known")
    created: bool = Field(False, description="whether it is new")
    status: Literal["PENDING", "READY", "FAILED"] | None = Field(None, description="status of its upload; none: stays")
    deleted: bool | None = Field(None, description="whether it is deleted; none: stays")
    at_ms: TimestampMs

    def subject(self) -> str:
        return str(self.model_id)


class ModelLink(Model):
    """Logged model that a run made, or read."""

    model_id: JobId = Field(description="id of the logged model")
    role: Literal["input", "output"] = Field(description="whether the run read it, or made it")
    step: Count = Field(0, description="step at which it was made")


class ModelsLinked(Event, type="trainhouse.tracking.models-linked.v1"):
    """Logged models that a run made, or read."""

    job_id: JobId
    models: tuple[ModelLink, ...] = Field(max_length=MAX_NAMED, description="logged models")
    at_ms: TimestampMs


class EnvironmentCaptured(Event, type="trainhouse.tracking.environment-captured.v1"):
    """Environment of one attempt, reported once by its rank 0. `packages`: versions by name. `environment_id`: hash of packages and Python.

    `git_diff`: what was not committed, cut at a bound; `git_diff_sha256` is of the whole; or `git_diff_uri` is where it lies.
    """

    job_id: JobId
    attempt: AttemptNumber
    epoch: Epoch
    rank: SmallCount
    node_id: NodeId | None = None
    host: str = Field("", max_length=256, description="name of the machine")
    command: tuple[InputText, ...] = Field((), max_length=1024, description="program and arguments")
    folder: str = Field("", max_length=4096, description="working folder")
    git_commit: str = Field("", max_length=64, description="commit that was checked out")
    git_branch: str = Field("", max_length=256, description="branch that was checked out")
    git_remote: str = Field("", max_length=2048, description="address of the remote, without credentials")
    git_dirty: bool = Field(False, description="whether the folder differed from its commit")
    git_diff: str = Field("", max_length=65_536, description="difference to that commit, as far as it fits")
    git_diff_sha256: str = Field("", max_length=64, description="SHA-256 of the whole difference, in hexadecimal")
    git_diff_uri: str = Field("", max_length=2048, description="place of the whole difference in the object store")
    python_version: str = Field("", max_length=64, description="version of Python")
    torch_version: str = Field("", max_length=64, description="version of torch")
    cuda_version: str = Field("", max_length=64, description="version of CUDA that torch was built for")
    platform: str = Field("", max_length=256, description="operating system and architecture")
    devices: tuple[InputText, ...] = Field((), max_length=256, description="names of the accelerators")
    cpus: SmallCount = Field(0, description="cores of the machine")
    memory_bytes: ByteCount = Field(0, description="main memory of the machine, in bytes")
    packages: dict[Key, LongText] = Field({}, max_length=5000, description="versions of installed packages, by name")
    environment_id: str = Field("", max_length=64, description="hash of all that; equal for equal environments")
    at_ms: TimestampMs
