"""Names of datasets and their versions, `NAME@sha256:…` by content, `NAME@1.2.0` by a semver tag; and of their objects in the store. Pure.

Holds: the version id of equal contents is equal on every machine; a tag, once taken, names one version for ever. Objects
of two projects have no prefix in common, so that leave for one project's never reaches the other's.
"""

import hashlib
import re
from typing import Annotated, Final

from pydantic import StringConstraints

from trainhouse.events.model.version_names import MOST_REFERENCE_CHARS as MOST_REFERENCE_CHARS
from trainhouse.events.model.version_names import NAME_PATTERN as NAME_PATTERN
from trainhouse.events.model.version_names import REFERENCE_PATTERN as REFERENCE_PATTERN
from trainhouse.events.model.version_names import SEMVER_PATTERN as SEMVER_PATTERN
from trainhouse.events.model.version_names import SHA256_PATTERN as SHA256_PATTERN
from trainhouse.events.model.version_names import SPLIT_PATTERN as SPLIT_PATTERN
from trainhouse.events.model.version_names import DatasetNameError as DatasetNameError
from trainhouse.events.model.version_names import VersionName as VersionName
from trainhouse.events.model.version_names import is_dataset_name as is_dataset_name

_BY_HASH: Final = "sha256-"

DatasetName = Annotated[str, StringConstraints(max_length=128, pattern=rf"^{NAME_PATTERN}$")]
Semver = Annotated[str, StringConstraints(max_length=64, pattern=rf"^{SEMVER_PATTERN}$")]
SplitName = Annotated[str, StringConstraints(max_length=64, pattern=rf"^{SPLIT_PATTERN}$")]
FieldName = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
"""Extension of a sample's member, or `json.` and a column."""
VersionReference = Annotated[str, StringConstraints(max_length=MOST_REFERENCE_CHARS, pattern=rf"^{REFERENCE_PATTERN}$")]


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
