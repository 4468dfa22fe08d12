"""Names of datasets and their versions, `NAME@sha256:…` by content, `NAME@1.2.0` by a semver tag; and of their objects in the store. Pure.

Holds: the version id of equal contents is equal on every machine; a tag, once taken, names one version for ever. Objects
of two projects have no prefix in common, so that leave for one project's never reaches the other's.
"""

from typing import Annotated

from pydantic import StringConstraints

from trainhouse.events.model.dataset_keys import datasets_prefix as datasets_prefix
from trainhouse.events.model.dataset_keys import index_key as index_key
from trainhouse.events.model.dataset_keys import manifest_key as manifest_key
from trainhouse.events.model.dataset_keys import profiles_key as profiles_key
from trainhouse.events.model.dataset_keys import project_word as project_word
from trainhouse.events.model.dataset_keys import publishing_key as publishing_key
from trainhouse.events.model.dataset_keys import shard_key as shard_key
from trainhouse.events.model.version_names import MOST_REFERENCE_CHARS as MOST_REFERENCE_CHARS
from trainhouse.events.model.version_names import NAME_PATTERN as NAME_PATTERN
from trainhouse.events.model.version_names import REFERENCE_PATTERN as REFERENCE_PATTERN
from trainhouse.events.model.version_names import SEMVER_PATTERN as SEMVER_PATTERN
from trainhouse.events.model.version_names import SHA256_PATTERN as SHA256_PATTERN
from trainhouse.events.model.version_names import SPLIT_PATTERN as SPLIT_PATTERN
from trainhouse.events.model.version_names import DatasetNameError as DatasetNameError
from trainhouse.events.model.version_names import VersionName as VersionName
from trainhouse.events.model.version_names import is_dataset_name as is_dataset_name

DatasetName = Annotated[str, StringConstraints(max_length=128, pattern=rf"^{NAME_PATTERN}$")]
Semver = Annotated[str, StringConstraints(max_length=64, pattern=rf"^{SEMVER_PATTERN}$")]
SplitName = Annotated[str, StringConstraints(max_length=64, pattern=rf"^{SPLIT_PATTERN}$")]
FieldName = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
"""Extension of a sample's member, or `json.` and a column."""
VersionReference = Annotated[str, StringConstraints(max_length=MOST_REFERENCE_CHARS, pattern=rf"^{REFERENCE_PATTERN}$")]
