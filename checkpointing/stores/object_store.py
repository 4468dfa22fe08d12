"""The port to an object store: what Trainhouse needs of one, and no more.

Holds: a write is whole or absent; a read sees the last write; `put_if_absent` lets one content win, for ever.
Never: hides that the store is away: after its deadline every operation raises ObjectStoreUnavailableError.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from trainhouse.checkpointing.errors import ObjectMissingError

Body = bytes | bytearray | memoryview


@dataclass(frozen=True)
class ObjectStat:
    """Metadata of one object. Both times are by the store's clock, in seconds since 1970; `etag`: the store's name of the content, empty
    where it gives none."""

    key: str
    size_bytes: int
    modified_s: float
    asked_s: float
    etag: str = ""

    @property
    def age_s(self) -> float:
        """Seconds since it was written, when it was asked."""
        return max(0.0, self.asked_s - self.modified_s)


class ObjectStore(Protocol):
    """All methods block; all raise ObjectStoreUnavailableError (retryable) or ObjectStoreRefusedError. Safe to share by threads.

    Reads raise DamagedError where the store's own checksum shows that what came is not what was written.
    """

    @property
    def address(self) -> str:
        """Address of the store, for messages: endpoint and bucket."""
        ...

    def uri(self, key: str) -> str:
        """The object's address, `s3://bucket/key`."""
        ...

    def put(self, key: str, body: Body) -> None:
        """Writes or overwrites; large bodies go up in parts."""
        ...

    def put_if_absent(self, key: str, body: Body) -> bool:
        """Returns whether this content is now under the key; another one stays. Two writers of equal contents both get True."""
        ...

    def get(self, key: str) -> bytes:
        """The whole content. Raises ObjectMissingError."""
        ...

    def get_range(self, key: str, start: int, length_bytes: int) -> bytes:
        """`length_bytes` from `start`, fewer at the end. Raises ObjectMissingError."""
        ...

    def stat(self, key: str) -> ObjectStat | None:
        """Size and age, or None if there is no such object."""
        ...

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectStat]:
        """Objects whose key begins with `prefix`, in the order of keys, after `start_after`."""
        ...

    def delete(self, key: str) -> None:
        """Removes it; one that is not there is fine."""
        ...


@runtime_checkable
class ReadsInto(Protocol):
    """Store that reads into memory of the caller; hashes the bytes while the processor's cache has them."""

    def get_into(self, key: str, room: memoryview) -> tuple[int, str]:
        """Fills `room` with the content; returns the content's size in bytes and the SHA-256 of what is in `room`, in hex.

        Of a content that is longer than `room` nothing has to be read, and the hash is empty. Blocks; raises as `ObjectStore.get`.
        """
        ...


@runtime_checkable
class ListsUploads(Protocol):
    """Store that takes large files in parts, which stay until their upload is ended."""

    def unfinished_uploads(self, prefix: str, older_than_s: float) -> Iterator[tuple[str, ObjectStat]]:
        """Uploads of keys that begin with `prefix` and which began longer ago: id, and the key with the bytes of all parts so far and
        when it began. Blocks."""
        ...

    def end_upload(self, key: str, upload_id: str) -> None:
        """Ends one, and removes its parts; one that has ended is fine. Blocks."""
        ...


def exists(objects: ObjectStore, key: str) -> bool:
    """Returns whether there is an object under the key."""
    return objects.stat(key) is not None


def get_or_none(objects: ObjectStore, key: str) -> bytes | None:
    """The content, or None if there is none."""
    try:
        return objects.get(key)
    except ObjectMissingError:
        return None
