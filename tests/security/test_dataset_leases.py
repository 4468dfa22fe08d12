"""A rank reads the version of a dataset that its spec names, and nothing of another version or project, on a real server; another
project's version by its grant alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.security.store_lease_support import Attempt, allocation, asked, fresh, plain, settings_of
from trainhouse.checkpointing.errors import CheckpointError, ObjectStoreRefusedError, ObjectStoreUnavailableError
from trainhouse.checkpointing.lease.access_rule import Ask, Operation
from trainhouse.checkpointing.lease.lease_client import LeaseClient, LeaseUnavailableError
from trainhouse.events import DatasetGranted, DatasetGrantRevoked
from trainhouse.events.model.dataset import Manifest
from trainhouse.events.model.dataset_grant import GrantKey, GrantTable
from trainhouse.events.model.dataset_keys import datasets_prefix, index_key, manifest_key, shard_key
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


class Known:
    """Grants as a reader that has read the topic to its end knows them."""

    def __init__(self) -> None:
        self.table = GrantTable()

    def covers(self, key: GrantKey) -> bool:
        return self.table.covers(key)

    def why_not(self, key: GrantKey) -> str:
        if self.table.revocation(key) is None:
            raise ObjectStoreUnavailableError(f"no grant of {key.reference} yet")
        return f"the grant of {key.reference} was revoked"

    def close(self) -> None: ...


def granted(project: str, version: Manifest, purpose: str = "research") -> DatasetGranted:
    about = {"dataset": "text", "sha256": version.sha256(), "owner": OTHERS, "project": project, "purpose": purpose}
    return DatasetGranted.model_validate(about | {"number": 1, "granted_at_ms": 1})


def test_a_grant_opens_one_version_of_another_project_and_its_end_closes_it(object_store_endpoint: StoreServer, tmp_path: Path) -> None:
    """Probes of every object of three projects by the ranks of each, with and without the grant: none but what is granted succeeds."""
    server, known = object_store_endpoint, Known()
    third = f"audio-{fresh('x')}"
    shared, kept = (published(server, tmp_path / name, OTHERS, f"canary {name}") for name in ("shared", "kept"))
    manifests = {MINE: [published(server, tmp_path / "own", MINE, "canary own")], OTHERS: [shared, kept], third: []}
    manifests[third] = [published(server, tmp_path / "third", third, "canary third")]
    everything = {key for project, versions in manifests.items() for each in versions for key in keys_of(project, each)}
    known.table.fold(granted(MINE, shared))
    leases = StoreLeases(settings_of(server), grants=known)

    def attempt(project: str, version: Manifest, owner: str | None, purpose: str = "research") -> LeaseClient:
        about = allocation(fresh("g"), 1, project, dataset=f"text@sha256:{version.sha256()}", owner=owner, purpose=purpose)
        return LeaseClient(Attempt.begun(server, leases, tmp_path / fresh("attempt"), about).paths.store_socket)

    ranks = [
        (attempt(MINE, shared, OTHERS), keys_of(OTHERS, shared)),
        (attempt(MINE, kept, OTHERS), []),  # as if an allocation named what was not granted
        (attempt(MINE, shared, OTHERS, "adverts"), []),
        (attempt(MINE, manifests[MINE][0], None), keys_of(MINE, manifests[MINE][0])),
        (attempt(third, shared, OTHERS), []),
        (attempt(third, manifests[MINE][0], MINE), []),
        (attempt(OTHERS, kept, None), keys_of(OTHERS, kept)),
    ]
    tried, read = 0, 0
    try:
        for leave, allowed in ranks:
            for key in everything:
                for operation in Operation:
                    tried += 1
                    if operation in (Operation.GET, Operation.HEAD) and key in allowed:
                        read += asked(operation.value.upper(), *leave.sign(Ask(operation, key)))[0] == 200
                        continue
                    with pytest.raises((CheckpointError, LeaseUnavailableError)):
                        leave.sign(Ask(operation, key))
            for key in allowed[:1]:  # what was signed for one object opens no other
                url, headers = leave.sign(Ask(Operation.GET, key))
                for other in everything - {key}:
                    tried += 1
                    assert asked("GET", url.replace(key, other), headers)[0] in (400, 403, 404)
        assert tried > 750 and read == 2 * sum(len(allowed) for _, allowed in ranks)

        leave, allowed = ranks[0]
        over = granted(MINE, shared).model_dump(exclude={"granted_at_ms", "resent"}) | {"number": 2, "revoked_at_ms": 2}
        known.table.fold(DatasetGrantRevoked.model_validate(over))
        for key in allowed:
            with pytest.raises(ObjectStoreRefusedError, match="was revoked"):
                leave.sign(Ask(Operation.GET, key))
        known.table.fold(granted(MINE, shared))  # as it was first: a grant from before its end does not come back
        with pytest.raises(ObjectStoreRefusedError, match="was revoked"):
            leave.sign(Ask(Operation.GET, allowed[0]))
        known.table.fold(granted(MINE, shared).model_copy(update={"number": 3}))
        assert asked("GET", *leave.sign(Ask(Operation.GET, allowed[0])))[0] == 200
    finally:
        leases.close()


def test_an_agent_that_knows_no_grants_gives_no_leave_to_anothers_version(
    object_store_endpoint: StoreServer, leases: StoreLeases, tmp_path: Path
) -> None:
    foreign = published(object_store_endpoint, tmp_path / "c", OTHERS, "a third canary")
    about = allocation(fresh("none"), 1, MINE, dataset=f"text@sha256:{foreign.sha256()}", owner=OTHERS, purpose="research")
    store = Attempt.begun(object_store_endpoint, leases, tmp_path / "attempt", about).store(deadline_s=1.0)
    with pytest.raises(ObjectStoreUnavailableError, match="does not read grants of datasets"):
        store.get(keys_of(OTHERS, foreign)[0])
