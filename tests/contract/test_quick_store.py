"""The quick reader of a real S3 store lists and reads what boto3's client lists and reads, and leaves the rest to it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.contract.test_object_store import settings_of
from tests.support.dataset_versions import manifest
from trainhouse.checkpointing.artifacts.artifact_store import ArtifactStore
from trainhouse.checkpointing.stores.s3 import S3ObjectStore
from trainhouse.cli.artifacts.artifact_commands import _facts
from trainhouse.client.backend_protocol import Row
from trainhouse.client.quick.quick_manifests import artifact_rows, dataset_manifest
from trainhouse.client.quick.quick_store import QuickStore
from trainhouse.client.quick.quick_topics import NotQuickError
from trainhouse.deploy.local.free_ports import free_port
from trainhouse.events.model.dataset_keys import manifest_key

if TYPE_CHECKING:
    from trainhouse.deploy.local.servers.seaweedfs import StoreServer

pytestmark = pytest.mark.stack


@pytest.fixture
def objects(object_store_endpoint: StoreServer) -> S3ObjectStore:
    return S3ObjectStore(settings_of(object_store_endpoint))


@pytest.fixture
def quick(object_store_endpoint: StoreServer) -> QuickStore:
    server = object_store_endpoint
    return QuickStore(server.endpoint, server.bucket, "us-east-1", server.access_key, server.secret_key)


@pytest.fixture
def project() -> str:
    return f"of {uuid.uuid4().hex}"


def rows(artifacts: ArtifactStore, project: str, name: str | None) -> Iterator[Row]:
    for version in artifacts.names() if name is None else artifacts.versions(name):
        facts = _facts(artifacts.manifest(version.sha256))
        yield {"name": version.name, "project": project, **facts, "stored_at_s": version.stored_at_s, "named_by": version.by}


def stored(artifacts: ArtifactStore, path: Path, *contents: str) -> None:
    for name, content in zip(("words", "words", "words-2"), contents, strict=False):
        path.write_text(content)
        artifacts.put(name, "tokenizer", path, "user")
        artifacts.put(name, "tokenizer", path, "job.j-1")


@pytest.mark.parametrize("name", [None, "words", "words-2", "nothing"])
def test_artifacts_are_those_of_the_whole_store(
    name: str | None, objects: S3ObjectStore, quick: QuickStore, project: str, tmp_path: Path
) -> None:
    artifacts = ArtifactStore(objects, project)
    stored(artifacts, tmp_path / "f", "one", "two", "three")
    found = artifact_rows(quick, project, name)
    assert found == list(rows(artifacts, project, name)) and len(found) == {None: 3, "words": 2, "words-2": 1}.get(name, 0)


def test_a_long_list_is_whole(objects: S3ObjectStore, quick: QuickStore) -> None:
    prefix = f"many/{uuid.uuid4().hex}/"
    for number in range(1001):
        objects.put(f"{prefix}{number:04}", b"")
    found = quick.below(prefix)
    assert [(each.key, each.modified_s) for each in found] == [(each.key, each.modified_s) for each in objects.list(prefix)]
    assert len(found) == 1001


def test_a_manifest_is_read_by_its_hash_alone(objects: S3ObjectStore, quick: QuickStore, project: str) -> None:
    model = manifest(licence="CC0")
    objects.put(manifest_key(project, model.sha256()), model.canonical_json())
    assert dataset_manifest(quick, project, model.sha256()).model_dump(mode="json") == model.model_dump(mode="json")
    objects.put(manifest_key(project, "0" * 64), model.canonical_json())
    for sha256 in ("0" * 64, "1" * 64):  # of another content, and missing
        with pytest.raises(NotQuickError):
            dataset_manifest(quick, project, sha256)
    with pytest.raises(NotQuickError, match="bytes"):
        quick.content(manifest_key(project, model.sha256()), model.sha256(), most_bytes=10)


def test_what_does_not_answer_is_for_the_whole_store(quick: QuickStore) -> None:
    away = QuickStore(f"http://127.0.0.1:{free_port()}", quick.bucket, quick.region, quick.access_key, quick.secret_key)
    refused = QuickStore(quick.endpoint, quick.bucket, quick.region, quick.access_key, "another")
    for store in (away, refused, QuickStore(quick.endpoint, "no-such-bucket", quick.region, quick.access_key, quick.secret_key)):
        with pytest.raises(NotQuickError):
            store.below("a/")
        with pytest.raises(NotQuickError):
            store.content("a", "0" * 64, 10)
