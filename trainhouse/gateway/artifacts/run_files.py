"""Files of a run in the object store: only those of the run's own, and of its project's, are read.

Holds: anyone who may write to a topic names a place; what lies elsewhere is as if it were not there.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from trainhouse.checkpointing.artifacts.artifact_store import hashed_content
from trainhouse.events.model.artifact_keys import object_key
from trainhouse.events.model.tracking import artifact_key

if TYPE_CHECKING:
    from trainhouse.checkpointing.stores.s3 import S3ObjectStore


def run_file(objects: "S3ObjectStore", job_id: str, project: str, found: Mapping[str, Any]) -> Iterator[bytes] | None:
    """The content of a file of a run, of which the first piece was read; None where it is not there. Blocks. Raises DamagedError.

    `found`: its row of `artifacts`, with path, uri, sha256 and size_bytes.
    """
    own, of_project = artifact_key(job_id, found["sha256"]), object_key(project, found["sha256"])
    key = next((key for key in (own, of_project) if found["uri"] == objects.uri(key)), None)
    if key is None or objects.stat(key) is None:
        return None
    pieces = hashed_content(objects, key, found["sha256"], found["size_bytes"], found["path"])
    return chain([next(pieces, b"")], pieces)
