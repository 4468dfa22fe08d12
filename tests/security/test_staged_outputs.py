"""Outputs on a real object store: what ranks staged is judged before any of it is copied."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.security.store_lease_support import plain
from trainhouse.events.model.dataset_keys import index_key
from trainhouse.events.model.output_names import staged_index_key, staged_shard_key
from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.outputs.sealing import seal
from trainhouse.workers.data.outputs.written_output import JobOutputStore, Output
from trainhouse.workers.data.stored_versions import problems_of, read_manifest, shards_of

if TYPE_CHECKING:
    from trainhouse.deploy.local.servers.seaweedfs import StoreServer

pytestmark = pytest.mark.stack


def test_an_output_is_whole_on_the_store_and_a_spoiled_one_is_not_there(object_store_endpoint: StoreServer, tmp_path: Path) -> None:
    store, job, project = plain(object_store_endpoint), f"j-{secrets.token_hex(4)}", f"p-{secrets.token_hex(4)}"
    with Output(JobOutputStore(store, job, "out", 0, 0), 0, shard_bytes=24 << 20) as out:
        for n in range(10):
            out.add({"bin": bytes([n]) * (4 << 20), "json": {"n": n}})
    version = seal(store, job, project, "out", 0, folder=tmp_path)
    shards = [shard for _, shard in shards_of(read_manifest(store, project, version.sha256))]
    assert len(shards) > 1 and [problems_of(store, project, shard) for shard in shards] == [[]] * len(shards)
    assert not list(tmp_path.iterdir())
    store.put(index_key(project, shards[0].sha256), b"spoiled")
    assert seal(store, job, project, "out", 0) == version and problems_of(store, project, shards[0]) == []
    store.put(staged_index_key(job, "out", shards[0].sha256), b"spoiled")
    other = f"{project}-other"
    with pytest.raises(InvalidDataError, match="has other contents"):
        seal(store, job, other, "out", 0)
    store.delete(staged_shard_key(job, "out", shards[0].sha256))
    with pytest.raises(InvalidDataError, match="is missing"):
        seal(store, job, other, "out", 0)
    assert not list(store.list(f"datasets/{other}/"))
