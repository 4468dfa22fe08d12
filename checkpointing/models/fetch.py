"""Fetching of a version into a folder, from the object store alone: weights, the files beside them, and their provenance.

Holds: the folder appears under its name only when it is complete, and all that is in it was compared with its hash: weights by their
chunks, so that they are hashed once. What a killed fetch left
lies beside it, and the next one of the same version goes on from the chunks that are sound in it. Memory is bounded
(`file_writer.MEMORY_BYTES`). A folder that has the version already is left as it is.
Never: asks anything but the store.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from trainhouse.checkpointing.artifacts.artifact_store import hashed_content
from trainhouse.checkpointing.chain.chunks import THREADS, ChunkStore, in_threads
from trainhouse.checkpointing.chain.manifest import Manifest
from trainhouse.checkpointing.chain.model_pins import pinned_manifest
from trainhouse.checkpointing.errors import ExportError, InvalidStateError
from trainhouse.checkpointing.exchange.contents import Contents, StoredTensor
from trainhouse.checkpointing.exchange.export import PROVENANCE, SHARD_BYTES, Format, Plan, plan_of, provenance
from trainhouse.checkpointing.exchange.file_check import differences
from trainhouse.checkpointing.exchange.file_plan import FilePlan
from trainhouse.checkpointing.exchange.file_writer import FileWriter, WrittenFile
from trainhouse.checkpointing.exchange.new_folder import disk_errors, free_place, partial_folder, partial_of, sync_folder
from trainhouse.checkpointing.models.named_version import NamedVersion
from trainhouse.checkpointing.models.version_content import read_content
from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.events.model.artifact import ArtifactFile
from trainhouse.events.model.artifact_keys import object_key
from trainhouse.events.model.model_content import ModelContent

FACT: Final = "trainhouse."
"""Beginning of the names of facts in a safetensors file's metadata."""
_LINE: Final = re.compile(r"([0-9]+) ([0-9a-f]{64}) (.+)")


@dataclass(frozen=True)
class VersionFiles:
    """Files of a version in one format: plans of the weights, files beside them, and what the weights' format leaves out. `manifest`: the
    checkpoint's; None where the files are all of it."""

    content: ModelContent
    manifest: Manifest | None
    kind: Format
    plans: tuple[FilePlan, ...]
    files: tuple[ArtifactFile, ...]
    left_out: tuple[str, ...]
    facts: Mapping[str, str]

    @property
    def written(self) -> tuple[WrittenFile, ...]:
        """The files as they are in a folder."""
        weights = tuple(WrittenFile(plan.name, plan.size_bytes, "") for plan in self.plans)
        return weights + tuple(WrittenFile(file.path, file.bytes, file.sha256) for file in self.files)

    def differences(self, objects: ObjectStore, path: Path, plan: FilePlan) -> list[str]:
        """Differences of a file of weights from its plan. Reads it; blocks."""
        if self.manifest is None:
            return []
        return differences(path, plan, self.manifest, ChunkStore(objects, self.manifest.job_id))

    @property
    def identity(self) -> str:
        """Hash of all that decides on the bytes of the files."""
        found = hashlib.sha256()
        for plan in self.plans:
            found.update(f"{plan.name} {plan.size_bytes}\n".encode())
            for start, content in plan.literals:
                found.update(f"{start} {hashlib.sha256(content).hexdigest()}\n".encode())
        found.update(orjson.dumps([self.content.sha256(), self.kind.value, sorted(self.facts.items())]))
        return found.hexdigest()


@dataclass(frozen=True)
class Fetched:
    """A version in a folder. `was_there`: it was complete before."""

    where: str
    files: tuple[WrittenFile, ...]
    left_out: tuple[str, ...]
    was_there: bool = False

    @property
    def size_bytes(self) -> int:
        """Bytes of all files but the provenance."""
        return sum(file.size_bytes for file in self.files)


