"""`trainhouse artifact …`: tokenizers, preprocessing, models and other files, in versions that never change.

Holds: a version is whole in the store before anything is sent; what is read is verified against its hash.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import DataDir, Json, KafkaDir
from trainhouse.events.model.default_project import DEFAULT_PROJECT

if TYPE_CHECKING:
    from trainhouse.checkpointing.artifacts.artifact_store import ArtifactStore
    from trainhouse.client.backend_protocol import Row, Sql
    from trainhouse.events.model.artifact import ArtifactManifest
    from trainhouse.events.model.ids import JobId

Reference = Annotated[
    str,
    typer.Argument(metavar="NAME[@HASH]", help="NAME for its newest version, or NAME@sha256:HASH, 8 digits or more.", show_default=False),
]
Project = Annotated[str, typer.Option(help="Project that it belongs to.")]
SHORT_CHARS = 12


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(
        no_args_is_help=True, help="Store tokenizers, preprocessing, models and files in versions; list, get and verify them."
    )
    group.command("put")(put)
    group.command("list")(list_versions)
    group.command("show")(show)
    group.command("get")(get)
    group.command("verify")(verify)
    group.command("delete")(delete)
    app.add_typer(group, name="artifact")


def put(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the artifact.", show_default=False)],
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A file, or a folder, all files of which belong to it.", show_default=False)],
    kind: Annotated[str, typer.Option(help="tokenizer, preprocessing, model, file, or another word.")] = "file",
    project: Project = DEFAULT_PROJECT,
    job: Annotated[Optional[str], typer.Option(help="Job or run that it is of.")] = None,  # noqa: UP045
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Store a file or a folder as a version. The same files are the same version, and a file is stored once in a project.

    \b
    trainhouse artifact put bpe-32k tokenizer.json --kind tokenizer --project lm
    trainhouse artifact put gpt-export out/ --kind model --job gpt-1k7x3m9qp2f8d

    Interrupted, nothing is there under the name; run it again: it goes on from the files that are stored. Refused where the project would
    have more in the store than it may.
    """
    from trainhouse.cli.artifacts.storage_room import check_room
    from trainhouse.cli.shared import output
    from trainhouse.events.model.artifact import BY_JOB, BY_USER, ArtifactError, parse_reference
    from trainhouse.events.model.ids import JobId

    try:
        if parse_reference(name)[0] != name:
            raise ArtifactError(f"{name!r}: a new version is named by its files; give the name alone")
        job_id = None if job is None else JobId.parse(job)
        if job is not None:
            _of_project(job, project)
    except ValueError as error:
        raise CliError(f"{error}\nnothing was stored", Exit.USAGE) from error
    with _explained("\nnothing was stored"):
        by = BY_USER if job is None else f"{BY_JOB}{job}"
        manifest = _store(project).put(name, _kind(kind), path, by, lambda more_bytes: check_room(_tables(), project, more_bytes))
    _record(manifest.sha256(), manifest, name, project, job_id)
    if json:
        output.json_lines([{"name": name, "project": project, "job_id": job, **_facts(manifest)}])
    else:
        print(f"{name}@sha256:{manifest.sha256()}: {manifest.kind}, {len(manifest.files)} files, {manifest.bytes} bytes")


