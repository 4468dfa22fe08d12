"""A rank reads the version of a dataset that its spec names, and nothing of another version or project, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.security.store_lease_support import Attempt, allocation, asked, fresh, plain, settings_of
from trainhouse.checkpointing.errors import CheckpointError, ObjectStoreRefusedError
from trainhouse.checkpointing.lease.access_rule import Ask, Operation
from trainhouse.checkpointing.lease.lease_client import LeaseClient
from trainhouse.events.model.dataset import Manifest
from trainhouse.events.model.dataset_names import datasets_prefix, index_key, manifest_key, shard_key
from trainhouse.workers.agent.launch.lease_socket import StoreLeases
from trainhouse.workers.data.publishing.bounded_files import LocalRoot
from trainhouse.workers.data.publishing.publication import Publication, Terms
from trainhouse.workers.data.publishing.sources import source_of
from trainhouse.workers.data.publishing.split_rule import SplitRule
from trainhouse.workers.data.stored_versions import read_manifest, shards_of

if TYPE_CHECKING:
    from trainhouse.deploy.local.servers.seaweedfs import StoreServer

pytestmark = pytest.mark.stack
MINE, OTHERS = "lm", "vision / 2"


@pytest.fixture(scope="module")
def leases(object_store_endpoint: StoreServer) -> Iterator[StoreLeases]:
    made = StoreLeases(settings_of(object_store_endpoint))
    yield made
    made.close()


def published(server: StoreServer, folder: Path, project: str, text: str) -> Manifest:
    folder.mkdir()
    (folder / "rows.jsonl").write_text("".join(f'{{"id": {n}, "text": "{text} {n}"}}\n' for n in range(50)))
    return Publication(source_of(LocalRoot(folder / "rows.jsonl")), SplitRule(), Terms()).publish(plain(server), project)


def keys_of(project: str, manifest: Manifest) -> list[str]:
    """Of all objects of a version."""
    shards = [shard.sha256 for _, shard in shards_of(manifest)]
    return [manifest_key(project, manifest.sha256()), *(f(project, sha256) for f in (shard_key, index_key) for sha256 in shards)]


def test_ranks_read_the_version_that_their_spec_names_and_no_other(
    object_store_endpoint: StoreServer, leases: StoreLeases, tmp_path: Path
) -> None:
    mine = published(object_store_endpoint, tmp_path / "a", MINE, "mine")
    newer = published(object_store_endpoint, tmp_path / "b", MINE, "of another version")
    foreign = published(object_store_endpoint, tmp_path / "c", OTHERS, "canary")
    told = allocation(fresh("reads"), 1, MINE, dataset=f"text@sha256:{mine.sha256()}")
    attempt = Attempt.begun(object_store_endpoint, leases, tmp_path / "attempt", told)
    store = attempt.store()
    assert read_manifest(store, MINE, mine.sha256()) == mine
    for _, shard in shards_of(mine):
        assert store.get_range(shard_key(MINE, shard.sha256), 0, 512) == plain(object_store_endpoint).get_range(
            shard_key(MINE, shard.sha256), 0, 512
        )
        assert store.stat(index_key(MINE, shard.sha256)) is not None

    tried = 0
    leave = LeaseClient(attempt.paths.store_socket)
    url, headers = leave.sign(Ask(Operation.GET, keys_of(MINE, mine)[0]))
    for key in [*keys_of(MINE, newer), *keys_of(OTHERS, foreign), *keys_of(OTHERS, mine), *keys_of(MINE, foreign), datasets_prefix(MINE)]:
        for operation in Operation:
            with pytest.raises(CheckpointError):
                leave.sign(Ask(operation, key))
            tried += 1
        status, body = asked("GET", url.replace(keys_of(MINE, mine)[0], key), headers)
        assert status in (400, 403, 404) and b"canary" not in body, (status, key)
        tried += 1
    for operation in Operation:
        if operation not in (Operation.GET, Operation.HEAD):
            with pytest.raises(CheckpointError):
                leave.sign(Ask(operation, keys_of(MINE, mine)[0]))
            tried += 1
    assert tried > 100


def test_a_spec_that_names_anothers_version_reads_nothing(object_store_endpoint: StoreServer, leases: StoreLeases, tmp_path: Path) -> None:
    """Whatever the directory took for true: the leave is for the prefix of the job's own project."""
    foreign = published(object_store_endpoint, tmp_path / "c", OTHERS, "a second canary")
    told = allocation(fresh("claims"), 1, MINE, dataset=f"text@sha256:{foreign.sha256()}")
    store = Attempt.begun(object_store_endpoint, leases, tmp_path / "attempt", told).store()
    for key in keys_of(OTHERS, foreign):
        with pytest.raises(ObjectStoreRefusedError):
            store.get(key)
    for key in keys_of(MINE, foreign)[1:]:
        with pytest.raises(ObjectStoreRefusedError, match="is missing; publish the version again from its source"):
            store.get(key)
