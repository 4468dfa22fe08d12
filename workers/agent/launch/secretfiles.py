"""Secrets of an attempt: resolved when its ranks start, in files on tmpfs that the ranks read, refreshed while they run.

Holds: a job gets its own project's secrets and those that are granted to it, whatever its admission said. The folder of an attempt is
0700, each file 0600 and replaced in one step; it goes when the last process of the attempt is gone, and what an agent left behind goes at
the next look; values stay in memory until all that the attempt wrote is shipped. A refresh that fails leaves what was there. The audit
is told which secrets were resolved for which job, or refused.
Never: puts a value into a message, an event, a log, or on a disk.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import structlog

from trainhouse.events import GangAllocated
from trainhouse.events.model.default_project import DEFAULT_PROJECT
from trainhouse.events.model.secret_names import SecretRefusedError, variable_of
from trainhouse.private_files import private_folder, write_private
from trainhouse.workers.agent.accesses import SECRET, NodeAudit, about_secrets
from trainhouse.workers.agent.core import AttemptKey
from trainhouse.workers.agent.errors import NotLaunchableError
from trainhouse.workers.agent.launch.secret_values import HandedValues
from trainhouse.workers.secretstore.errors import SecretError
from trainhouse.workers.secretstore.resolving import Resolver
from trainhouse.workers.secretstore.store import SecretStore

MAX_SUPERSEDED = 64
RUNTIME_FOLDERS = ("/run", "/dev/shm")  # nosec B108  # tmpfs, a folder of its own in it
Names = dict[str, str]  # secrets by their whole names, with where each is
log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class AttemptSecrets:
    """Secrets of one attempt's ranks: values by variable, and the folder with the newest of them; empty without secrets."""

    values: dict[str, str] = field(default_factory=dict, repr=False)
    folder: Path | None = None


@dataclass(frozen=True)
class SecretFiles:
    """The secrets of this node's attempts. `runtime` must be on tmpfs; None: the first of RUNTIME_FOLDERS that is, and may be written."""

    store: SecretStore
    agent_dir: Path
    resolver: Resolver = field(default_factory=Resolver)
    runtime: Path | None = None
    audit: NodeAudit | None = None
    kept: HandedValues = field(default_factory=HandedValues, repr=False)

    def hand_out(self, allocation: GangAllocated) -> AttemptSecrets:
        """Resolves what the job names and writes it for its ranks. Blocks on servers. Raises NotLaunchableError."""
        wanted = allocation.spec.secrets
        if not wanted:
            return AttemptSecrets()
        with self._audited(allocation, "launch") as resolved:
            return self._hand_out(allocation, wanted, resolved)

    def _hand_out(self, allocation: GangAllocated, wanted: Iterable[str], resolved: Names) -> AttemptSecrets:
        values = self.values(allocation.spec.project, wanted, resolved)
        folder = self.folder_of(allocation.job_id, int(allocation.epoch))
        self.kept.add(AttemptKey(allocation.job_id, int(allocation.epoch)), values.values())
        try:
            # The runtime folder may be everybody's; attempts with uids of their own pass through to their own folder.
            private_folder(self.root(), 0o711, mend=True)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700, parents=True)
            _write(folder, values)
        except OSError as error:
            raise NotLaunchableError(
                f"the secrets of the job could not be written to {folder}: {error.strerror}", retryable=True
            ) from error
        return AttemptSecrets(values, folder)

    def values(self, project: str, wanted: Iterable[str], resolved: Names | None = None) -> dict[str, str]:
        """Values by variable, for a job of this project; `resolved` gets whose they are. Blocks.

        Raises NotLaunchableError that names what is missing or not granted.
        """
        return {variable_of(name): self._value(project, name, resolved) for name in dict.fromkeys(wanted)}

    def handed(self, allocation: GangAllocated) -> AttemptSecrets:
        """Returns the current secrets of a running attempt's ranks. Raises NotLaunchableError where they are not there."""
        if not allocation.spec.secrets:
            return AttemptSecrets()
        folder = self.folder_of(allocation.job_id, int(allocation.epoch))
        try:
            names = [variable_of(wanted) for wanted in allocation.spec.secrets]
            return AttemptSecrets({name: (folder / name).read_text("utf-8", "surrogateescape") for name in names}, folder)
        except FileNotFoundError:
            with self._audited(allocation, "command") as resolved:
                return AttemptSecrets(self.values(allocation.spec.project, allocation.spec.secrets, resolved))

    def known(self, allocation: GangAllocated) -> list[str] | None:
        """All values that the ranks of a running attempt have or had, as they lie there; None where they cannot be read. Asks no server."""
        if not allocation.spec.secrets:
            return []
        try:
            folder = self.folder_of(allocation.job_id, int(allocation.epoch))
            found = [path.read_text("utf-8", "surrogateescape") for path in folder.iterdir()]
            return found if all((folder / variable_of(wanted)).is_file() for wanted in allocation.spec.secrets) else None
        except (OSError, NotLaunchableError):
            return None

    def refresh(self, allocations: Iterable[GangAllocated]) -> int:
        """Resolves the secrets of running attempts again and replaces what changed; how many values did. Blocks."""
        changed = 0
        for allocation in allocations:
            folder = self.folder_of(allocation.job_id, int(allocation.epoch))
            for wanted in allocation.spec.secrets if folder.is_dir() else ():
                try:
                    resolved: Names = {}
                    values = self.values(allocation.spec.project, [wanted], resolved)
                    self.kept.add(AttemptKey(allocation.job_id, int(allocation.epoch)), values.values())
                    now_changed = _write(folder, values)
                    if now_changed:
                        self._audit_grant(allocation, "refresh", resolved)
                    changed += now_changed
                except (NotLaunchableError, OSError) as error:
                    log.warning("a secret stays as it was: it could not be read again", job=allocation.job_id, reason=str(error))
        return changed

    def remove(self, key: AttemptKey) -> None:
        """The attempt has no process any more."""
        shutil.rmtree(self.folder_of(key.job_id, key.epoch), ignore_errors=True)

    def sweep(self, keep: Collection[AttemptKey]) -> int:
        """Removes the folders of all other attempts; how many."""
        kept, gone = {str(self.folder_of(key.job_id, key.epoch)) for key in keep}, 0
        try:
            folders = [folder for folder in self.root().glob("*.*") if str(folder) not in kept]
        except NotLaunchableError:
            return 0
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
            gone += 1
        return gone

    def root(self) -> Path:
        """The folder of all attempts' secrets, of this agent alone. Raises NotLaunchableError where no tmpfs is."""
        named = hashlib.sha256(str(self.agent_dir).encode()).hexdigest()[:16]
        return runtime_folder(self.runtime) / f"trainhouse-{os.getuid()}-{named}"

    def folder_of(self, job_id: str, epoch: int) -> Path:
        return self.root() / f"{job_id}.{epoch}"

    @contextmanager
    def _audited(self, allocation: GangAllocated, action: str) -> Iterator[Names]:
        """Audits the secrets resolved in the body, or the reason of a refusal."""
        resolved: Names = {}
        try:
            yield resolved
        except NotLaunchableError as error:
            if self.audit is not None:
                asker, about = about_secrets(allocation, dict.fromkeys(allocation.spec.secrets, ""))
                self.audit.refused(SECRET, f"secrets {action}", replace(asker, why=str(error)), **about)
            raise
        self._audit_grant(allocation, action, resolved)

    def _audit_grant(self, allocation: GangAllocated, action: str, resolved: Names) -> None:
        if self.audit is not None:
            asker, about = about_secrets(allocation, resolved)
            self.audit.granted(SECRET, f"secrets {action}", asker, **about)

    def _value(self, project: str, wanted: str, resolved: Names | None = None) -> str:
        try:
            record = self.store.usable(project, wanted)
            if record is not None:
                if resolved is not None:
                    resolved[str(record.name)] = record.kind + ("" if record.name.project == project else f", granted to {project}")
                return self.resolver.value(record)
        except SecretRefusedError as error:
            raise NotLaunchableError(str(error), retryable=False) from error
        except SecretError as error:
            raise NotLaunchableError(str(error), retryable=error.retryable) from error
        shown = wanted if "/" in wanted or project == DEFAULT_PROJECT else f"{project}/{wanted}"
        raise NotLaunchableError(
            f"the secret {shown} is not set: `trainhouse secrets set {shown}` reads it from standard input", retryable=False
        )


