"""Types of fields that hold names of datasets, of their versions and of parts of them; `version_names.py` says what names are. Pure."""

from typing import Annotated

from pydantic import StringConstraints

from trainhouse.events.model.version_names import (
    MOST_REFERENCE_CHARS,
    NAME_PATTERN,
    REFERENCE_PATTERN,
    SEMVER_PATTERN,
    SPLIT_PATTERN,
)

DatasetName = Annotated[str, StringConstraints(max_length=128, pattern=rf"^{NAME_PATTERN}$")]
Semver = Annotated[str, StringConstraints(max_length=64, pattern=rf"^{SEMVER_PATTERN}$")]
SplitName = Annotated[str, StringConstraints(max_length=64, pattern=rf"^{SPLIT_PATTERN}$")]
FieldName = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
"""Extension of a sample's member, or `json.` and a column."""
VersionReference = Annotated[str, StringConstraints(max_length=MOST_REFERENCE_CHARS, pattern=rf"^{REFERENCE_PATTERN}$")]