def files_of_version(objects: ObjectStore, version: NamedVersion, kind: Format, shard_bytes: int = SHARD_BYTES) -> VersionFiles:
    """Plans the files of a version. Blocks. Raises DamagedError, InvalidStateError for a format that cannot hold its state."""
    content = read_content(objects, version.project, version.staged.content)
    manifest = checkpoint_of(objects, version.staged.content, content)
    if manifest is None:
        if kind not in (Format.SAFETENSORS, Format.HF):
            raise InvalidStateError(f"{version.lineage_id} is files as a client logged them, in that format alone; leave --format out")
        return VersionFiles(content, None, kind, (), content.files, (), facts_of(version, content, kind, shard_bytes))
    contents = Contents(manifest, ChunkStore(objects, manifest.job_id))
    chosen = _with_weights(contents, kind)
    facts = facts_of(version, content, chosen, shard_bytes)
    plan = plan_of(contents, chosen, shard_bytes, facts)
    return _files(content, manifest, chosen, plan, facts)


def checkpoint_of(objects: ObjectStore, sha256: str, content: ModelContent) -> Manifest | None:
    """The checkpoint's manifest that a content names, None of one that is files alone. `sha256`: the content's. Blocks. Raises
    DamagedError."""
    if content.checkpoint is None:
        return None
    return pinned_manifest(objects, content.project, str(content.job_id), content.commit, sha256, content.checkpoint)


def facts_of(version: NamedVersion, content: ModelContent, kind: Format, shard_bytes: int) -> dict[str, str]:
    """Provenance for the metadata of a safetensors file, as texts; what is not known is left out. Pure."""
    staged = version.staged
    facts = {
        "model": version.lineage_id,
        "project": version.project,
        "name": version.name,
        "version": str(staged.version),
        "semver": staged.semver,
        "content": staged.content,
        "checkpoint": f"{content.job_id}@{content.commit}" if content.checkpoint is not None else "",
        "checkpoint_sha256": content.checkpoint or "",
        "format": kind.value,
        "shard_bytes": str(shard_bytes),
        "framework": content.framework or "",
        "licence": content.licence or "",
        "code": content.code or "",
        "datasets": ",".join(content.datasets),
        "evaluations": ",".join(sorted(staged.evaluations)),
    }
    return {f"{FACT}{name}": text for name, text in facts.items() if text}


def fetch(objects: ObjectStore, version: NamedVersion, kind: Format, out: Path, shard_bytes: int = SHARD_BYTES) -> Fetched:
    """Puts a version into a folder. Blocks. Raises DamagedError, ExportError (folder in use, no space), InvalidStateError,
    ObjectStoreUnavailableError."""
    files = files_of_version(objects, version, kind, shard_bytes)
    if (there := _already(objects, files, out)) is not None:
        return there
    with disk_errors(out):
        place = free_place(out)
    with disk_errors(place), partial_folder(place, keeps=True) as partial:
        progress = _Progress(partial / "progress", files.identity)
        folder = partial / "files"
        if progress.is_new and folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(exist_ok=True)
        with progress:
            if files.manifest is not None:
                writer = FileWriter(files.manifest, ChunkStore(objects, files.manifest.job_id), progress)
                for plan in files.plans:
                    writer.write(plan, folder)
            for _ in in_threads(lambda file: _fetch_file(objects, version.project, file, folder), files.files, THREADS):
                pass
        _write(folder / PROVENANCE, version_provenance(version, files))
        folder.rename(place)
        sync_folder(place.parent)
        shutil.rmtree(partial, ignore_errors=True)
    return Fetched(str(place), files.written, files.left_out)


def _with_weights(contents: Contents, kind: Format) -> Format:
    """The format that gives the model's weights alone, where safetensors are asked for and the state has a model of tensors."""
    if kind is not Format.SAFETENSORS or "model" not in contents.parts:
        return kind
    model = contents.nested()["model"]
    has_weights = isinstance(model, dict) and any(isinstance(value, StoredTensor) for value in model.values())
    return Format.HF if has_weights else kind


