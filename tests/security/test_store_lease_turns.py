"""One attempt's requests to a slow store hold up neither another attempt's nor its own more often than once. Without a server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
from botocore.exceptions import ClientError
from structlog.testing import capture_logs

from tests.security.store_lease_support import allocation, fresh
from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.waiting import until
from trainhouse.checkpointing.artifacts.artifact_store import ArtifactStore
from trainhouse.checkpointing.errors import ObjectMissingError, ObjectStoreUnavailableError
from trainhouse.checkpointing.lease.access_rule import Ask, Lease, Operation
from trainhouse.checkpointing.lease.wire import connected
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.events.model import artifact_keys
from trainhouse.events.model.dataset_keys import manifest_key, shard_key
from trainhouse.workers.agent.launch.lease_grants import LeaseDesk, Tenant
from trainhouse.workers.agent.launch.lease_socket import StoreLeases
from trainhouse.workers.data.outputs.sealing import seal
from trainhouse.workers.data.outputs.written_output import JobOutputStore, Output
from trainhouse.workers.data.stored_versions import read_manifest, shards_of
from trainhouse.workers.launcher import AttemptPaths

SETTINGS = StoreSettings(endpoint="http://127.0.0.1:9", bucket="b", access_key="a", secret_key="s")  # pragma: allowlist secret


class Held:
    """A store in which no job has an owner, and whose reads wait for `go`."""

    address = "here"

    def __init__(self) -> None:
        self.go = threading.Event()
        self.reads: list[str] = []
        self.waiting = 0
        self.away = False

    def uri(self, key: str) -> str:
        return key

    def put_if_absent(self, key: str, body: bytes) -> bool:
        return True

    def list(self, prefix: str, start_after: str = "") -> Iterator[object]:
        return iter(())

    def get(self, key: str) -> bytes:
        self.reads.append(key)
        if "nothing" in key:
            self.waiting += 1
            assert self.go.wait(60)
            if self.away:
                raise ObjectStoreUnavailableError("away")
        raise ObjectMissingError(key)


@pytest.fixture
def held() -> Iterator[Held]:
    made = Held()
    yield made
    made.go.set()


def desk_of(held: Held, settings: StoreSettings = SETTINGS) -> LeaseDesk:
    desk = LeaseDesk(settings, cast(ObjectStore, held))
    desk._clock = cast(Any, SimpleNamespace(due=lambda: False, look=lambda: None, now_s=desk._clock.now_s))
    return desk


def begun(leases: StoreLeases, folder: Path, resume_from: str | None = None) -> tuple[str, Path]:
    told = allocation(fresh("turn"), resume_from=resume_from)
    paths = AttemptPaths.of(folder, str(told.job_id), 1)
    paths.code.mkdir(parents=True, exist_ok=True)
    leases.begin(told, paths)
    return str(told.job_id), paths.store_socket


def ask(job: str) -> bytes:
    return orjson.dumps({"asks": [{"operation": "get", "key": f"jobs/{job}/commits/0000000000"}]}) + b"\n"


def answer(channel: socket.socket) -> dict[str, Any]:
    found = cast(dict[str, Any], orjson.loads(channel.makefile().readline()))
    return cast(dict[str, Any], found["answers"][0])


def test_an_attempt_that_waits_for_the_store_holds_up_itself_alone(held: Held, tmp_path: Path) -> None:
    leases = StoreLeases(SETTINGS)
    leases._desk = desk_of(held)
    try:
        own, mine = begun(leases, tmp_path, "nothing")
        neighbour, theirs = begun(leases, tmp_path)
        with connected(mine, 30) as first:
            first.sendall(ask(own))
            assert answer(first)["url"]  # so that its own keys are answered on the loop
            slow = [connected(mine, 30) for _ in range(100)]
            for channel in slow:
                channel.sendall(ask("nothing"))
            until(lambda: held.waiting == 1)
            first.sendall(ask(own))
            with connected(theirs, 10) as channel:
                channel.sendall(ask(neighbour))
                assert answer(channel)["url"]
            held.go.set()
            assert answer(first)["url"]
            assert {answer(channel)["kind"] for channel in slow} == {"refused"}
            for channel in slow:
                channel.close()
        assert held.waiting == 1
    finally:
        held.go.set()
        leases.close()


@pytest.mark.parametrize(("away", "kind", "reads"), [(False, "refused", 1), (True, "unavailable", 2)])
def test_what_is_not_there_is_read_once_and_a_store_that_is_away_once_for_each_batch(held: Held, away: bool, kind: str, reads: int) -> None:
    held.away = away
    held.go.set()
    desk, tenant = desk_of(held), Tenant("j", 1, "lm", "nothing")
    for _ in range(2):
        answers = desk.answer(tenant, [Ask(Operation.GET, "jobs/nothing/commits/0000000000")] * 256)
        assert [a["kind"] for a in answers] == [kind] * 256
    assert held.waiting == reads


@pytest.mark.parametrize(
    ("code", "kind", "for_ever"),
    [("Throttling", "unavailable", False), ("InternalError", "unavailable", False), ("PackedPolicyTooLarge", None, False)]
    + [(code, None, True) for code in ("AccessDenied", "NotImplemented", "InvalidAction", "MethodNotAllowed")],
)
def test_a_refusal_of_sts_counts_for_the_agent_only_where_the_store_has_none(
    held: Held, monkeypatch: pytest.MonkeyPatch, code: str, kind: str | None, for_ever: bool
) -> None:
    desk = desk_of(held, SETTINGS.model_copy(update={"sts_role_arn": "arn:aws:iam::role/ranks"}))

    def refuses(*_: object) -> None:
        raise ClientError({"Error": {"Code": code, "Message": "no"}}, "AssumeRole")

    monkeypatch.setattr(desk, "_assumed", refuses)
    found = desk.session(Tenant("j", 1, "lm", None))
    assert (None if found is None else found.get("kind")) == kind
    assert desk._no_sts is for_ever


def test_an_artifact_that_is_missing_or_damaged_keeps_no_rank_from_the_dataset_that_names_it(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    (tmp_path / "tokenizer.json").write_text("{}")
    sound = ArtifactStore(store, "lm").put("sound", "tokenizer", tmp_path / "tokenizer.json", "ann").sha256()
    artifacts = {"sound": sound, "missing": "1" * 64, "damaged": "2" * 64}
    for name in ("missing", "damaged"):
        store.put(artifact_keys.manifest_key("lm", artifacts[name]), b"{}")
    with Output(JobOutputStore(store, "s", "raw", 0, 0), 0, 2048) as out:
        for name, sha256 in artifacts.items():
            out.made_with(name, sha256)
        out.add({"json": {"n": 1}})
    version = seal(store, "s", "lm", "raw", 0).sha256
    store.delete(artifact_keys.manifest_key("lm", artifacts["missing"]))
    [(_, shard)] = shards_of(read_manifest(store, "lm", version))
    told = allocation(fresh("made"), dataset=f"raw@sha256:{version}")
    desk, tenant = desk_of(cast(Any, store)), Tenant.of(told)

    def kinds(*keys: str) -> list[str | None]:
        return [reply.get("kind") for reply in desk.answer(tenant, [Ask(Operation.GET, key) for key in keys])]

    with capture_logs() as lines:
        for _ in range(2):
            assert kinds(manifest_key("lm", version), shard_key("lm", shard.sha256)) == [None, None]
    named = [line["artifact"] for line in lines if "artifact" in line]
    assert sorted(named) == ["damaged", "missing"]
    lease = desk.lease_of(tenant)
    assert isinstance(lease, Lease) and lease.dataset is not None and len(lease.dataset.artifacts) == 2
    assert artifact_keys.manifest_key("lm", sound) in lease.dataset.artifacts
