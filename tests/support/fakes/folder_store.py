"""An object store in a folder, for tests with several processes: it can be pickled, and held up while a file lies beside it.

Holds: a write is whole or absent. Never: lists in pages.
"""

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from trainhouse.checkpointing.errors import ObjectMissingError
from trainhouse.checkpointing.stores.object_store import Body, ObjectStat

LOOK_S = 0.005


class FolderObjectStore:
    """One folder. `hold()` stops chunks on their way in, until `let_go()`; `waiting` counts those that came so far."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._objects = folder / "objects"
        self._held = folder / "held"
        self._waiting = folder / "waiting"
        self._objects.mkdir(parents=True, exist_ok=True)
        self._waiting.mkdir(exist_ok=True)

    @property
    def address(self) -> str:
        return str(self._folder)

    @property
    def waiting(self) -> int:
        return len(list(self._waiting.iterdir()))

    def hold(self) -> None:
        self._held.touch()

    def let_go(self) -> None:
        self._held.unlink(missing_ok=True)

    def uri(self, key: str) -> str:
        return f"folder://{key}"

    def put(self, key: str, body: Body) -> None:
        if self._held.exists():
            (self._waiting / uuid.uuid4().hex).touch()
        while self._held.exists():
            time.sleep(LOOK_S)
        os.replace(self._written(key, body), self._path(key))

    def put_file(self, key: str, file: IO[bytes]) -> None:
        file.seek(0)
        self.put(key, file.read())

    def put_if_absent(self, key: str, body: Body) -> bool:
        part = self._written(key, body)
        try:
            os.link(part, self._path(key))
        except FileExistsError:
            return self.get(key) == bytes(body)
        finally:
            part.unlink()
        return True

    def get(self, key: str) -> bytes:
        try:
            return self._path(key).read_bytes()
        except FileNotFoundError:
            raise ObjectMissingError(f"{self.address}: no object {key!r}") from None

    def get_range(self, key: str, start: int, length_bytes: int) -> bytes:
        try:
            with self._path(key).open("rb") as file:
                file.seek(start)
                return file.read(length_bytes)
        except FileNotFoundError:
            raise ObjectMissingError(f"{self.address}: no object {key!r}") from None

    def stat(self, key: str) -> ObjectStat | None:
        try:
            found = self._path(key).stat()
        except FileNotFoundError:
            return None
        return ObjectStat(key, found.st_size, found.st_mtime, time.time())

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectStat]:
        keys = sorted(path.name.replace("%", "/") for path in self._objects.iterdir() if not path.name.startswith("."))
        found = [self.stat(key) for key in keys if key.startswith(prefix) and key > start_after]
        return iter([stat for stat in found if stat is not None])

    def delete(self, key: str) -> None:
        self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._objects / key.replace("/", "%")

    def _written(self, key: str, body: Body) -> Path:
        part = self._objects / f".{uuid.uuid4().hex}"
        part.write_bytes(body)
        return part


class UnreadableStore(FolderObjectStore):
    """A store that no other process can open."""

    def __setstate__(self, state: dict[str, object]) -> None:
        raise LookupError("no such store here")