def _files(content: ModelContent, manifest: Manifest, kind: Format, plan: Plan, facts: Mapping[str, str]) -> VersionFiles:
    """The files of a plan, without those that the version has its own of: a configuration, by people."""
    own = {file.path for file in content.files}
    plans = tuple(file for file in plan.files if file.name not in own)
    return VersionFiles(content, manifest, kind, plans, content.files, tuple(plan.left_out), facts)


def _already(objects: ObjectStore, files: VersionFiles, out: Path) -> Fetched | None:
    """The fetched version where the folder has it already, each byte as the store has it; else None."""
    try:
        if orjson.loads((out / PROVENANCE).read_bytes())["identity"] != files.identity:
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    try:
        is_sound = not any(files.differences(objects, out / plan.name, plan) for plan in files.plans)
    except OSError:
        is_sound = False
    if not is_sound or any(not _is_sound(out / file.path, file.bytes, file.sha256) for file in files.files):
        raise ExportError(f"{out} has this version, and files of it have changed since; remove the folder, or name another one")
    # Of a fetch that was killed right after its folder had appeared.
    shutil.rmtree(partial_of(out.resolve()), ignore_errors=True)
    return Fetched(str(out), files.written, files.left_out, was_there=True)


def _fetch_file(objects: ObjectStore, project: str, file: ArtifactFile, folder: Path) -> None:
    """Puts one file beside the weights, unless it is there and sound."""
    path = folder.joinpath(*file.path.split("/"))
    if not _is_sound(path, file.bytes, file.sha256):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as target:
            for piece in hashed_content(objects, object_key(project, file.sha256), file.sha256, file.bytes, file.path):
                target.write(piece)
            target.flush()
            os.fsync(target.fileno())


def _is_sound(path: Path, size_bytes: int, sha256: str) -> bool:
    try:
        return path.stat().st_size == size_bytes and digest_of_file(path) == sha256
    except OSError:
        return False


def digest_of_file(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def version_provenance(version: NamedVersion, files: VersionFiles) -> bytes:
    """Content of `trainhouse.json`, the last file of a fetch."""
    content = files.content
    model: dict[str, Any] = {
        "model": version.lineage_id,
        "semver": version.staged.semver,
        "content": version.staged.content,
        "evaluations": sorted(version.staged.evaluations),
        **content.model_dump(
            mode="json", include={"project", "input_schema", "output_schema", "framework", "code", "datasets", "licence", "notes"}
        ),
    }
    weights = [{"name": plan.name, "size_bytes": plan.size_bytes} for plan in files.plans]
    more = {"version": model, "weights": weights, "facts": dict(files.facts), "identity": files.identity}
    own = tuple(file for file in files.written if file.sha256)
    return provenance(files.manifest, files.kind, own, list(files.left_out), more)


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


class _Progress:
    """Chunks that files of a fetch have, one a line, of the fetch with this identity. A line that was cut off counts for nothing."""

    def __init__(self, path: Path, identity: str) -> None:
        self._path = path
        self._identity = identity
        self._done: dict[tuple[str, int], str] = {}
        try:
            lines = path.read_text(errors="replace").split("\n")
        except FileNotFoundError:
            lines = [""]
        self.is_new = lines[0] != identity
        for line in [] if self.is_new else lines[1:-1]:
            if found := _LINE.fullmatch(line):
                self._done[found[3], int(found[1])] = found[2]

    def __enter__(self) -> "_Progress":
        self._file = self._path.open("w" if self.is_new else "a")
        # The line before may have been cut off.
        self._file.write(f"{self._identity}\n" if self.is_new else "\n")
        self._file.flush()
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def digest(self, file: str, chunk: int) -> str | None:
        return self._done.get((file, chunk))

    def note(self, file: str, chunk: int, digest: str) -> None:
        self._file.write(f"{chunk} {digest} {file}\n")
        self._file.flush()
