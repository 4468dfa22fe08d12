"""Artifacts of one project in the object store: storing, naming, reading, checking and forgetting versions.

Holds: a version has a name once its manifest and all files that this names are there, so that what was interrupted shows nowhere, and goes
on from what is there when it is begun again. A file is stored once in a project, whichever artifacts and runs have it; what is read is
verified against its hash before it is under its path. While a note of a storing is there, a sweep of the project removes nothing, and
what was removed right before is noticed before the version is named.
Never: reads or looks for anything of another project.
"""

import hashlib
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import IO, Final, Protocol

import orjson
from pydantic import ValidationError

from trainhouse.checkpointing.artifacts.artifact_versions import ArtifactVersion, versions_of
from trainhouse.checkpointing.chain.chunks import GRACE_S, THREADS, in_threads
from trainhouse.checkpointing.errors import CheckpointError, DamagedError, HeldError, NoArtifactError, ObjectMissingError
from trainhouse.checkpointing.stores.object_store import ObjectStat, ObjectStore
from trainhouse.events.model.artifact import (
    MOST_MANIFEST_BYTES,
    OF_DATASET,
    OF_MODEL_CONTENT,
    ArtifactError,
    ArtifactFile,
    ArtifactManifest,
    check_paths,
    parse_reference,
)
from trainhouse.events.model.artifact_keys import (
    artifacts_prefix,
    deleted_run_key,
    manifest_key,
    name_key,
    names_prefix,
    object_key,
    reference_key,
    run_file_key,
    run_file_prefix,
    storing_key,
    unnamed_key,
    unnamed_prefix,
)
from trainhouse.events.model.dataset_keys import manifest_key as dataset_manifest_key
from trainhouse.events.model.model_content import content_key

RENEW_S: Final = 600.0
BLOCK_BYTES: Final = 8 << 20
SETTLED_S: Final = 60.0
UNNAMED_LEAST_BYTES: Final = 1024
_TRIES: Final = 2
_LISTED_ONE_BY_ONE: Final = 8


class HashedStore(ObjectStore, Protocol):
    """An object store that takes files, and refuses those that have another hash than they are to have."""

    def put_hashed(self, key: str, file: IO[bytes], sha256: str) -> None:
        """Stores what an open file holds, from its beginning; the store itself refuses other bytes than have this hash. Blocks."""
        ...


