"""Content of a version as `trainhouse models register` makes it: from a job's checkpoint, its spec and local files."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainhouse.cli.shared.exit_codes import CliError, Exit

if TYPE_CHECKING:
    from trainhouse.events import JobSpec


@dataclass(frozen=True)
class Registration:
    """Parts that are named on the command line. `files`: PATH=FILE each."""

    files: tuple[str, ...]
    input_schema: Path | None
    output_schema: Path | None
    framework: str | None
    licence: str | None
    notes: str


def prepared(project: str, job: str, parts: Registration) -> tuple[str, dict[str, Any]]:
    """Stores the content; returns its hash, and what a registration says of the job. Blocks. Raises CliError."""
    from trainhouse.checkpointing.errors import CheckpointError
    from trainhouse.checkpointing.models.version_content import VersionParts, prepare_version
    from trainhouse.cli.data.dataset_access import object_store
    from trainhouse.client import TrainhouseClient
    from trainhouse.events.model.artifact import ArtifactError
    from trainhouse.events.model.model_content import ModelContentError
    from trainhouse.events.model.resume_ref import parse_resume_from

    try:
        which = parse_resume_from(job)
    except ValueError as error:
        raise CliError(f"{error}\nnothing was registered", Exit.USAGE) from error
    spec = TrainhouseClient.from_settings().way.spec(str(which.job_id))
    datasets, splits = _data_of(spec)
    given = VersionParts(
        files=_files(parts.files),
        input_schema=_schema(parts.input_schema),
        output_schema=_schema(parts.output_schema),
        framework=parts.framework,
        code=spec.code.sha256 if spec is not None and spec.code is not None else None,
        datasets=datasets,
        licence=parts.licence,
        notes=parts.notes,
    )
    try:
        content = prepare_version(object_store(), project, which, given)
    except (CheckpointError, ModelContentError, ArtifactError, OSError) as error:
        raise CliError(f"{error}\nnothing was registered", Exit.REJECTED) from error
    return content.sha256, {"job_id": str(which.job_id), "commit": content.content.commit, "splits": splits}


def _data_of(spec: "JobSpec | None") -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Versions of datasets that a spec names, by hash, and their splits."""
    from trainhouse.cli.data.dataset_access import dataset_versions

    if spec is None or spec.data is None or spec.data.dataset is None:
        return (), ()
    found = dataset_versions().find(spec.data.dataset)
    name = str(found.version.name) if found is not None else spec.data.dataset
    return (name,), (f"{name}/{spec.data.split}",) if spec.data.split is not None else ()


def _files(given: tuple[str, ...]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for text in given:
        path, equals, file = text.partition("=")
        if not equals or not path or not Path(file).is_file():
            raise CliError(f"--file {text}: write PATH=FILE, FILE being there; PATH is its place in the version", Exit.USAGE)
        found[path] = Path(file)
    return found


def _schema(path: Path | None) -> Any:
    import orjson

    if path is None:
        return None
    try:
        found = orjson.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CliError(f"{path} cannot be read as JSON: {error}", Exit.USAGE) from error
    if not isinstance(found, dict):
        raise CliError(f"{path}: a schema is a JSON object", Exit.USAGE)
    return found
