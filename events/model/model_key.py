"""Names of models as they are typed, `NAME` or `PROJECT/NAME`, and as keys of their records. Pure, without models of events."""

import re

from trainhouse.events.model.default_project import DEFAULT_PROJECT
from trainhouse.events.model.version_names import NAME_PATTERN


class ModelNameError(ValueError):
    """A text names no model, or no version of one."""


def model_key(project: str, name: str) -> str:
    """Key of a model's records."""
    return f"{project}/{name}"


def parse_model(text: str, project: str = DEFAULT_PROJECT) -> tuple[str, str]:
    """Reads `NAME` or `PROJECT/NAME` as project and name. Raises ModelNameError."""
    head, slash, name = text.rpartition("/")
    if not re.fullmatch(NAME_PATTERN, name) or (slash and not head):
        raise ModelNameError(
            f"{text[:200]!r} names no model: write NAME or PROJECT/NAME, NAME of 1 to 128 letters, digits, '.', '_' and '-', "
            "beginning with a letter or digit"
        )
    return (head or project), name