def list_versions(
    name: Annotated[Optional[str], typer.Argument(metavar="[NAME]", help="Only versions of this name.")] = None,  # noqa: UP045
    kind: Annotated[Optional[str], typer.Option(help="Only this kind.")] = None,  # noqa: UP045
    project: Project = DEFAULT_PROJECT,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """List the versions of a project's artifacts, by name and age.

    \b
    trainhouse artifact list --project lm
    trainhouse artifact list bpe-32k --json
    """
    from trainhouse.cli.shared import output
    from trainhouse.client.quick.quick_manifests import artifact_rows
    from trainhouse.client.quick.quick_reads import by_store_or

    found = by_store_or(lambda store: artifact_rows(store, project, name), lambda: _version_rows(project, name))
    rows = [row for row in found if kind in (None, row["kind"])]
    if json:
        output.json_lines(rows)
        return
    for row in rows:
        print(f"{row['name']}@sha256:{str(row['sha256'])[:SHORT_CHARS]}  {row['kind']}  {row['files']} files  {row['size_bytes']} bytes")


def _version_rows(project: str, name: str | None) -> "list[Row]":
    """Versions by the models of their manifests; remarks on those that are damaged."""
    from trainhouse.checkpointing.errors import DamagedError, NoArtifactError
    from trainhouse.cli.shared import output

    artifacts = _store(project)
    rows: list[Row] = []
    with _explained():
        for version in artifacts.names() if name is None else artifacts.versions(name):
            try:
                facts = _facts(artifacts.manifest(version.sha256))
            except (DamagedError, NoArtifactError) as error:
                output.remark(str(error))
                continue
            rows.append({"name": version.name, "project": project, **facts, "stored_at_s": version.stored_at_s, "named_by": version.by})
    return rows


def show(reference: Reference, project: Project = DEFAULT_PROJECT, json: Json = False, data_dir: DataDir = None) -> None:
    """Show the files of a version, and what keeps it.

    \b
    trainhouse artifact show bpe-32k --project lm
    """
    from trainhouse.cli.shared import output

    with _explained():
        artifacts = _store(project)
        version = artifacts.find(reference)
        manifest, kept = artifacts.manifest(version.sha256), artifacts.kept_by(version.sha256)
    if json:
        files = [file.model_dump(mode="json") for file in manifest.files]
        output.json_lines(
            [{"name": version.name, "project": project, **_facts(manifest), "named_by": [*version.by, *kept], "content": files}]
        )
        return
    print(f"{version}: {manifest.kind}, {manifest.bytes} bytes; kept by {', '.join((*version.by, *kept))}")
    for file in manifest.files:
        print(f"  {file.sha256[:SHORT_CHARS]}  {file.bytes:>12}  {file.path}")


def get(
    reference: Reference,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="New folder for its files.", show_default=False)],
    project: Project = DEFAULT_PROJECT,
    data_dir: DataDir = None,
) -> None:
    """Fetch a version's files into a new folder, each verified; the folder is there whole or not at all.

    \b
    trainhouse artifact get bpe-32k@sha256:1f0c93ab tokenizer/ --project lm
    """
    with _explained():
        artifacts = _store(project)
        version = artifacts.find(reference)
        manifest = artifacts.manifest(version.sha256)
        artifacts.fetch(manifest, folder)
    print(f"{version}: {len(manifest.files)} files, {manifest.bytes} bytes in {folder}")


def verify(reference: Reference, project: Project = DEFAULT_PROJECT, data_dir: DataDir = None) -> None:
    """Read all files of a version and compare them with their hashes. Fails where one is missing or damaged.

    \b
    trainhouse artifact verify bpe-32k --project lm
    """
    from trainhouse.cli.shared import output

    with _explained():
        artifacts = _store(project)
        version = artifacts.find(reference)
        manifest = artifacts.manifest(version.sha256)
        problems = artifacts.verify(manifest)
    for problem in problems:
        output.remark(problem)
    if problems:
        raise CliError(f"{version}: {len(problems)} of {len(manifest.files)} files are damaged or missing", Exit.FAILED)
    print(f"{version}: {len(manifest.files)} files are whole")


def delete(
    reference: Annotated[str, typer.Argument(metavar="NAME@HASH", help="NAME@sha256:HASH, 8 digits or more.", show_default=False)],
    project: Project = DEFAULT_PROJECT,
    data_dir: KafkaDir = None,
) -> None:
    """Take the name from a version. Refused while a dataset, or something else, names it.

    \b
    trainhouse artifact delete bpe-32k@sha256:1f0c93ab --project lm

    Its bytes go with a sweep of the store, a day later at the earliest. Cut off, or with the brokers away, run it again.
    """
    from trainhouse.events.model.artifact import BY_JOB, parse_reference
    from trainhouse.events.model.ids import JobId

    with _explained():
        if not parse_reference(reference)[1]:
            raise CliError(f"{reference}: name one version to delete, as NAME@sha256:HASH", Exit.USAGE)
        artifacts = _store(project)
        version = artifacts.find(reference)
        artifacts.check_free(version)
        manifest = artifacts.readable_manifest(version.sha256)
        for by in version.by:
            job_id = JobId.parse(by.removeprefix(BY_JOB)) if by.startswith(BY_JOB) else None
            _record(version.sha256, manifest, version.name, project, job_id, deleted=True)
        artifacts.forget(version)
    print(f"{version} is deleted; sweeps of the store free its bytes a day from now")


