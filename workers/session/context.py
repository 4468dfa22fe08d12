"""Context of this rank, from the launcher's environment and files; empty when the script runs on its own.

Holds: read once at the start of the session; `from_env` takes the environment as an argument.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from trainhouse.events import JobSpec
from trainhouse.events.model.base import Model
from trainhouse.events.model.default_project import DEFAULT_PROJECT
from trainhouse.events.model.parallelism import Parallelism
from trainhouse.events.model.skipped_data import SkippedData, load_skipped
from trainhouse.events.model.spec import DEFAULT_MAX_BAD, CheckpointPolicy, CodeArchive, DataReference, Divergence, Scalar
from trainhouse.events.model.training import Training
from trainhouse.events.wire.validation_messages import explain_validation
from trainhouse.workers.launcher import ports
from trainhouse.workers.launcher.ports import AttemptPaths, RankPaths
from trainhouse.workers.session.errors import InvalidUseError
from trainhouse.workers.spool import DEFAULT_LIMIT_BYTES

M = TypeVar("M", bound=Model)
LOCAL_RUN_VARIABLE = "TRAINHOUSE_RUN_DIR"


@dataclass(frozen=True)
class Context:
    """One rank's place. `job_id` is None outside of Trainhouse; then nothing is saved and metrics go to `spool`, if anywhere.

    `alike`: all ranks do the same work, there are no roles. `restore_at_most`: begin from no newer commit than this one. `rank_folders`:
    by rank; those of ranks on other machines are not there. `parallelism`, `training`: as the spec says, None where it says nothing.
    `accepted_bad`: bad samples with which a person let the job go on. `skip_data`: what loaders leave out since the job's loss diverged.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    job_id: str | None = None
    attempt: int = 0
    epoch: int = 0
    spec_sha256: str = ""
    seed: int = 0
    hyperparameters: Mapping[str, Scalar] = field(default_factory=dict)
    policy: CheckpointPolicy = field(default_factory=CheckpointPolicy)
    divergence: Divergence | None = None
    alike: bool = True
    resume_from: str | None = None
    data: DataReference | None = None
    outputs: tuple[str, ...] = ()
    project: str = DEFAULT_PROJECT
    code: CodeArchive | None = None
    restore_at_most: int | None = None
    accepted_bad: int = 0
    skip_data: tuple[SkippedData, ...] = ()
    backend: str | None = None
    parallelism: Parallelism | None = None
    training: Training | None = None
    request: Path | None = None
    rank_folders: tuple[Path, ...] = ()
    secrets_dir: Path | None = None
    spool: Path | None = None
    spool_limit_bytes: int = DEFAULT_LIMIT_BYTES
    step_figures: bool = True

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> "Context":
        """Read torchrun's variables, ours, and the attempt's spec.json. Without ours, TRAINHOUSE_RUN_DIR may name a folder for metrics."""
        rank = int(environ.get("RANK", "0"))
        alone = cls(
            rank=rank,
            world_size=int(environ.get("WORLD_SIZE", "1")),
            local_rank=int(environ.get("LOCAL_RANK", "0")),
            backend=environ.get(ports.BACKEND),
            parallelism=_setting(Parallelism, environ, ports.PARALLELISM),
            training=_setting(Training, environ, ports.TRAINING),
            spool_limit_bytes=int(environ.get(ports.SPOOL_LIMIT_BYTES, DEFAULT_LIMIT_BYTES)),
            data=_dataset(environ),
            project=environ.get(ports.PROJECT, DEFAULT_PROJECT),
            step_figures=environ.get("TRAINHOUSE_STEP_FIGURES", "1") not in ("0", "false", "no"),
        )
        if ports.JOB_ID not in environ:
            return replace(alone, spool=_local_spool(environ, rank))
        attempt = AttemptPaths(Path(environ[ports.ATTEMPT_DIR]))
        spec = JobSpec.model_validate(json.loads(attempt.spec.read_bytes()))
        return replace(
            alone,
            job_id=environ[ports.JOB_ID],
            attempt=int(environ[ports.ATTEMPT]),
            epoch=int(environ[ports.EPOCH]),
            spec_sha256=environ[ports.SPEC_SHA256],
            seed=spec.seed,
            hyperparameters=spec.hyperparameters,
            policy=spec.checkpoint,
            divergence=spec.divergence,
            parallelism=spec.parallelism,
            training=spec.training,
            alike=len(spec.gang.roles) < 2,
            resume_from=spec.resume_from,
            data=spec.data,
            outputs=spec.outputs,
            project=spec.project,
            code=spec.code,
            restore_at_most=_number(environ.get(ports.RESTORE_AT_MOST)),
            accepted_bad=_number(environ.get(ports.ACCEPTED_BAD)) or 0,
            skip_data=load_skipped(environ.get(ports.SKIP_DATA)),
            request=attempt.request,
            rank_folders=tuple(attempt.rank(r).folder for r in range(alone.world_size)),
            secrets_dir=Path(environ[ports.SECRETS_DIR]) if ports.SECRETS_DIR in environ else None,
            spool=RankPaths(Path(environ[ports.RANK_DIR])).spool,
        )

    def max_bad_of(self, asked: float | None) -> float:
        """Share of the places of each pass that may stay empty. `asked`: by the program, which the spec outweighs: a review with
        `--max-bad` replaces the spec's, and no program may undo that."""
        if self.data is not None and self.data.max_bad is not None:
            return self.data.max_bad
        return DEFAULT_MAX_BAD if asked is None else asked

    @property
    def layout(self) -> Parallelism:
        """The layout on this number of ranks; without one in the spec, each rank is a replica. Raises InvalidUseError."""
        asked = self.parallelism or Parallelism()
        try:
            return asked.at(self.world_size)
        except ValueError as error:
            raise InvalidUseError(f"parallelism: {asked.sizes_text}, but {error}; start as many ranks as the layout has") from error

    @property
    def essentials(self) -> Training:
        """Settings by which steps are computed, at this number of ranks. Raises InvalidUseError."""
        try:
            return (self.training or Training()).at(self.layout.data_size)
        except ValueError as error:
            raise InvalidUseError(f"training: {error}; start a number of ranks that keeps it") from error


def _setting(kind: type[M], environ: Mapping[str, str], name: str) -> M | None:
    """A part of the spec that the launcher or, outside of Trainhouse, a user set as JSON. Raises InvalidUseError."""
    text = environ.get(name)
    try:
        return kind.model_validate_json(text) if text else None
    except ValidationError as error:
        raise InvalidUseError(f"{name}={text!r}: {explain_validation(error, kind)}") from error


def _dataset(environ: Mapping[str, str]) -> DataReference | None:
    """The version of a dataset that a user named for a program outside of Trainhouse. Raises InvalidUseError."""
    name = environ.get(ports.DATASET)
    try:
        return DataReference(dataset=name) if name else None
    except ValidationError as error:
        raise InvalidUseError(f"{ports.DATASET}={name!r}: {explain_validation(error, DataReference)}") from error


def _number(text: str | None) -> int | None:
    return int(text) if text else None


def _local_spool(environ: Mapping[str, str], rank: int) -> Path | None:
    folder = environ.get(LOCAL_RUN_VARIABLE)
    if not folder:
        return None
    path = RankPaths(Path(folder) / f"rank-{rank}").spool
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
