"""The object store port: one suite for the fake and for a real S3 server, answers that get lost included."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.stack.sts_store import STS_ROLE
from tests.support.waiting import until
from trainhouse.checkpointing.artifacts.artifact_sweep import sweep_artifacts
from trainhouse.checkpointing.errors import DamagedError, ObjectMissingError, ObjectStoreRefusedError, ObjectStoreUnavailableError
from trainhouse.checkpointing.lease.signed_store import open_store
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores import s3
from trainhouse.checkpointing.stores.object_store import ObjectStore, ReadsInto, exists, get_or_none
from trainhouse.checkpointing.stores.s3 import PIECE_BYTES, S3ObjectStore
from trainhouse.deploy.local.free_ports import free_port
from trainhouse.events import GangAllocated
from trainhouse.events.model.artifact_keys import object_key, storing_key
from trainhouse.workers.agent.launch import lease_grants
from trainhouse.workers.agent.launch.lease_socket import StoreLeases
from trainhouse.workers.launcher import AttemptPaths

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from trainhouse.deploy.local.servers.seaweedfs import StoreServer

pytestmark = pytest.mark.stack
RACES = 20
WRITERS = 8


@dataclass
class UnderTest:
    """A store, and a way to lose the answers of its next requests."""

    store: ObjectStore
    another: Callable[[], ObjectStore]
    lose_answers: Callable[[int], None]


def settings_of(server: StoreServer, **changes: Any) -> StoreSettings:
    given: dict[str, Any] = {
        "endpoint": server.endpoint,
        "bucket": server.bucket,
        "access_key": server.access_key,
        "secret_key": server.secret_key,
    }
    return StoreSettings(**(given | changes))


class LossyProxy:
    """Passes bytes on to a server; while told to, it takes requests to it and throws the answers away."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.to_lose = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.target))
            threading.Thread(target=self._pass, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, True), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        try:
            while data := source.recv(65536):
                # "100 Continue" is no answer: without it the request's body would not be sent.
                if answers and self.to_lose > 0 and b" 100 " not in data[:20]:
                    self.to_lose -= 1
                    break
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class LossyMemory(MemoryObjectStore):
    """The fake, tried again by itself as the real client does, when an answer is lost."""

    to_lose = 0

    def put_if_absent(self, key: str, body: Any) -> bool:
        done = super().put_if_absent(key, body)
        while self.to_lose > 0:
            self.to_lose -= 1
            done = super().put_if_absent(key, body)
        return done