def _store(project: str) -> "ArtifactStore":
    from trainhouse.checkpointing.artifacts.artifact_store import ArtifactStore
    from trainhouse.cli.data.dataset_access import object_store

    return ArtifactStore(object_store(), project)


def _tables() -> "Sql":
    from trainhouse.client import TrainhouseClient

    return TrainhouseClient.from_settings().sql


def _kind(text: str) -> str:
    import re

    from trainhouse.events.model.artifact import KIND_PATTERN

    if not re.fullmatch(KIND_PATTERN, text):
        raise CliError(f"--kind {text[:64]}: give a word of small letters, digits, - and _, such as tokenizer", Exit.USAGE)
    return text


def _of_project(job: str, project: str) -> None:
    """Raises CliError where the store knows the job, and it is of another project."""
    from trainhouse.checkpointing.lease.lease_facts import owner_of
    from trainhouse.cli.data.dataset_access import object_store

    owner = owner_of(object_store(), job)
    if owner is not None and owner.project != project:
        raise CliError(f"job {job} is of project {owner.project}, not {project}; give --project {owner.project}", Exit.USAGE)


def _facts(manifest: "ArtifactManifest") -> dict[str, int | str]:
    return {"sha256": manifest.sha256(), "kind": manifest.kind, "size_bytes": manifest.bytes, "files": len(manifest.files)}


def _record(
    sha256: str, manifest: "ArtifactManifest | None", name: str, project: str, job_id: "JobId | None", deleted: bool = False
) -> None:
    """Sends the event of a version. Raises CliError where the brokers do not take it."""
    import getpass

    from trainhouse.client import NotReachableError
    from trainhouse.client.kafka.operator_events import send_event
    from trainhouse.events.model.artifact import ArtifactStored, facts_of
    from trainhouse.events.runtime.clock import wall_ms
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.events.wire.topics import TRACKING

    about = {"name": name, "project": project, "job_id": job_id, "user": getpass.getuser(), "deleted": deleted, "at_ms": wall_ms()}
    event = ArtifactStored.model_validate(facts_of(sha256, manifest) | about)
    key = event.subject().encode()
    try:
        send_event(
            KafkaSettings(),
            TRACKING,
            event,
            event_id=f"{project}:artifact:{event.at_ms}:{event.sha256}",
            source="trainhouse/client",
            key=key,
            at_ms=event.at_ms,
        )
    except NotReachableError as error:
        raise CliError(
            f"lists do not show the change to {name} yet, as the brokers do not take it: {error}; run it again", Exit.UNAVAILABLE
        ) from error


@contextmanager
def _explained(outcome: str = "") -> Iterator[None]:
    """Errors of artifacts as one sentence, and what came of it."""
    from trainhouse.checkpointing.errors import DamagedError, HeldError, NoArtifactError, ObjectStoreUnavailableError
    from trainhouse.events.model.artifact import ArtifactError

    try:
        yield
    except NoArtifactError as error:
        raise CliError(str(error), Exit.NOT_FOUND) from error
    except DamagedError as error:
        raise CliError(str(error), Exit.FAILED) from error
    except HeldError as error:
        raise CliError(str(error), Exit.REJECTED) from error
    except ObjectStoreUnavailableError as error:
        raise CliError(f"{error}{outcome}", Exit.UNAVAILABLE) from error
    except (ArtifactError, OSError) as error:
        raise CliError(f"{error}{outcome}", Exit.USAGE) from error
