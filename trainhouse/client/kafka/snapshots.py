"""The scheduler's port for snapshots, over the object store: the scheduler itself knows nothing of checkpointing."""

from collections.abc import Iterator
from dataclasses import dataclass

from trainhouse.checkpointing.stores.object_store import ObjectStore, get_or_none
from trainhouse.checkpointing.stores.topic_archive import ObjectArchive


@dataclass(frozen=True)
class ObjectSnapshots:
    """Snapshots as objects. All methods block; errors are the object store's."""

    objects: ObjectStore

    def put(self, key: str, data: bytes) -> None:
        """Stores an object, replacing it if it is there."""
        self.objects.put(key, data)

    def get(self, key: str) -> bytes | None:
        """The object, None when there is none."""
        return get_or_none(self.objects, key)

    def keys(self, prefix: str, start_after: str = "") -> Iterator[str]:
        """Keys that begin with `prefix`, in order."""
        return (found.key for found in self.objects.list(prefix, start_after))

    def delete(self, key: str) -> None:
        """Removes an object; one that is not there is fine."""
        self.objects.delete(key)


def journal_stores() -> tuple[ObjectSnapshots, ObjectArchive]:
    """The stores of snapshots and of the archive that settings name."""
    from trainhouse.checkpointing.settings import StoreSettings
    from trainhouse.checkpointing.stores.s3 import S3ObjectStore

    return ObjectSnapshots(S3ObjectStore(StoreSettings())), ObjectArchive()