@pytest.fixture(params=["memory", "s3", "leased", "keys that end"])
def under_test(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[UnderTest]:
    if request.param == "memory":
        memory = LossyMemory()
        yield UnderTest(memory, lambda: memory, lambda n: setattr(memory, "to_lose", n))
        return
    server: StoreServer = request.getfixturevalue("object_store_with_sts" if request.param == "keys that end" else "object_store_endpoint")
    proxy = LossyProxy(int(server.endpoint.rpartition(":")[2]))
    there = settings_of(server, endpoint=f"http://127.0.0.1:{proxy.port}")
    if request.param == "s3":
        yield UnderTest(S3ObjectStore(there), lambda: S3ObjectStore(settings_of(server)), lambda n: setattr(proxy, "to_lose", n))
    else:
        # What an attempt may do is tested elsewhere: here it may do everything.
        monkeypatch.setattr(lease_grants, "refusal", lambda lease, ask: None)
        monkeypatch.setattr(lease_grants, "policy_of", lambda lease, bucket: ALL)
        role = STS_ROLE if request.param == "keys that end" else None
        leases = StoreLeases(there.model_copy(update={"sts_role_arn": role}))
        paths = AttemptPaths.of(tmp_path, "contract", 1)
        paths.code.mkdir(parents=True)
        leases.begin(an_allocation(), paths)
        leased = there.model_copy(update={"access_key": None, "secret_key": None, "lease": paths.store_socket})
        through = open_store(leased)
        assert through.stat("before") is None  # what the agent itself asks the store, it has asked
        yield UnderTest(through, lambda: open_store(leased), lambda n: setattr(proxy, "to_lose", n))
        leases.close()
    proxy.close()


ALL = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": ["s3:*"], "Resource": ["*"]}]}


def an_allocation() -> GangAllocated:
    told = orjson.loads((Path(__file__).parents[2] / "events/contract/samples/trainhouse.gang.allocated.v1.json").read_bytes())
    return GangAllocated.model_validate(told.get("data", told))


@pytest.fixture
def folder() -> str:
    return f"contract/{uuid.uuid4().hex}/"


def test_what_is_put_is_got(under_test: UnderTest, folder: str) -> None:
    store = under_test.store
    for body in (b"", b"x", os.urandom(300_000), bytearray(b"array"), memoryview(b"view")):
        store.put(f"{folder}a", body)
        assert store.get(f"{folder}a") == bytes(body)
    assert exists(store, f"{folder}a") and not exists(store, f"{folder}b")
    assert get_or_none(store, f"{folder}b") is None


def test_a_large_body_goes_up_in_parts_and_comes_back_whole(under_test: UnderTest, folder: str) -> None:
    body = os.urandom(1 << 20) * 21
    under_test.store.put(f"{folder}large", memoryview(body))
    assert under_test.store.get(f"{folder}large") == body
    found = under_test.store.stat(f"{folder}large")
    assert found is not None and found.size_bytes == len(body)


@pytest.mark.parametrize("size_bytes", [0, 1, PIECE_BYTES, 3 * PIECE_BYTES + 5, 18 * PIECE_BYTES])
def test_a_store_reads_into_memory_that_it_is_given(under_test: UnderTest, folder: str, size_bytes: int) -> None:
    if not isinstance(under_test.store, ReadsInto):
        pytest.skip("a store that gives whole contents alone")
    body, room = os.urandom(size_bytes), bytearray(size_bytes)
    under_test.store.put(f"{folder}into", body)
    assert under_test.store.get_into(f"{folder}into", memoryview(room)) == (size_bytes, sha256(body).hexdigest())
    assert room == body
    if size_bytes:
        assert under_test.store.get_into(f"{folder}into", memoryview(room)[1:]) == (size_bytes, ""), "longer than the room"
    larger = bytearray(size_bytes + 1)
    assert under_test.store.get_into(f"{folder}into", memoryview(larger)) == (size_bytes, sha256(body).hexdigest())
    with pytest.raises(ObjectMissingError, match="none"):
        under_test.store.get_into(f"{folder}none", memoryview(room))


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of more than 5 MiB go up in parts of that size, the smallest that S3 takes."""
    monkeypatch.setattr(s3, "MOST_HASHED_BYTES", 5 << 20)
    monkeypatch.setattr(s3, "PART_BYTES", 5 << 20)


class _KilledError(Exception):
    """The process ended here."""


class _Sending(S3ObjectStore):
    """Counts the parts that it sends; ends its process before the one with this number."""

    def __init__(self, settings: StoreSettings, killed_at: int = -1) -> None:
        super().__init__(settings)
        self.parts, self._killed_at = 0, killed_at

    def _new_client(self) -> S3Client:
        client = super()._new_client()
        client.meta.events.register("before-call.s3.UploadPart", self._before)
        return client

    def _before(self, **_: Any) -> None:
        if self.parts == self._killed_at:
            raise _KilledError
        self.parts += 1


@pytest.mark.usefixtures("small_parts")
def test_a_file_in_parts_goes_on_after_a_kill_from_the_parts_that_are_there(object_store_endpoint: StoreServer, tmp_path: Path) -> None:
    settings, key = settings_of(object_store_endpoint), f"{uuid.uuid4().hex}/big"
    content = os.urandom(17 << 20)
    whole = sha256(content).hexdigest()
    (tmp_path / "big").write_bytes(content)
    with (tmp_path / "big").open("rb") as file:
        killed = _Sending(settings, killed_at=2)
        with pytest.raises(_KilledError):
            killed.put_hashed(key, file, whole)
        assert S3ObjectStore(settings).stat(key) is None
        after = _Sending(settings)
        after.put_hashed(key, file, whole)
    assert (killed.parts, after.parts) == (2, 2), "of four, two were there"
    assert after.get(key) == content
    uploads = after._client().list_multipart_uploads(Bucket=settings.bucket, Prefix=key)
    assert not uploads.get("Uploads")


@pytest.mark.usefixtures("small_parts")
def test_parts_of_another_file_are_sent_anew_and_one_that_changed_is_not_stored(object_store_endpoint: StoreServer, tmp_path: Path) -> None:
    settings, key = settings_of(object_store_endpoint), f"{uuid.uuid4().hex}/big"
    first, second = os.urandom(12 << 20), os.urandom(12 << 20)
    for name, content in (("first", first), ("second", second)):
        (tmp_path / name).write_bytes(content)
    with (tmp_path / "first").open("rb") as file, pytest.raises(_KilledError):
        _Sending(settings, killed_at=2).put_hashed(key, file, sha256(first).hexdigest())
    store = _Sending(settings)
    with (tmp_path / "second").open("rb") as file:
        with pytest.raises(ObjectStoreRefusedError, match="has another SHA-256"):
            store.put_hashed(key, file, sha256(first).hexdigest())
        assert store.stat(key) is None
        store.put_hashed(key, file, sha256(second).hexdigest())
    assert store.get(key) == second


class _WithoutListing(_Sending):
    """As `_Sending`, without the right to one of the operations that find an upload again."""

    def __init__(self, settings: StoreSettings, refused: str, killed_at: int) -> None:
        super().__init__(settings, killed_at)
        self._refused = refused

    def _new_client(self) -> S3Client:
        client = super()._new_client()
        client.meta.events.register(f"before-call.s3.{self._refused}", self._refuse)
        return client

    def _refuse(self, **_: Any) -> None:
        raise ObjectStoreRefusedError(f"no right to {self._refused}")


def unfinished(settings: StoreSettings, prefix: str) -> list[str]:
    """Keys of the uploads in parts that are under way."""
    page = S3ObjectStore(settings)._client().list_multipart_uploads(Bucket=settings.bucket, Prefix=prefix)
    return [each["Key"] for each in page.get("Uploads", [])]


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("refused", ["ListMultipartUploads", "ListParts"])
def test_an_upload_that_could_not_go_on_leaves_no_parts(object_store_endpoint: StoreServer, tmp_path: Path, refused: str) -> None:
    settings, key = settings_of(object_store_endpoint), f"{uuid.uuid4().hex}/big"
    content = os.urandom(17 << 20)
    (tmp_path / "big").write_bytes(content)
    with (tmp_path / "big").open("rb") as file:
        for killed_at in (0, 2):
            with pytest.raises(_KilledError):
                _WithoutListing(settings, refused, killed_at).put_hashed(key, file, sha256(content).hexdigest())
            assert unfinished(settings, key) == []
        with pytest.raises(ObjectStoreRefusedError, match="has another SHA-256"):
            _WithoutListing(settings, refused, -1).put_hashed(key, file, sha256(b"").hexdigest())
        assert unfinished(settings, key) == []
        _WithoutListing(settings, refused, -1).put_hashed(key, file, sha256(content).hexdigest())
    assert S3ObjectStore(settings).get(key) == content and unfinished(settings, key) == []


@pytest.mark.usefixtures("small_parts")
def test_the_sweep_of_artifacts_ends_uploads_that_are_older_than_the_grace(object_store_endpoint: StoreServer, tmp_path: Path) -> None:
    settings = settings_of(object_store_endpoint)
    content = os.urandom(12 << 20)
    whole, projects = sha256(content).hexdigest(), [uuid.uuid4().hex for _ in range(2)]
    (tmp_path / "big").write_bytes(content)
    keys = [*(object_key(project, whole) for project in projects), f"elsewhere/{projects[0]}/big"]
    with (tmp_path / "big").open("rb") as file:
        for key in keys:
            with pytest.raises(_KilledError):
                _Sending(settings, killed_at=2).put_hashed(key, file, whole)
    store = S3ObjectStore(settings)
    store.put(storing_key(projects[1], "now"), b"")
    found = sweep_artifacts(store)
    assert [unfinished(settings, key) for key in keys] == [[key] for key in keys], "all are young"
    assert found.objects == 0
    refused = sweep_artifacts(_WithoutListing(settings, "ListMultipartUploads", -1), grace_s=-10.0)
    assert any("no right to ListMultipartUploads" in reason for reason in refused.unclear)
    # Grace that a note which is being renewed is within, and an upload that began before it is not.
    until(lambda: (store.put(storing_key(projects[1], "now"), b""), sweep_artifacts(store, grace_s=2.0))[1].objects)
    assert [unfinished(settings, key) for key in keys] == [[], [keys[1]], [keys[2]]], "where an artifact is being stored, it may go on"
    store.delete(storing_key(projects[1], "now"))
    until(lambda: sweep_artifacts(store, grace_s=2.0).objects and not unfinished(settings, keys[1]))
    assert unfinished(settings, keys[2]) == [keys[2]], "none of artifacts"


def test_a_range_is_a_part(under_test: UnderTest, folder: str) -> None:
    under_test.store.put(f"{folder}r", b"0123456789")
    assert under_test.store.get_range(f"{folder}r", 2, 3) == b"234"
    assert under_test.store.get_range(f"{folder}r", 8, 10) == b"89"
    assert under_test.store.get_range(f"{folder}r", 3, 0) == b""


def test_what_is_not_there_is_told_so(under_test: UnderTest, folder: str) -> None:
    with pytest.raises(ObjectMissingError, match="none"):
        under_test.store.get(f"{folder}none")
    with pytest.raises(ObjectMissingError):
        under_test.store.get_range(f"{folder}none", 0, 1)
    assert under_test.store.stat(f"{folder}none") is None
    under_test.store.delete(f"{folder}none")


def test_listing_is_in_order_whole_and_can_begin_after_a_key(under_test: UnderTest, folder: str) -> None:
    names = [f"{folder}{n:010d}" for n in range(25)]
    for name in reversed(names):
        under_test.store.put(name, name.encode())
    under_test.store.put(f"{folder[:-1]}-other", b"")
    assert [found.key for found in under_test.store.list(folder)] == names
    assert [found.key for found in under_test.store.list(folder, names[9])] == names[10:]
    assert all(found.size_bytes == len(found.key) and 0 <= found.age_s < 600 for found in under_test.store.list(folder))
    assert list(under_test.store.list(f"{folder}nothing")) == []


def test_more_than_a_page_is_listed(under_test: UnderTest, folder: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: under_test.store.put(f"{folder}{n:05d}", b"."), range(1005)))
    assert len({found.key for found in under_test.store.list(folder)}) == 1005


def test_a_deleted_object_is_gone(under_test: UnderTest, folder: str) -> None:
    under_test.store.put(f"{folder}d", b"d")
    under_test.store.delete(f"{folder}d")
    assert not exists(under_test.store, f"{folder}d") and list(under_test.store.list(folder)) == []
    assert under_test.store.put_if_absent(f"{folder}d", b"again")


def test_a_conditional_put_lets_the_first_content_stay(under_test: UnderTest, folder: str) -> None:
    store = under_test.store
    assert store.put_if_absent(f"{folder}c", b"first")
    assert not store.put_if_absent(f"{folder}c", b"second")
    assert store.put_if_absent(f"{folder}c", b"first"), "the content there is the caller's"
    assert store.get(f"{folder}c") == b"first"


def test_of_eight_writers_exactly_one_wins_every_round(under_test: UnderTest, folder: str) -> None:
    stores = [under_test.another() for _ in range(WRITERS)]
    with ThreadPoolExecutor(WRITERS) as pool:
        for race in range(RACES):
            start = threading.Barrier(WRITERS)
            key = f"{folder}{race}"

            def write(number: int, key: str = key, start: threading.Barrier = start) -> bool:
                start.wait(60)
                return stores[number].put_if_absent(key, f"writer {number}".encode())

            won = list(pool.map(write, range(WRITERS)))
            assert won.count(True) == 1, f"round {race}: {won}"
            assert under_test.store.get(key) == f"writer {won.index(True)}".encode()


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_lost_answer_to_a_conditional_put_is_settled_by_content(under_test: UnderTest, folder: str, lost: int) -> None:
    under_test.lose_answers(lost)
    assert under_test.store.put_if_absent(f"{folder}mine", b"mine")
    under_test.lose_answers(0)
    assert under_test.another().put_if_absent(f"{folder}theirs", b"theirs")
    under_test.lose_answers(lost)
    assert not under_test.store.put_if_absent(f"{folder}theirs", b"mine")
    under_test.lose_answers(0)
    assert under_test.store.get(f"{folder}theirs") == b"theirs"


# What only the real one can show


def test_a_store_that_is_away_is_a_retryable_error_with_the_way_out() -> None:
    port = free_port()
    gone = S3ObjectStore(
        StoreSettings(endpoint=f"http://127.0.0.1:{port}", access_key="a", secret_key="b", deadline_s=1.0)  # type: ignore[arg-type]
    )
    with pytest.raises(ObjectStoreUnavailableError, match=rf"127\.0\.0\.1:{port}/trainhouse: get of 'k'.*TRAINHOUSE_S3_ENDPOINT"):
        gone.get("k")
    with pytest.raises(ObjectStoreUnavailableError, match="conditional put of 'k'"):
        gone.put_if_absent("k", b"")


def test_a_wrong_key_or_bucket_is_refused_at_once(object_store_endpoint: StoreServer) -> None:
    with pytest.raises(ObjectStoreRefusedError, match="check the bucket and the keys"):
        S3ObjectStore(settings_of(object_store_endpoint, secret_key="wrong")).get("k")  # pragma: allowlist secret
    with pytest.raises(ObjectStoreRefusedError, match="no-such-bucket"):
        S3ObjectStore(settings_of(object_store_endpoint, bucket="no-such-bucket")).get("k")


def test_the_secret_is_not_shown(object_store_endpoint: StoreServer) -> None:
    assert object_store_endpoint.secret_key not in repr(settings_of(object_store_endpoint))


FORKS = """
import os, sys
from trainhouse.checkpointing.stores.s3 import PIECE_BYTES, S3ObjectStore
from trainhouse.checkpointing.settings import StoreSettings
store = S3ObjectStore(StoreSettings())
store.put(sys.argv[1] + "parent", b"parent")
child = os.fork()
if child == 0:
    store.put(sys.argv[1] + "child", store.get(sys.argv[1] + "parent") + b" and child")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(store.get(sys.argv[1] + "child").decode())
"""


def test_a_forked_process_has_a_client_of_its_own(object_store_endpoint: StoreServer, folder: str) -> None:
    s = object_store_endpoint
    env = os.environ | {"TRAINHOUSE_S3_ENDPOINT": s.endpoint, "TRAINHOUSE_S3_BUCKET": s.bucket}
    env |= {"TRAINHOUSE_S3_ACCESS_KEY": s.access_key, "TRAINHOUSE_S3_SECRET_KEY": s.secret_key}
    done = subprocess.run([sys.executable, "-c", FORKS, folder], env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "parent and child", done.stderr


def test_a_store_with_a_limit_reads_no_object_that_is_larger(object_store_endpoint: StoreServer) -> None:
    store = S3ObjectStore(settings_of(object_store_endpoint), most_get_bytes=1000)
    keys = {size: f"limits/{uuid.uuid4().hex}" for size in (0, 1000, 1001)}
    for size, key in keys.items():
        store.put(key, b"x" * size)
    assert [store.get(keys[size]) for size in (0, 1000)] == [b"", b"x" * 1000]
    with pytest.raises(DamagedError, match="has 1001 bytes, and at most 1000"):
        store.get(keys[1001])
    assert store.get_range(keys[1001], 1000, 1) == b"x", "a range is as long as it is asked for"
