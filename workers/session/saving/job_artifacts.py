"""Artifacts of a training program: stored beside training, in versions under the names that the program gives, and read into a folder.

Holds: what is stored is what the files were when `log` was called: they are copied at disk speed, and hashed and sent by a thread. A
version is reported once it is whole in the store; of one that was cut off nothing is there, and the next attempt's call goes on from the
files that are. An attempt that a newer one replaced stores nothing. Errors of a version are printed, and raised by its `wait` alone.
Never: more than MOST_WAITING versions wait; then `log` waits, too.
"""

import contextlib
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from typing import Final

from trainhouse.checkpointing.artifacts.artifact_store import ArtifactStore, HashedStore, files_below
from trainhouse.checkpointing.errors import CheckpointError, RetryableError
from trainhouse.checkpointing.lease.signed_store import open_artifact_store
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.events.model.artifact import BY_JOB, KIND_PATTERN, ArtifactError, ArtifactManifest, facts_of, parse_reference
from trainhouse.workers.data.errors import DamagedShardError
from trainhouse.workers.data.stored_versions import read_manifest
from trainhouse.workers.session.context import Context
from trainhouse.workers.session.errors import InvalidUseError
from trainhouse.workers.session.logging.sink import Sink

MOST_WAITING: Final = 16
TRIES: Final = 3


@dataclass
class LoggedArtifact:
    """A version that is being stored, or was."""

    name: str
    kind: str
    files: Path = field(repr=False)
    copied: bool = False
    manifest: ArtifactManifest | None = None
    error: Exception | None = None
    ended: threading.Event = field(default_factory=threading.Event, repr=False)

    def wait(self, timeout_s: float | None = None) -> str:
        """Blocks until it is whole in the store; returns NAME@sha256:HASH. Raises what kept it from there, TimeoutError."""
        if not self.ended.wait(timeout_s):
            raise TimeoutError(f"artifact {self.name} is not stored after {timeout_s:g} s; it is stored beside training")
        if self.error is not None:
            raise self.error
        assert self.manifest is not None
        return f"{self.name}@sha256:{self.manifest.sha256()}"


