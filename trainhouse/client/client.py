"""The client that services, notebooks and the command line use: submit, cancel, follow, ask.

Holds: the same calls mean the same over Kafka and over the gateway; a method that talks to a server says that it blocks.
Never: keeps state about jobs of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from trainhouse.client import library_logs  # noqa: F401
from trainhouse.client.backend_protocol import Happening, LineReader, Retuned, Row, Sql, Submitted, WayIn
from trainhouse.client.code_archive import MAX_CODE_BYTES, PackedCode, pack
from trainhouse.client.errors import InvalidSettingsError, InvalidSpecError, NeedsKafkaError
from trainhouse.client.filters import JobFilter
from trainhouse.client.job import Job, ended
from trainhouse.client.names import default_name
from trainhouse.events import CodeArchive, JobId, JobSpec, JobStatus, ReviewAction
from trainhouse.events.model.explanation import JobExplained
from trainhouse.events.security.sensitive import refusal
from trainhouse.events.wire.validation_messages import explain_validation

if TYPE_CHECKING:
    import pyarrow

    from trainhouse.client.kafka.backend import ByKafka
    from trainhouse.client.kafka.pool_requests import Fleet
    from trainhouse.client.models.model_requests import ModelRequests
    from trainhouse.events.settings import KafkaSettings


def spec_of(fields: dict[str, Any]) -> JobSpec:
    """A spec from plain data. Raises InvalidSpecError with a sentence for each problem."""
    try:
        return JobSpec.model_validate(fields)
    except ValidationError as error:
        raise InvalidSpecError(f"the spec is not valid: {explain_validation(error, JobSpec)}") from error


def without_secrets(spec: JobSpec) -> JobSpec:
    """The spec as it is, if its `env` has nothing that looks like a secret; it is not even sent. Raises InvalidSpecError."""
    refused = refusal(spec)
    if refused:
        raise InvalidSpecError(refused)
    return spec


@dataclass
class TrainhouseClient:
    """One user's access to one Trainhouse, by the way that leads there."""

    way: WayIn

    @classmethod
    def from_settings(cls) -> "TrainhouseClient":
        """Reads environment and settings file. Does not connect. Raises InvalidSettingsError."""
        from trainhouse.client.backend_choice import way_of

        return cls(way_of())

    @property
    def sql(self) -> Sql:
        """Any question, read-only."""
        return self.way.sql

    @property
    def kafka(self) -> "KafkaSettings":
        """The brokers' address. Raises NeedsKafkaError over the gateway."""
        return self._brokers().kafka

    def fleet(self) -> "Fleet":
        """Requests about pools, policies and nodes, and their outcome. Raises NeedsKafkaError over the gateway."""
        return self._brokers().fleet()

    def models(self) -> "ModelRequests":
        """Requests to the registry of models, and what it decided. Raises NeedsKafkaError over the gateway."""
        return self._brokers().models()

    def upload(self, code: Path | PackedCode, limit_bytes: int = MAX_CODE_BYTES) -> CodeArchive:
        """Packs a folder, unless it is packed, and stores it unless the same content is there. Blocks on disk and servers."""
        return self.way.put_code(pack(code, limit_bytes) if isinstance(code, Path) else code)

    def submit(self, spec: JobSpec | None = None, *, job_id: str | None = None, event_id: str | None = None, **fields: Any) -> "Job":
        """Submits a spec, or one made of its fields (and `command=[...]`; `code` may be a folder), and waits until it is durable.

        A given `job_id` makes a repeat harmless: same id, same spec, same job. Raises InvalidSpecError, NotReachableError.
        """
        from trainhouse.client.job import Job

        whole = self.spec_from(spec, fields)
        return Job(self, self.way.submit(whole, JobId.parse(job_id) if job_id else None, event_id))

    def rerun(self, job_id: str) -> "Job":
        """Submits a job again: same code, environment, data, seed and gang; a new id. Blocks. Raises UnknownJobError, InvalidSpecError."""
        from trainhouse.client.job import Job

        return Job(self, self.way.rerun(JobId.parse(job_id)))

    def job(self, job_id: str) -> "Job":
        """A handle of a job that was submitted before. Does not connect."""
        from trainhouse.client.job import Job

        return Job(self, Submitted(JobId.parse(job_id), "", None))

    def cancel(self, job_id: str, reason: str = "cancelled by its user") -> str:
        """Asks that a job end. Blocks until that is durable; gives the request's event id."""
        return self.way.cancel(JobId.parse(job_id), reason)

    def change(self, job_id: str, *, priority: int | None = None, timeout_s: float = 30.0, **limits: Any) -> Retuned | None:
        """Changes priority or limits (`restarts`, `run_time_s`, `grace_s`). Blocks until they count; None: all was so.

        Raises ChangeRefusedError, NoReplyError.
        """
        return self.way.change(JobId.parse(job_id), priority, limits, timeout_s)

    def change_tags(self, job_id: str, tags: Mapping[str, str] | None = None, remove: Sequence[str] = ()) -> None:
        """Sets and removes tags of a job, as MLflow's client does: a tag set there is read here. Blocks until that is durable.

        The tag `mlflow.note.content` is the job's note. Raises UnknownJobError.
        """
        self.way.change_tags(JobId.parse(job_id), tags or {}, remove)

    def tags(self, job_id: str) -> dict[str, str]:
        """Tags of a job by their keys, its note among them. Blocks. Raises UnknownJobError."""
        return self.way.job_tags(job_id)

    def review(
        self, job_id: str, action: "ReviewAction | str", *, reason: str = "", max_bad: float | None = None, timeout_s: float = 30.0
    ) -> None:
        """Sends a job to review (`send`), or ends its review (`go_on`, `cancel`). Blocks until that counts.

        `max_bad`: share of bad samples that a job which goes on allows from then on.

        Raises ChangeRefusedError, NoReplyError.
        """
        self.way.review(JobId.parse(job_id), ReviewAction(action), reason, max_bad, timeout_s)

    def watch(self, job: "Job | Submitted | str", *, timeout_s: float | None = None) -> Iterator[JobStatus | None]:
        """Yields each new status until a final one, and None about twice a second between. Ends early after `timeout_s`."""
        return self.way.watch(submitted_of(job), timeout_s)

    def first_statuses(self, jobs: "Sequence[Job | Submitted | str]", timeout_s: float) -> dict[str, JobStatus | None]:
        """The first status of each job by its id, all asked for together. Blocks for about `timeout_s` at most.

        None: there was none in time. A job that is left out was not asked for: time was up.
        """
        return self.way.first_statuses([submitted_of(job) for job in jobs], timeout_s)

    def watch_all(self) -> Iterator[JobStatus | None]:
        """New statuses of all jobs from now on, without end, and None about twice a second between. Blocks."""
        return self.way.watch_all()

    def wait(self, job: "Job | Submitted | str", timeout_s: float | None = None) -> JobStatus:
        """Blocks until the job is final. Raises TimeoutError, naming the last state."""
        last: JobStatus | None = None
        for status in self.watch(job, timeout_s=timeout_s):
            last = status or last
        return ended(submitted_of(job).job_id, last, timeout_s)

    def status(self, job_id: str) -> JobStatus:
        """The current status. Blocks. Raises UnknownJobError."""
        return self.way.status(job_id)

    def statuses(self) -> dict[str, JobStatus]:
        """The newest status of every job, by job id. Blocks."""
        return self.way.statuses()

    def jobs(self, keep: JobFilter | None = None, limit: int = 100) -> list[Row]:
        """Rows of jobs, newest first. Blocks."""
        return self.way.jobs(keep or JobFilter(), limit)

    def spec(self, job_id: str) -> JobSpec | None:
        """Returns the submitted spec of a job. Blocks."""
        return self.way.spec(job_id)

    def events(self, job_id: str, *, kind: str | None = None, since_ms: int | None = None, until_ms: int | None = None) -> list[Happening]:
        """A job's story, oldest first. Blocks."""
        return self.way.events(job_id, kind, since_ms, until_ms)

    def lines(
        self, job_id: str, *, rank: int | None = None, stream: str | None = None, attempt: int | None = None, tail: int | None = None
    ) -> LineReader:
        """A reader of log lines. Blocks with `tail`."""
        return self.way.lines(job_id, rank, stream, attempt, tail)

    def checkpoints(self, job_id: str) -> list[Row]:
        """Checkpoints of a job, oldest first. Blocks."""
        return self.way.checkpoints(job_id)

    def checkpoint_tags(self, job_id: str) -> list[Row]:
        """Names that keep checkpoints of a job, with their commits: tags, and `used-by:JOB`. Blocks; raises NotReachableError."""
        return self.way.checkpoint_tags(job_id)

    def artifacts(self, job_id: str) -> list[Row]:
        """Versions of artifacts that a job stored or used: action, name, sha256, kind, project, size_bytes, files, at_ms. Blocks."""
        return self.way.artifacts(job_id)

    def metrics(self, job_id: str, names: Sequence[str] = ()) -> "pyarrow.Table":
        """Every point of these metrics, or of all: metric, step, rank, attempt, epoch, time, value. Blocks."""
        return self.way.metrics(job_id, names)

    def last_metrics(self, job_id: str, names: Sequence[str] = ()) -> list[Row]:
        """The newest value of each of these metrics, or of all: metric, step, value. Blocks."""
        return self.way.last_metrics(job_id, names)

    def curve(self, job_id: str, metric: str, points: int = 200) -> list[Row]:
        """A metric of rank 0 in buckets of steps that keep its extremes: step, least, greatest, mean. Blocks."""
        return self.way.curve(job_id, metric, points)

    def why(self, job_id: str, at_ms: int | None = None) -> JobExplained | None:
        """Returns the reason that a job waits, or waited at `at_ms`; None if it does not wait. Blocks. Raises UnknownJobError."""
        return self.way.why(job_id, at_ms)

    def spec_from(self, spec: JobSpec | None, fields: dict[str, Any]) -> JobSpec:
        """A whole spec of a spec and fields on top. Blocks where `code` is a folder, which is sent. Raises InvalidSpecError."""
        if spec is not None and not fields:
            return without_secrets(spec)
        asked = ({} if spec is None else spec.model_dump(exclude_unset=True)) | fields
        if "command" in asked:
            asked["runtime"] = {**asked.get("runtime", {}), "command": asked.pop("command")}
        if isinstance(asked.get("code"), str | Path):
            asked["code"] = self.upload(Path(asked["code"]))
        asked.setdefault("user", self.way.user)
        runtime = asked.get("runtime")
        asked.setdefault("name", default_name(runtime.get("command") if isinstance(runtime, dict) else ()))
        return without_secrets(spec_of(asked))

    def _brokers(self) -> "ByKafka":
        from trainhouse.client.kafka.backend import ByKafka

        if not isinstance(self.way, ByKafka):
            raise NeedsKafkaError(f"this needs Kafka, and only {self.way.place} is known: set TRAINHOUSE_KAFKA_BOOTSTRAP as well")
        return self.way


def submitted_of(job: "Job | Submitted | str") -> Submitted:
    """Returns the submission to follow, for anything that names a job."""
    if isinstance(job, str):
        return Submitted(JobId.parse(job), "", None)
    return job if isinstance(job, Submitted) else job.submitted


def connect(
    *, gateway: str | None = None, token: str | None = None, kafka: str | None = None, config: str | Path | None = None
) -> "TrainhouseClient":
    """A client by the way that is named (`gateway=URL`, `kafka=BOOTSTRAP`, or a settings file), else by environment and settings file.

    The choice without arguments: the gateway of TRAINHOUSE_GATEWAY_URL, if no Kafka address is set; else Kafka. Does not connect.
    A `config` counts for the whole process. Raises InvalidSettingsError.
    """
    import os

    from trainhouse.client.backend_choice import way_of
    from trainhouse.events.settings import CONFIG_VARIABLE

    if gateway is not None and kafka is not None:
        raise InvalidSettingsError("name one way: gateway=URL, or kafka=BOOTSTRAP")
    if config is not None:
        if not Path(config).is_file():
            raise InvalidSettingsError(f"{config} is no settings file")
        os.environ[CONFIG_VARIABLE] = str(config)
    return TrainhouseClient(way_of(gateway, token, kafka))