def runtime_folder(chosen: Path | None) -> Path:
    """A folder on tmpfs that may be written. Raises NotLaunchableError."""
    for folder in (chosen,) if chosen is not None else map(Path, RUNTIME_FOLDERS):
        if folder is not None and os.access(folder, os.W_OK | os.X_OK) and _filesystem(folder) in ("tmpfs", "ramfs"):
            return folder
    raise NotLaunchableError(
        f"secrets go to memory, never to a disk, and {chosen or ' and '.join(RUNTIME_FOLDERS)} is no tmpfs that the agent may write: "
        "name one by TRAINHOUSE_AGENT_SECRETS_RUNTIME_DIR",
        retryable=True,
    )


def _filesystem(folder: Path) -> str:
    real = folder.resolve()
    mounts = {m.mountpoint: m.fstype for m in psutil.disk_partitions(all=True)}
    return next((mounts[str(at)] for at in (real, *real.parents) if str(at) in mounts), "")


def _write(folder: Path, values: dict[str, str]) -> int:
    """Replaces the files whose values changed; how many. What was replaced stays beside, for the maskers: a rank may still write it."""
    changed = 0
    for name, value in values.items():
        path, raw = folder / name, value.encode("utf-8", "surrogateescape")
        old = path.read_bytes() if path.is_file() else None
        if old == raw:
            continue
        if old is not None:
            superseded = sorted(folder.glob(f".was.{name}.*"))
            for oldest in superseded[: max(0, len(superseded) + 1 - MAX_SUPERSEDED)]:
                oldest.unlink(missing_ok=True)
            write_private(folder / f".was.{name}.{time.time_ns():020}", old, durable=False)
        fresh = folder / f".new.{name}"
        write_private(fresh, raw, durable=False)
        owner = folder.stat()
        if owner.st_uid != os.getuid():  # the attempt has a uid of its own by now
            os.chown(fresh, owner.st_uid, owner.st_gid)
        fresh.replace(path)  # only now: a rank may read it at any time
        changed += 1
    return changed