class ArtifactStore:
    """The artifacts of one project. Safe to share by threads; all methods block, and raise what the store raises.

    `note`: how the notes of this writer are named; by default so that no two are.
    """

    def __init__(self, objects: HashedStore, project: str, threads: int = THREADS, note: str = "") -> None:
        self._objects = objects
        self._project = project
        self._threads = threads
        self._note = note

    def put(self, name: str, kind: str, path: Path, by: str, needs_room: Callable[[int], None] | None = None) -> ArtifactManifest:
        """Stores a file, or all files of a folder, as a version of `name`, and returns its manifest. The same files give the same version.

        `needs_room`: called with the bytes that the project does not have yet, before anything is stored; what it raises ends it. Raises
        ArtifactError for paths that no artifact has, links, and files that change meanwhile.
        """
        return self.put_files(name, kind, files_below(path), by, needs_room)

    def put_files(
        self, name: str, kind: str, files: Mapping[str, Path], by: str, needs_room: Callable[[int], None] | None = None
    ) -> ArtifactManifest:
        """Stores files under the paths that they have in the artifact, as `put`."""
        manifest = ArtifactManifest.of(kind, self.described(files, self._threads))
        if needs_room is not None:
            each = list({file.sha256: file for file in manifest.files}.values())
            there = in_threads(self.has, each, self._threads)
            needs_room(sum(file.bytes for file, is_there in zip(each, there, strict=True) if not is_there))
        contents = {file.sha256: (files[file.path], file.bytes) for file in manifest.files}
        for tries_left in reversed(range(_TRIES)):
            with self.storing() as note:
                list(in_threads(lambda item: self._send(note, item[0], *item[1]), list(contents.items()), self._threads))
                if self.name(name, manifest, by, is_last_try=not tries_left):
                    break
        return manifest

    @staticmethod
    def described(files: Mapping[str, Path], threads: int = THREADS) -> list[ArtifactFile]:
        """Sizes and hashes of files, by their paths in the artifact. Raises ArtifactError."""
        check_paths(list(files))
        return list(in_threads(lambda item: _hashed(*item), list(files.items()), threads))

    def put_file(self, file: IO[bytes], sha256: str, size_bytes: int) -> str:
        """Stores the content of an open file, for versions to come, and returns its key. Until `settle_files` it counts as unnamed."""
        with self.storing():
            self._note_unnamed(sha256, size_bytes)
            return self._put_object(file, sha256, size_bytes)

    def unnamed_bytes(self) -> int:
        """Bytes of files that were stored one by one and that nothing names yet, UNNAMED_LEAST_BYTES each at least."""
        return sum(size_bytes for size_bytes, _, _ in self._unnamed())

    def settle_files(self, sha256s: Collection[str]) -> None:
        """Ends the notes of files that something names by now."""
        # Each by its hash, or all of them in one list where that asks less.
        of = [f"{sha256}." for sha256 in sha256s] if len(sha256s) <= _LISTED_ONE_BY_ONE else [""]
        for _, sha256, key in chain.from_iterable(self._unnamed(begin) for begin in of):
            if sha256 in sha256s:
                self._objects.delete(key)

    def has(self, file: ArtifactFile) -> bool:
        """Whether the content of a file is there."""
        return _is_whole(self._objects.stat(object_key(self._project, file.sha256)), file.bytes)

    def name(self, name: str, manifest: ArtifactManifest, by: str, is_last_try: bool = True) -> bool:
        """Stores a manifest and gives it a name, once all its files are there. Within `storing`. Returns whether it did; False where one
        is missing and it is not the last try, else ArtifactError."""
        return self._put_manifest(manifest, name, name_key(self._project, name, manifest.sha256(), by), is_last_try)

    def refer(self, files: Mapping[str, Path], manifest: ArtifactManifest, by: str) -> None:
        """Stores files of which `manifest` is, with a reference to it in place of a name, such as `model.HASH`; raises as `put`."""
        contents = {file.sha256: (files[file.path], file.bytes) for file in manifest.files}
        key = reference_key(self._project, manifest.sha256(), by)
        for tries_left in reversed(range(_TRIES)):
            with self.storing() as note:
                list(in_threads(lambda item: self._send(note, item[0], *item[1]), list(contents.items()), self._threads))
                if self._put_manifest(manifest, by, key, is_last_try=not tries_left):
                    break

    def refer_stored(self, manifest: ArtifactManifest, by: str) -> None:
        """The same for files that are in the store: raises ArtifactError where one is not."""
        with self.storing():
            self._put_manifest(manifest, by, reference_key(self._project, manifest.sha256(), by), is_last_try=True)

    def _put_manifest(self, manifest: ArtifactManifest, what: str, reference: str, is_last_try: bool) -> bool:
        """Stores a manifest, and then what keeps it, once all its files are there; see `name`."""
        body, sha256 = manifest.canonical_json(), manifest.sha256()
        if len(body) > MOST_MANIFEST_BYTES:
            raise ArtifactError(f"the manifest would have {len(body)} bytes, and may have {MOST_MANIFEST_BYTES}; pack the files into one")
        key = manifest_key(self._project, sha256)
        if not _is_whole(self._objects.stat(key), len(body)):
            with tempfile.SpooledTemporaryFile(MOST_MANIFEST_BYTES) as file:
                file.write(body)
                self._objects.put_hashed(key, file, sha256)
        wanted = list({file.sha256: file for file in manifest.files}.values())
        missing = [file for file, there in zip(wanted, in_threads(self.has, wanted, self._threads), strict=True) if not there]
        if missing and is_last_try:
            raise ArtifactError(f"{len(missing)} files of {what} are not in the store, {missing[0].path!r} first; store them, then it")
        if not missing:
            self._objects.put(reference, b"")
        return not missing

    @contextmanager
    def storing(self) -> Iterator["StoringNote"]:
        """Keeps a sweep from what is stored, or relied on, inside."""
        note = StoringNote(self._objects, storing_key(self._project, f"{self._note}{uuid.uuid4().hex}"))
        note.renew()
        try:
            yield note
        finally:
            note.remove()

    def names(self) -> list[ArtifactVersion]:
        """All versions of all names, by name and age."""
        return self._versions(names_prefix(self._project))

    def versions(self, name: str) -> list[ArtifactVersion]:
        """The versions of one name, the oldest first."""
        return self._versions(names_prefix(self._project, name))

    def find(self, reference: str) -> ArtifactVersion:
        """The version that `NAME@HASH` names, or the newest of `NAME`. Raises ArtifactError, NoArtifactError."""
        name, sha256 = parse_reference(reference)
        found = [version for version in self.versions(name) if version.sha256.startswith(sha256)]
        if not found:
            raise NoArtifactError(f"project {self._project} has no artifact {reference}; `trainhouse artifact list` shows what there is")
        if sha256 and len(found) > 1:
            raise ArtifactError(f"{reference} begins {len(found)} versions; give more digits of the hash")
        return found[-1]

    def manifest(self, sha256: str) -> ArtifactManifest:
        """The manifest with this hash. Raises NoArtifactError; DamagedError where it is another."""
        key = manifest_key(self._project, sha256)
        found = self._objects.stat(key)
        if found is None:
            raise NoArtifactError(f"project {self._project} has no artifact sha256:{sha256}")
        return read_manifest_at(self._objects, found, sha256)

    def readable_manifest(self, sha256: str) -> ArtifactManifest | None:
        """The manifest with this hash; None where it is missing or damaged, as a name can be taken away all the same."""
        try:
            return self.manifest(sha256)
        except (NoArtifactError, DamagedError):
            return None

    def fetch(self, manifest: ArtifactManifest, folder: Path) -> None:
        """Puts the files below a folder that is not there yet, or is empty; it is there whole or not at all. Raises ArtifactError,
        DamagedError."""
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ArtifactError(f"{folder} is there, and not empty; name another folder")
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            list(in_threads(lambda file: self._fetch(file, made), manifest.files, self._threads))
            made.chmod(0o755)
            os.replace(made, folder)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise

    def verify(self, manifest: ArtifactManifest) -> list[str]:
        """Reads all files; returns what is wrong with them."""

        def problem(file: ArtifactFile) -> str:
            try:
                for _ in self.content(file):
                    pass
            except DamagedError as error:
                return str(error)
            return ""

        return [text for text in in_threads(problem, manifest.files, self._threads) if text]

    def content(self, file: ArtifactFile) -> Iterator[bytes]:
        """The content of a file, piece by piece, the last one once all of them are verified. Raises DamagedError."""
        return hashed_content(self._objects, object_key(self._project, file.sha256), file.sha256, file.bytes, file.path)

    def kept_by(self, sha256: str) -> tuple[str, ...]:
        """References that keep a version beside its names, such as `dataset.HASH` of a dataset that is there, or just being made."""
        prefix = f"{artifacts_prefix(self._project)}references/{sha256}/"
        return tuple(stat.key.removeprefix(prefix) for stat in self._objects.list(prefix) if self._keeps(stat))

    def check_free(self, version: ArtifactVersion) -> None:
        """Raises HeldError where something keeps a version beside its names."""
        if kept := self.kept_by(version.sha256):
            raise HeldError(f"{version} is kept by {', '.join(kept)}; it stays for as long as that does")

    def forget(self, version: ArtifactVersion) -> None:
        """Takes the name away from a version; a sweep removes its bytes a day later, where nothing else names them. Raises HeldError."""
        self.check_free(version)
        for by in version.by:
            self._objects.delete(name_key(self._project, version.name, version.sha256, by))

    def put_run_file(self, job_id: str, path: str, file: IO[bytes], sha256: str, size_bytes: int) -> str:
        """Stores a file that a run has under a path, and returns its key. `settle_run_file` follows once the run's event is written."""
        with self.storing():
            self._note_unnamed(sha256, size_bytes)
            self._objects.put(run_file_key(self._project, job_id, path, sha256), b"")
            return self._put_object(file, sha256, size_bytes)

    def settle_run_file(self, job_id: str, path: str, sha256: str | None) -> None:
        """Ends what keeps files that the run had under this path before. `sha256`: of the one that it has now; None: of none."""
        prefix = run_file_prefix(self._project, job_id, path)
        for stat in self._objects.list(prefix):
            # A young one may be another upload's, whose event comes after this one's.
            if stat.key != f"{prefix}{sha256}" and (sha256 is None or stat.age_s > SETTLED_S):
                self._objects.delete(stat.key)
        if sha256 is not None:
            if self._objects.stat(f"{prefix}{sha256}") is None:
                self._objects.put(f"{prefix}{sha256}", b"")
            self.settle_files((sha256,))

    def mark_run(self, job_id: str, deleted: bool) -> None:
        """Notes that a run was deleted, from which its files and names stay for the grace; or that it was restored."""
        key = deleted_run_key(self._project, job_id)
        self._objects.put(key, b"") if deleted else self._objects.delete(key)

    def _note_unnamed(self, sha256: str, size_bytes: int) -> None:
        """Notes a file before it is stored, so that one that a kill leaves behind is counted. One that is there counts already."""
        if not _is_whole(self._objects.stat(object_key(self._project, sha256)), size_bytes):
            self._objects.put(unnamed_key(self._project, sha256, size_bytes), b"")

    def _unnamed(self, begin: str = "") -> Iterator[tuple[int, str, str]]:
        """Bytes, hash and key of each note whose name begins so."""
        prefix = unnamed_prefix(self._project)
        for stat in self._objects.list(f"{prefix}{begin}"):
            sha256, _, size = stat.key.removeprefix(prefix).partition(".")
            if size.isdecimal():
                yield max(int(size), UNNAMED_LEAST_BYTES), sha256, stat.key

    def _put_object(self, file: IO[bytes], sha256: str, size_bytes: int) -> str:
        """Makes sure that the content of an open file is there, and returns its key. Within `storing`."""
        key = object_key(self._project, sha256)
        for _ in range(_TRIES):  # a sweep may have begun to remove it before the note was there
            if not _is_whole(self._objects.stat(key), size_bytes):
                self._objects.put_hashed(key, file, sha256)
        return key

    def _versions(self, prefix: str) -> list[ArtifactVersion]:
        return versions_of(names_prefix(self._project), self._objects.list(prefix))

    def _keeps(self, reference: ObjectStat) -> bool:
        by = reference.key.rpartition("/")[2]
        # The manifest of a dataset, and the content of a model's version, come after their references.
        if reference.age_s <= GRACE_S:
            return True
        if by.startswith(OF_DATASET):
            return self._objects.stat(dataset_manifest_key(self._project, by.removeprefix(OF_DATASET))) is not None
        if by.startswith(OF_MODEL_CONTENT):
            return self._objects.stat(content_key(self._project, by.removeprefix(OF_MODEL_CONTENT))) is not None
        return True

    def _send(self, note: "StoringNote", sha256: str, path: Path, size_bytes: int) -> None:
        note.renew()
        key = object_key(self._project, sha256)
        if _is_whole(self._objects.stat(key), size_bytes):
            return
        with path.open("rb") as file:
            # Hashed again: it may have changed since, and not every store looks.
            if _digest(file) != (sha256, size_bytes):
                raise ArtifactError(f"{path} changed while it was stored; store it again when nothing writes to it")
            self._objects.put_hashed(key, file, sha256)

    def _fetch(self, file: ArtifactFile, folder: Path) -> None:
        path = folder.joinpath(*file.path.split("/"))
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as target:
            for piece in self.content(file):
                target.write(piece)


