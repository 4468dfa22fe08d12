"""An object store in this process, for tests: the same contract as the real one, held by the same suite.

Holds: everything under one lock. Never: outlives the process.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO

from trainhouse.checkpointing.errors import ObjectChangedError, ObjectMissingError, ObjectStoreRefusedError
from trainhouse.checkpointing.stores.object_store import Body, ObjectStat


class MemoryObjectStore:
    """A dictionary with the manners of S3. `clock` gives seconds since 1970."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._objects: dict[str, tuple[bytes, float]] = {}

    @property
    def address(self) -> str:
        return "memory"

    def uri(self, key: str) -> str:
        return f"memory://{key}"

    def put(self, key: str, body: Body) -> None:
        with self._lock:
            self._objects[key] = (bytes(body), self._clock())

    def put_file(self, key: str, file: IO[bytes]) -> None:
        file.seek(0)
        self.put(key, file.read())

    def put_hashed(self, key: str, file: IO[bytes], sha256: str) -> None:
        file.seek(0)
        content = file.read()
        if hashlib.sha256(content).hexdigest() != sha256:
            raise ObjectStoreRefusedError(f"memory: put of {key!r} refused: BadDigest")
        self.put(key, content)

    def put_if_absent(self, key: str, body: Body) -> bool:
        with self._lock:
            found = self._objects.setdefault(key, (bytes(body), self._clock()))
            return found[0] == bytes(body)

    def get(self, key: str) -> bytes:
        with self._lock:
            if key not in self._objects:
                raise ObjectMissingError(f"memory: no object {key!r}")
            return self._objects[key][0]

    def get_range(self, key: str, start: int, length_bytes: int) -> bytes:
        return self.get(key)[start : start + length_bytes]

    def get_same_range(self, key: str, start: int, length_bytes: int, etag: str) -> bytes:
        with self._lock:
            found = self._objects.get(key)
        if found is None or _etag(found[0]) != etag:
            raise ObjectChangedError(f"memory://{key} was written anew, or is gone")
        return found[0][start : start + length_bytes]

    def stat(self, key: str) -> ObjectStat | None:
        with self._lock:
            found = self._objects.get(key)
            return None if found is None else ObjectStat(key, len(found[0]), found[1], self._clock(), _etag(found[0]))

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectStat]:
        with self._lock:
            now = self._clock()
            keys = sorted(k for k in self._objects if k.startswith(prefix) and k > start_after)
            found = [ObjectStat(k, len(self._objects[k][0]), self._objects[k][1], now, _etag(self._objects[k][0])) for k in keys]
        return iter(found)

    def delete(self, key: str) -> None:
        with self._lock:
            self._objects.pop(key, None)


def _etag(content: bytes) -> str:
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'
