"""Keys of artifacts in the object store. Pure, without models.

Holds: objects of two projects have no prefix in common, so that a hash says nothing of what another project has.
"""

import hashlib
from typing import Final

from trainhouse.events.model.dataset_keys import project_word

PREFIX: Final = "project-artifacts/"


def artifacts_prefix(project: str) -> str:
    """Prefix of all that a project's artifacts are."""
    return f"{PREFIX}{project_word(project)}/"


def object_key(project: str, sha256: str) -> str:
    """Key of a file's content, which all artifacts and runs of a project share."""
    return f"{artifacts_prefix(project)}objects/{sha256[:2]}/{sha256}"


def manifest_key(project: str, sha256: str) -> str:
    """Key of a manifest."""
    return f"{artifacts_prefix(project)}manifests/{sha256}.json"


def names_prefix(project: str, name: str = "") -> str:
    """Prefix of the names of a project's versions, or of those of one name."""
    return f"{artifacts_prefix(project)}names/" + (f"{name}/" if name else "")


def name_key(project: str, name: str, sha256: str, by: str) -> str:
    """Key that says that a version has a name. `by`: BY_USER, or BY_JOB and the job that stored it, whose deletion ends it."""
    return f"{names_prefix(project, name)}{sha256}/{by}"


def reference_key(project: str, sha256: str, by: str) -> str:
    """Key that says that something else names a version, such as OF_DATASET and the hash of the dataset's manifest."""
    return f"{artifacts_prefix(project)}references/{sha256}/{by}"


def run_file_key(project: str, job_id: str, path: str, sha256: str) -> str:
    """Key that says that a run has this file under a path."""
    return f"{run_file_prefix(project, job_id, path)}{sha256}"


def run_file_prefix(project: str, job_id: str, path: str) -> str:
    """Prefix of the files that a run has, or had until just now, under a path."""
    return f"{artifacts_prefix(project)}run-files/{job_id}/{hashlib.sha256(path.encode()).hexdigest()[:32]}."


def deleted_run_key(project: str, job_id: str) -> str:
    """Key that says that a run was deleted; while it is there, the run keeps nothing once the grace is over."""
    return f"{artifacts_prefix(project)}deleted-runs/{job_id}"


def storing_key(project: str, number: str) -> str:
    """Key of the note that something is being stored, which keeps a sweep from what it relies on."""
    return f"{artifacts_prefix(project)}storing/{number}"


def unnamed_prefix(project: str) -> str:
    """Prefix of the notes of files that were stored and that no version or run names yet."""
    return f"{artifacts_prefix(project)}unnamed/"


def unnamed_key(project: str, sha256: str, size_bytes: int) -> str:
    """Key of the note of such a file: its name says what it counts."""
    return f"{unnamed_prefix(project)}{sha256}.{size_bytes}"