class StoringNote:
    """Note that something is being stored. Safe to share by threads."""

    def __init__(self, objects: ObjectStore, key: str) -> None:
        self._objects, self._key = objects, key
        self._renewed_s = float("-inf")
        self._lock = threading.Lock()

    def renew(self) -> None:
        """Writes it anew where it is some minutes old."""
        with self._lock:
            if time.monotonic() > self._renewed_s + RENEW_S:
                self._objects.put(self._key, b"")
                self._renewed_s = time.monotonic()

    def remove(self) -> None:
        """Removes it; one that stays, as the store is away, counts for a day."""
        with suppress(CheckpointError):
            self._objects.delete(self._key)


def hashed_content(objects: ObjectStore, key: str, sha256: str, size_bytes: int, path: str) -> Iterator[bytes]:
    """The content of an object, piece by piece, the last one once all of them are verified. `path`: the name for messages. Raises
    DamagedError."""
    digest, at, where = hashlib.sha256(), 0, f"{path}: {objects.uri(key)}"
    while at < size_bytes:
        try:
            piece = objects.get_range(key, at, min(BLOCK_BYTES, size_bytes - at))
        except ObjectMissingError as error:
            raise DamagedError(f"{where} is missing; store the artifact again from its source", sha256) from error
        if not piece:
            raise DamagedError(f"{where} ends after {at} of {size_bytes} bytes; remove it, and store the artifact again", sha256)
        digest.update(piece)
        at += len(piece)
        if at == size_bytes and digest.hexdigest() != sha256:
            raise DamagedError(f"{where} has other contents than its hash says; remove it, and store the artifact again", sha256)
        yield piece


