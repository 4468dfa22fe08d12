"""Manifests of datasets and artifacts from the object store, without models: what has its hash, and the form of its model.

Holds: what is missing, damaged or of another form raises NotQuickError, for whom reads by models to say what is wrong.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

from trainhouse.checkpointing.artifacts.artifact_versions import ArtifactVersion, versions_of
from trainhouse.client.quick.plain_events import NotPlainError, plain_manifest
from trainhouse.client.quick.quick_store import QuickStore
from trainhouse.client.quick.quick_topics import NotQuickError
from trainhouse.events.model import artifact_keys, version_names
from trainhouse.events.model.dataset_manifest_rules import check_sums


def dataset_manifest(project: str, sha256: str) -> Any:
    """The manifest of a dataset's version, with the fields of its model. Blocks. Raises NotQuickError."""
    found = _manifest(_store(), "dataset", version_names.manifest_key(project, sha256), sha256)
    try:
        check_sums(found)
    except ValueError as error:
        raise NotQuickError(str(error)) from error
    return found


def artifact_versions(project: str, name: str | None) -> Iterator[tuple[ArtifactVersion, Any]]:
    """The versions of a project's artifacts, or of one, by name and age, with their manifests. Blocks. Raises NotQuickError."""
    store, root = _store(), artifact_keys.names_prefix(project)
    for version in versions_of(store.names(root if name is None else artifact_keys.names_prefix(project, name)), root):
        manifest = _manifest(store, "artifact", artifact_keys.manifest_key(project, version.sha256), version.sha256)
        paths = [file.path for file in manifest.files]
        try:
            artifact_keys.check_paths(paths)
        except ValueError as error:
            raise NotQuickError(str(error)) from error
        if paths != sorted(paths):
            raise NotQuickError("files of an artifact do not stand by their paths")
        yield version, manifest


def _store() -> QuickStore:
    from trainhouse.client.quick.quick_reads import quick_ways

    store = quick_ways().store
    if store is None:
        raise NotQuickError("the settings models have to decide")
    return store


def _manifest(store: QuickStore, kind: str, key: str, sha256: str) -> Any:
    content = store.get(key)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise NotQuickError(f"{key} has other contents than its name says")
    try:
        return plain_manifest(kind, content)
    except NotPlainError as error:
        raise NotQuickError(str(error)) from error
