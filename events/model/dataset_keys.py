"""Keys of datasets in the object store. Pure, without models.

Holds: objects of two projects have no prefix in common, so that leave for one project's never reaches the other's.
"""

import hashlib
import re
from typing import Final

from trainhouse.events.model.version_names import NAME_PATTERN

_BY_HASH: Final = "sha256-"


def datasets_prefix(project: str) -> str:
    """Prefix of all objects of a project's datasets."""
    return f"datasets/{project_word(project)}/"


def project_word(project: str) -> str:
    """Part of a key that stands for a project: its name, or the name's hash where that is no word of a key. Two projects have two."""
    return project if re.fullmatch(NAME_PATTERN, project) and not project.startswith(_BY_HASH) else _BY_HASH + _sha256(project)


def manifest_key(project: str, sha256: str) -> str:
    """Key of a manifest."""
    return f"{datasets_prefix(project)}manifests/{sha256}.json"


def profiles_key(project: str, sha256: str) -> str:
    """Key of the distributions of a version's values, by the hash of its manifest."""
    return f"{datasets_prefix(project)}manifests/{sha256}.profiles.json"


def publishing_key(project: str, publication_id: str) -> str:
    """Key of the note that a publication runs, which keeps a sweep from what it finds in the store."""
    return f"{datasets_prefix(project)}publishing/{publication_id}"


def shard_key(project: str, sha256: str) -> str:
    """Key of a shard's tar."""
    return f"{datasets_prefix(project)}shards/{sha256[:2]}/{sha256}.tar"


def index_key(project: str, sha256: str) -> str:
    """Key of the index of a shard, named by the tar's hash."""
    return f"{datasets_prefix(project)}shards/{sha256[:2]}/{sha256}.idx"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
