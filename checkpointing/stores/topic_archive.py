"""Archives of topics, in the object store that has the checkpoints: the port of `events.archive`.

Holds: cheap to import and to make; the store's client is loaded with its first use, so that nobody pays for an archive that is not asked.
Never: deletes.
"""

from collections.abc import Iterator
from functools import cached_property

from trainhouse.checkpointing.stores.object_store import ObjectStore, get_or_none


class ObjectArchive:
    """Archives as objects, by default in the store that settings name. All methods block; errors are the object store's."""

    def __init__(self, objects: ObjectStore | None = None) -> None:
        self._given = objects

    def put_if_absent(self, key: str, body: bytes) -> bool:
        """Returns whether this content is now under the key."""
        return self._objects.put_if_absent(key, body)

    def get(self, key: str) -> bytes | None:
        """The object, None when there is none."""
        return get_or_none(self._objects, key)

    def keys(self, prefix: str, start_after: str = "") -> Iterator[str]:
        """Keys that begin with `prefix`, in order."""
        return (found.key for found in self._objects.list(prefix, start_after))

    @cached_property
    def _objects(self) -> ObjectStore:
        if self._given is not None:
            return self._given
        from trainhouse.checkpointing.settings import StoreSettings
        from trainhouse.checkpointing.stores.s3 import S3ObjectStore

        return S3ObjectStore(StoreSettings())
