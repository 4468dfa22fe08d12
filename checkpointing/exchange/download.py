"""Copy of a prefix of an object store into a folder, in blocks."""

from pathlib import Path

from trainhouse.checkpointing.errors import ExportError
from trainhouse.checkpointing.exchange.file_writer import BLOCK_BYTES
from trainhouse.checkpointing.stores.object_store import ObjectStore


def download(objects: ObjectStore, prefix: str, folder: Path) -> int:
    """Copies all objects under the prefix; returns how many. Raises ExportError for a full disk, or a key that is no path in a folder."""
    count = 0
    for found in objects.list(prefix):
        if found.key.endswith("/") and not found.size_bytes:
            continue  # a folder, as consoles of S3 mark one
        parts = found.key.removeprefix(prefix).split("/")
        if any(part in ("", ".", "..") for part in parts):
            raise ExportError(f"{objects.uri(found.key)} cannot be a file in a folder; remove it, or name another prefix")
        path = folder.joinpath(*parts)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                for start in range(0, found.size_bytes, BLOCK_BYTES):
                    file.write(objects.get_range(found.key, start, min(BLOCK_BYTES, found.size_bytes - start)))
        except OSError as error:
            raise ExportError(f"{objects.uri(found.key)} into {folder}: {error.strerror}; name another folder by --spool") from error
        count += 1
    return count