def read_manifest_at(objects: ObjectStore, stat: ObjectStat, sha256: str) -> ArtifactManifest:
    """The manifest that an object is, which has this hash. Raises DamagedError."""
    key = stat.key
    if stat.size_bytes > MOST_MANIFEST_BYTES:
        raise DamagedError(f"{objects.uri(key)} has {stat.size_bytes} bytes, more than a manifest has; remove it", sha256)
    try:
        content = objects.get(key)
    except ObjectMissingError as error:
        raise DamagedError(f"{objects.uri(key)} is missing", sha256) from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise DamagedError(f"{objects.uri(key)} has other contents than its name says; remove it, and store the artifact again", sha256)
    try:
        return ArtifactManifest.model_validate(orjson.loads(content))
    except ValueError as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise DamagedError(f"{objects.uri(key)} is no manifest of an artifact, or a newer program's: {reason}", sha256) from error


def files_below(path: Path) -> dict[str, Path]:
    """Files of a folder by their paths in it; of a file itself, by its name. Raises ArtifactError for links, sockets and the like."""
    if path.is_symlink() or not (path.is_file() or path.is_dir()):
        raise ArtifactError(f"{path} is no file and no folder{'; it is a link, name what it leads to' if path.is_symlink() else ''}")
    if path.is_file():
        return {path.name: path}
    found = dict[str, Path]()
    for folder, folders, names in os.walk(path, onerror=_raise):
        for each in sorted(folders) + sorted(names):
            entry = Path(folder) / each
            if entry.is_symlink() or not (entry.is_dir() or entry.is_file()):
                kind = "a link" if entry.is_symlink() else "no file"
                raise ArtifactError(f"{entry} is {kind}, and an artifact has files alone; put the file itself there, or leave it out")
            if entry.is_file():
                found[entry.relative_to(path).as_posix()] = entry
    return found


def _raise(error: OSError) -> None:
    raise ArtifactError(f"{error.filename}: {error.strerror}; nothing was stored") from error


def _hashed(path: str, file: Path) -> ArtifactFile:
    with file.open("rb") as content:
        sha256, size_bytes = _digest(content)
    return ArtifactFile(path=path, bytes=size_bytes, sha256=sha256)


def _digest(file: IO[bytes]) -> tuple[str, int]:
    digest = hashlib.file_digest(file, "sha256")  # type: ignore[arg-type]
    return digest.hexdigest(), file.tell()


def _is_whole(stat: ObjectStat | None, size_bytes: int) -> bool:
    return stat is not None and stat.size_bytes == size_bytes
