"""Facts behind a lease, read from the store: the job's project, and the chunks of other jobs that its checkpoints name.

Holds: `jobs/{job}/owner` is written once, before the job's first rank has leave, and no leave reaches it. Only checkpoints of epochs before
that name shared chunks: what a rank writes later under an old epoch's number names nothing of another job.
Never: takes a job for one of a project that nothing says it is of.
"""

from dataclasses import dataclass

import orjson

from trainhouse.checkpointing.chain.commits import entries_newest_first, head
from trainhouse.checkpointing.chain.manifest import Manifest
from trainhouse.checkpointing.errors import DamagedError, ObjectStoreRefusedError
from trainhouse.checkpointing.stores.object_store import ObjectStore, get_or_none


@dataclass(frozen=True)
class Owner:
    """A job's project, and the first epoch that had leave for its own prefix alone."""

    project: str
    first_epoch: int


def owner_key(job_id: str) -> str:
    """Key of a job's owner record."""
    return f"jobs/{job_id}/owner"


def owner_of(objects: ObjectStore, job_id: str) -> Owner | None:
    """Returns the recorded owner of a job, or None. Blocks. Raises ObjectStoreUnavailableError, ObjectStoreRefusedError."""
    content = get_or_none(objects, owner_key(job_id))
    if content is None:
        return None
    try:
        record = orjson.loads(content)
        return Owner(str(record["project"]), int(record["first_epoch"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ObjectStoreRefusedError(
            f"{objects.uri(owner_key(job_id))} does not say whose the job is ({error}); see `store own`"
        ) from error


def owned(objects: ObjectStore, job_id: str, project: str, epoch: int) -> Owner:
    """Returns the owner of a starting job; records its project unless it has one. Raises ObjectStoreRefusedError if it is another
    project."""
    found = owner_of(objects, job_id)
    if found is None:
        # A job without a chain has no checkpoints of before: whatever it writes as one of those is its own invention.
        first_epoch = epoch if head(objects, job_id) >= 0 else 0
        if objects.put_if_absent(owner_key(job_id), orjson.dumps({"project": project, "first_epoch": first_epoch})):
            return Owner(project, first_epoch)
        found = owner_of(objects, job_id)
    if found is None or found.project != project:
        raise ObjectStoreRefusedError(
            f"job {job_id} is of project {project!r}, and in {objects.address} a job of this name is of another one; "
            "submit it under another name"
        )
    return found


def say_owner(objects: ObjectStore, job_id: str, project: str) -> Owner:
    """Records the owner of a job that ended before owners were recorded. Raises ObjectStoreRefusedError if it has another owner."""
    epochs = [int(entry.epoch) for _, entry in entries_newest_first(objects, job_id) if not isinstance(entry, DamagedError)]
    return owned(objects, job_id, project, max(epochs, default=-1) + 1)


def resumable(objects: ObjectStore, job_id: str, project: str) -> Owner:
    """The owner of a job that one of `project` begins from. Raises ObjectStoreRefusedError, alike for one of another project and one of
    none."""
    found = owner_of(objects, job_id)
    if found is None or found.project != project:
        raise ObjectStoreRefusedError(
            f"resume_from {job_id}: no such job is known in project {project!r}; an operator names the project of one that is older than "
            f"leave to the store: `trainhouse store own {job_id} --project {project}`"
        )
    return found


def shared_chunks_of(objects: ObjectStore, job_id: str, first_epoch: int) -> frozenset[str]:
    """Hashes of chunks among those of all jobs that this job's checkpoints from before `first_epoch` name. Reads its chain; blocks."""
    entries = (entry for _, entry in entries_newest_first(objects, job_id))
    named = (e for e in entries if isinstance(e, Manifest) and not e.has_own_chunks and e.epoch < first_epoch)
    return frozenset(chunk.sha256 for manifest in named for chunk in manifest.chunks)
