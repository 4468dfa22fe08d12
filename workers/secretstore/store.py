"""The secrets of a machine on its disk: one sealed file each, `by-project/PROJECT/NAME` in a folder that only its owner reads.

Holds: changes take the folder's lock, readers need none: a file is replaced in one step. A secret that was set before projects were known
(a plain file NAME in the folder itself) is the default project's; it is sealed when it is set again, granted, or the key is rotated.
"""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cryptography.fernet import Fernet

from trainhouse.events.model.default_project import DEFAULT_PROJECT
from trainhouse.events.model.secret_names import SecretName, meant, usable
from trainhouse.private_files import private_folder, write_private
from trainhouse.workers.secretstore.errors import SealError, SecretError
from trainhouse.workers.secretstore.files import folder_name, project_of
from trainhouse.workers.secretstore.records import SecretRecord, load_record
from trainhouse.workers.secretstore.sealing import KeyFile, seal, unseal

BY_PROJECT = "by-project"
MAX_SECRET_BYTES = 64 * 1024


class SecretStore:
    """One folder of secrets, and the key that they are sealed with."""

    def __init__(self, folder: Path, key_file: Path) -> None:
        self.folder = folder
        self.key = KeyFile(key_file)

    def get(self, name: SecretName) -> SecretRecord | None:
        """A secret; None: it is not set. Raises SecretError."""
        sealed = _private_bytes(self._path(name), name)
        if sealed is None:
            return self._plain(name)
        for last in (False, True):  # between the two reads the key may have been rotated
            try:
                return load_record(unseal(self.key.keys(), sealed), name)
            except SealError as error:
                sealed = _private_bytes(self._path(name), name) or sealed
                if last:
                    raise SealError(f"the secret {name} cannot be opened: {error}") from error
        raise AssertionError("unreachable")

    def usable(self, project: str, wanted: str) -> SecretRecord | None:
        """Returns the value of a name for a job of a project; None: nothing of that name is set. Raises SecretRefusedError, SecretError."""
        known = {found.name: found for name in meant(project, wanted) if (found := self.get(name)) is not None}
        chosen = usable(project, wanted, {name: record.grants for name, record in known.items()})
        return None if chosen is None else known[chosen]

    def put(self, record: SecretRecord) -> None:
        """Keeps a secret, sealed; what was kept under its name goes."""
        with self._locked():
            self._put(record)

    def remove(self, name: SecretName) -> bool:
        """Removes it; returns whether there was one."""
        with self._locked():
            paths = [path for path in (self._path(name), self._plain_path(name)) if path is not None and path.is_file()]
            for path in paths:
                path.unlink()
            return bool(paths)

    def names(self) -> list[SecretName]:
        """All that are set, in order."""
        root, found = self.folder / BY_PROJECT, set()
        for project in root.iterdir() if root.is_dir() else ():
            found |= {SecretName(project_of(project.name), p.name) for p in project.iterdir() if _is_kept(p)}
        found |= {SecretName(DEFAULT_PROJECT, p.name) for p in (self.folder.iterdir() if self.folder.is_dir() else ()) if _is_kept(p)}
        return sorted(found)

    def rotate_key(self) -> int:
        """Makes a new key and seals everything with it; how many. Cut off at any point, it goes on when it is called again."""
        with self._locked():
            old = self.key.keys() if self.key.path.exists() else []
            new = Fernet.generate_key()
            self.key.replace([new, *old])
            names = self.names()
            for name in names:
                record = self.get(name)
                if record is not None:
                    self._put(record)
            self.key.replace([new])
            return len(names)

    def _put(self, record: SecretRecord) -> None:
        try:
            private_folder(self.folder, mend=True)
            private_folder(self._path(record.name).parent, mend=True)
        except OSError as error:
            raise SecretError(f"the secret {record.name.name} cannot be written: {error.strerror}") from error
        write_private(self._path(record.name), seal(self.key.made(), record.dumps()))
        plain = self._plain_path(record.name)
        if plain is not None:
            plain.unlink(missing_ok=True)

    def _plain(self, name: SecretName) -> SecretRecord | None:
        path = self._plain_path(name)
        raw = None if path is None else _private_bytes(path, name)
        return None if raw is None else SecretRecord(name, raw)

    def _plain_path(self, name: SecretName) -> Path | None:
        return self.folder / name.name if name.project == DEFAULT_PROJECT else None

    def _path(self, name: SecretName) -> Path:
        return self.folder / BY_PROJECT / folder_name(name.project) / name.name

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _is_kept(path: Path) -> bool:
    return path.is_file() and not path.name.startswith(".")


def _private_bytes(path: Path, name: SecretName) -> bytes | None:
    """A file's bytes; None where it is not there. Raises SecretError when others may read it too."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) or mode & 0o077:
            raise SecretError(f"the secret {name} may be read by others on this node: `chmod 600` its file, or set it again")
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        raise SecretError(f"the secret {name} cannot be read by the agent: it must belong to the agent's user") from None
