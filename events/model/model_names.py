"""Names of models and their versions: `NAME@3` by ordinal, `NAME@1.2.0` by semver, `NAME@champion` by stage. Pure.

Holds: a model belongs to one project; its topics are keyed by `PROJECT/NAME`; lineage names a version `model:NAME@V`, of another project
than the default one `model:PROJECT/NAME@V`.
"""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field, StringConstraints

from trainhouse.events.model.bounds import MOST_SMALL
from trainhouse.events.model.default_project import DEFAULT_PROJECT
from trainhouse.events.model.model_key import model_key
from trainhouse.events.model.version_names import NAME_PATTERN, SEMVER_PATTERN

MOST_MODEL_REFERENCE_CHARS: Final = 320
ModelName = Annotated[str, StringConstraints(max_length=128, pattern=rf"^{NAME_PATTERN}$")]
VersionOrdinal = Annotated[int, Field(ge=1, le=MOST_SMALL)]
"""Number of a version among those of its model, from 1; MLflow's version."""
VersionSelector = Annotated[str, StringConstraints(max_length=64, pattern=rf"^(?:[1-9][0-9]{{0,9}}|{SEMVER_PATTERN}|champion)$")]
"""Version as people name it: its ordinal, its semver, or `champion`."""


class ModelStage(StrEnum):
    """Stage of a version. Of a model, at most one version is champion."""

    STAGING = "staging"
    CHAMPION = "champion"
    ARCHIVED = "archived"


class VersionBump(StrEnum):
    """Least step from the newest version's semver to the next one's."""

    PATCH = "patch"
    MINOR = "minor"
    MAJOR = "major"


def model_lineage_id(project: str, name: str, version: int) -> str:
    """Id of a version in lineage."""
    return f"model:{name if project == DEFAULT_PROJECT else model_key(project, name)}@{version}"
