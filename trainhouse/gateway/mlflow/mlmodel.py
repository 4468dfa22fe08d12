"""Facts of a version in the `MLmodel` file that MLflow's clients log with a model: its framework and its schemas. Pure.

Holds: what a client left out, or writes in a way that is not known here, is left out; the file decides nothing but the version's schema.
All of it is read as text: merges and numbers, which a few lines can make as large as they like, are not made of it.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

import yaml

from trainhouse.checkpointing.models.version_content import VersionParts
from trainhouse.events.model.model_content import ModelContentError

MLMODEL: Final = "MLmodel"
MOST_MLMODEL_BYTES: Final = 64 << 10
_ANY: Final = "python_function"
"""Flavor by which every model is loaded that Python loads."""


def parts_of_mlmodel(text: bytes) -> VersionParts:
    """Parts of a version. Raises ModelContentError where the file is no mapping, or a long one."""
    check_mlmodel_size(len(text))
    try:
        # In Python: the parser in C has no bound of depth, and ends the process by it. This one makes texts, lists and mappings alone.
        found = yaml.load(text, Loader=yaml.BaseLoader)  # nosec B506
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ModelContentError(f"{MLMODEL} is no YAML: {str(error)[:500]}") from error
    if not isinstance(found, Mapping):
        raise ModelContentError(f"{MLMODEL} is no mapping of names to values; log the model again")
    signature = found.get("signature")
    schemas = signature if isinstance(signature, Mapping) else {}
    return VersionParts(
        framework=_framework(found.get("flavors"), found.get("mlflow_version")),
        input_schema=_schema(schemas.get("inputs")),
        output_schema=_schema(schemas.get("outputs")),
    )


def check_mlmodel_size(size_bytes: int) -> None:
    """Raises ModelContentError for more than is read."""
    if size_bytes > MOST_MLMODEL_BYTES:
        raise ModelContentError(f"{MLMODEL} has {size_bytes} bytes, and may have {MOST_MLMODEL_BYTES}")


def _framework(flavors: object, mlflow_version: object) -> str:
    """The flavor beside python_function with the version of its framework, such as sklearn 1.9.1; else MLflow itself."""
    own = [name for name in flavors if isinstance(name, str) and name != _ANY] if isinstance(flavors, Mapping) else []
    if not own or not isinstance(flavors, Mapping):
        return _words("mlflow", mlflow_version)
    flavor = flavors[own[0]]
    version = flavor.get(f"{own[0]}_version") if isinstance(flavor, Mapping) else None
    return _words(own[0], version)


def _words(name: str, version: object) -> str:
    text = f"{name} {version}" if isinstance(version, str) else name
    return "".join(char for char in text if char.isprintable())[:128] or "mlflow"


def _schema(text: object) -> dict[str, Any] | None:
    """Columns of a signature, which the file has as JSON in a text."""
    if not isinstance(text, str):
        return None
    try:
        columns = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return {"columns": columns} if isinstance(columns, list) else None
