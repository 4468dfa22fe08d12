"""Manifests of artifacts and datasets in the object store, read without their models, by their schemas.

Holds: a manifest is as its model reads it; one that is missing, has another hash than its key or is not plainly readable raises
NotQuickError. A test holds the schemas to the models.
Never: looks at rules across fields: what names a manifest by its hash was written after its model held them.
"""

from functools import lru_cache
from pathlib import Path
from typing import Final

import orjson

from trainhouse.checkpointing.artifacts.artifact_versions import versions_of
from trainhouse.client.backend_protocol import Row
from trainhouse.client.quick.plain_events import Fields, NotPlainError, Schema, plain_document
from trainhouse.client.quick.quick_store import QuickStore
from trainhouse.client.quick.quick_topics import NotQuickError
from trainhouse.events.model import artifact_keys, dataset_keys
from trainhouse.events.model.version_names import is_dataset_name

ARTIFACT: Final = "artifact_manifest"
DATASET: Final = "dataset_manifest"
MOST_BYTES: Final = 1 << 20
"""Of larger ones the models read faster."""


def artifact_rows(store: QuickStore, project: str, name: str | None) -> list[Row]:
    """Versions of a project's artifacts, or of those of one name, by name and age. Blocks. Raises NotQuickError."""
    # A prefix of a name is a folder of keys, which another text than a name may not be.
    if name is not None and not is_dataset_name(name):
        raise NotQuickError(f"{name} is no name")
    root = artifact_keys.names_prefix(project)
    rows = []
    for version in versions_of(root, store.below(artifact_keys.names_prefix(project, name or ""))):
        manifest = _read(store, ARTIFACT, artifact_keys.manifest_key(project, version.sha256), version.sha256)
        facts = {"kind": manifest.kind, "size_bytes": sum(file.bytes for file in manifest.files), "files": len(manifest.files)}
        stored = {"stored_at_s": version.stored_at_s, "named_by": version.by}
        rows.append({"name": version.name, "project": project, "sha256": version.sha256, **facts, **stored})
    return rows


def dataset_manifest(store: QuickStore, project: str, sha256: str) -> Fields:
    """The manifest of a version of a dataset. Blocks. Raises NotQuickError."""
    return _read(store, DATASET, dataset_keys.manifest_key(project, sha256), sha256)


def _read(store: QuickStore, kind: str, key: str, sha256: str) -> Fields:
    try:
        return plain_document(schema_of(kind), orjson.loads(store.content(key, sha256, MOST_BYTES)))
    except (NotPlainError, orjson.JSONDecodeError) as error:
        raise NotQuickError(f"{key}: {error}") from error


@lru_cache
def schema_of(kind: str) -> Schema:
    """The schema of ARTIFACT or DATASET, whose fields are in the order of the model."""
    found: Schema = orjson.loads(schema_path(kind).read_bytes())
    return found


def schema_path(kind: str) -> Path:
    """The file of a schema."""
    return Path(__file__).with_name(f"{kind}.json")