class JobArtifacts:
    """Of one rank's process. `log` and `fetch` come from the program's threads."""

    def __init__(
        self, context: Context, sink: Sink, store: Callable[[], HashedStore] = lambda: open_artifact_store(StoreSettings())
    ) -> None:
        self._context = context
        self._sink = sink
        self._store = store
        self._waiting: Queue[LoggedArtifact] = Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._folders: list[Path] = []
        self._fetched: dict[str, Path] = {}
        self._open: list[LoggedArtifact] = []

    def log(self, path: Path, name: str, kind: str, copy: bool) -> LoggedArtifact:
        """Copies the files and has them stored; see `Session.log_artifact`."""
        try:
            if parse_reference(name)[0] != name or not re.fullmatch(KIND_PATTERN, kind):
                raise ArtifactError(f"artifact {name!r} of kind {kind!r}: give a name alone, and a kind of small letters, as tokenizer")
            files_below(path)
        except ArtifactError as error:
            raise InvalidUseError(f"log_artifact: {error}") from error
        logged = LoggedArtifact(name, kind, self._copied(path) if copy else path, copy)
        if self._context.job_id is None:
            self._keep_here(logged)
            return logged
        self._open.append(logged)
        self._waiting.put(logged)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="trainhouse-artifacts", daemon=True)
            self._thread.start()
        return logged

    def fetch(self, reference: str) -> Path:
        """The folder with a version's files; see `Session.artifact`."""
        if reference in self._fetched:
            return self._fetched[reference]
        if self._context.job_id is None:
            return _kept_here(reference)
        try:
            project, name, sha256 = self._found(reference)
            artifacts = ArtifactStore(self._store(), project)
            manifest = artifacts.manifest(sha256)
            folder = Path(tempfile.mkdtemp(prefix="trainhouse-artifact-")) / "files"
            self._folders.append(folder.parent)
            artifacts.fetch(manifest, folder)
        except (ArtifactError, CheckpointError, DamagedShardError) as error:
            if isinstance(error, RetryableError):
                raise
            raise InvalidUseError(f"artifact({reference!r}): {error}") from error
        self._report("used", name, manifest)
        self._fetched[reference] = folder
        return folder

    def close(self, wait_s: float) -> bool:
        """Waits so long for what is being stored; True once nothing is. Blocks."""
        until_s = time.monotonic() + wait_s
        for logged in tuple(self._open):
            if not logged.ended.wait(max(0.0, until_s - time.monotonic())):
                print(f"trainhouse: artifact {logged.name} is not stored: the rank ended first", file=sys.stderr, flush=True)
                return False
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)
        return True

    def _found(self, reference: str) -> tuple[str, str, str]:
        """Project, name and hash of a version: one that the job's dataset names, else one of its own project."""
        name, sha256 = parse_reference(reference)
        data, project = self._context.data, self._context.project
        if not sha256 and data is not None and data.content_sha256:
            owner = data.owner or project
            named = read_manifest(self._store(), owner, data.content_sha256).artifacts
            found = next((each.sha256 for each in named if each.name == name), None)
            if found is not None:
                return owner, name, found
        return project, name, ArtifactStore(self._store(), project).find(reference).sha256

    def _work(self) -> None:
        while True:
            logged = self._waiting.get()
            try:
                logged.manifest = self._stored(logged)
                self._report("stored", logged.name, logged.manifest)
            except Exception as error:
                logged.error = error
                print(f"trainhouse: artifact {logged.name} is not stored: {error}", file=sys.stderr, flush=True)
            finally:
                self._drop(logged)
                with contextlib.suppress(ValueError):
                    self._open.remove(logged)
                logged.ended.set()

    def _stored(self, logged: LoggedArtifact) -> ArtifactManifest:
        job = self._context
        artifacts = ArtifactStore(self._store(), job.project, note=f"{job.job_id}.{job.epoch:010d}.")
        for tries_left in reversed(range(TRIES)):
            try:
                return artifacts.put(logged.name, logged.kind, logged.files, f"{BY_JOB}{job.job_id}")
            except RetryableError:
                if not tries_left:
                    raise
        raise AssertionError("unreachable")

    def _report(self, action: str, name: str, manifest: ArtifactManifest) -> None:
        job, sha256 = self._context, manifest.sha256()
        at = {"action": action, "name": name, "at_ms": time.time_ns() // 1_000_000}
        facts = facts_of(sha256, manifest) | at
        self._sink.event("ArtifactRecorded", facts, f"{job.job_id}:{job.epoch}:{job.rank}:{action}:{name}:{sha256}")

    def _copied(self, path: Path) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="trainhouse-artifact-"))
        to = folder / path.name
        shutil.copytree(path, to, symlinks=True) if path.is_dir() else shutil.copyfile(path, to)
        return to

    def _drop(self, logged: LoggedArtifact) -> None:
        if logged.copied:
            shutil.rmtree(logged.files.parent, ignore_errors=True)

    def _keep_here(self, logged: LoggedArtifact) -> None:
        """Outside of Trainhouse: below artifacts/NAME, in place of what was there."""
        to = _folder_of(logged.name)
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir(parents=True)
        files = files_below(logged.files)
        for name, file in files.items():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, to / name)
        logged.manifest = ArtifactManifest.of(logged.kind, ArtifactStore.described(files))
        self._drop(logged)
        logged.ended.set()


def _folder_of(name: str) -> Path:
    return Path("artifacts") / name


def _kept_here(reference: str) -> Path:
    folder = _folder_of(reference.partition("@")[0])
    if not folder.is_dir():
        raise InvalidUseError(f"artifact({reference!r}): outside of Trainhouse it is read from {folder}, which is not there")
    return folder
