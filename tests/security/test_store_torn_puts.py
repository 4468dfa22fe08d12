"""Puts that end after their head, as those of a process that is killed: the real store keeps nothing of them."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from botocore.awsrequest import AWSPreparedRequest

from tests.security.store_lease_support import Attempt, allocation, fresh, plain, settings_of
from tests.support.stack.sts_store import STS_ROLE
from trainhouse.checkpointing.chain.chunks import chunk_key, chunks_prefix
from trainhouse.checkpointing.chain.commits import commit_key
from trainhouse.checkpointing.lease.signed_store import LeasedObjectStore
from trainhouse.checkpointing.stores.s3 import S3ObjectStore
from trainhouse.events.model.output_names import piece_key, work_prefix
from trainhouse.workers.agent.launch.lease_socket import StoreLeases
from trainhouse.workers.data.outputs.sealing import seal
from trainhouse.workers.data.outputs.written_output import JobOutputStore, Output
from trainhouse.workers.data.prepare.row_runs import UnitRecord, WorkStore

if TYPE_CHECKING:
    from trainhouse.deploy.local.servers.seaweedfs import StoreServer

pytestmark = pytest.mark.stack
TLS = "over TLS"


class _NotSentError(Exception):
    """In place of sending a request."""


@pytest.fixture(params=["signed by the agent", "keys that end", f"keys that end, {TLS}", "own keys", f"own keys, {TLS}"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, S3ObjectStore, StoreServer]]:
    """A job, the store as it writes there, and the server. A client over TLS makes its requests; a test sends them without."""
    sts = "that end" in request.param
    server: StoreServer = request.getfixturevalue("object_store_with_sts" if sts else "object_store_endpoint")
    endpoint = {"endpoint": server.endpoint.replace("http:", "https:")} if TLS in request.param else {}
    job = fresh("torn")
    if "own" in request.param:
        yield job, S3ObjectStore(settings_of(server, **endpoint)), server
        return
    leases = StoreLeases(settings_of(server, **({"sts_role_arn": STS_ROLE} if sts else {})))
    objects = Attempt.begun(server, leases, tmp_path, allocation(job)).store(**endpoint)
    objects._client()
    assert objects._one_by_one is not sts
    yield job, objects, server
    leases.close()


def test_a_put_that_ends_after_its_head_leaves_no_object(client: tuple[str, S3ObjectStore, StoreServer]) -> None:
    job, objects, server = client
    large, small = bytes(index % 251 for index in range(200_000)), b"entry of the chain"
    chunk, commit = chunk_key(hashlib.sha256(large).hexdigest(), chunks_prefix(job)), commit_key(job, 1)
    puts: list[tuple[str, bytes, Callable[[], object]]] = [
        (chunk, large, lambda: objects.put(chunk, large)),
        (commit, small, lambda: objects.put_if_absent(commit, small)),
    ]
    for key, content, put in puts:
        head, body = prepared(objects, put)
        for cut in (b"", body[: len(body) // 2]):
            assert 400 <= answer(server, head, cut) < 500 and plain(server).stat(key) is None, (key, len(cut))
        assert answer(server, head, body) == 200 and plain(server).get(key) == content, "the same request, whole"


def test_an_empty_record_of_before_is_got_over(object_store_endpoint: StoreServer, tmp_path: Path) -> None:
    told, leases = allocation(job := fresh("prepared")), StoreLeases(settings_of(object_store_endpoint))
    told = told.model_copy(update={"spec": told.spec.model_copy(update={"outputs": ("out",)})})
    objects = Attempt.begun(object_store_endpoint, leases, tmp_path, told).store()
    for record in (f"{work_prefix(job, 'out')}unit-0000003.1.json", piece_key(job, "out", "part")):
        plain(object_store_endpoint).put(record, b"")
    work, out = WorkStore(objects, work_prefix(job, "out")), Output(JobOutputStore(objects, job, "out", 1, 0), 0, 8192)
    assert work.names() == {"unit-0000003"} and not work.has("unit-0000003") and not out.pieces()
    work.put("unit-0000003", memoryview(b""), made := UnitRecord(read=7))
    with out.piece("part") as piece:
        piece.add({"txt": "whole"})
    assert work.record("unit-0000003") == made and out.pieces() == {"part"}
    assert seal(plain(object_store_endpoint), job, "lm", "out", 1).row_count == 1
    leases.close()


@pytest.mark.parametrize("size", [37, 200_000])
def test_other_bytes_than_those_that_were_signed_are_refused(object_store_endpoint: StoreServer, tmp_path: Path, size: int) -> None:
    leases = StoreLeases(settings_of(object_store_endpoint))
    objects = Attempt.begun(object_store_endpoint, leases, tmp_path, allocation(job := fresh("other"))).store()
    for key in (chunk_key(hashlib.sha256(bytes(size)).hexdigest(), chunks_prefix(job)), commit_key(job, 0)):
        head, body = prepared(objects, lambda key=key: objects.put(key, bytes(size)))  # type: ignore[misc]
        assert answer(object_store_endpoint, head, b"\1" * len(body)) == 400 and plain(object_store_endpoint).stat(key) is None
    leases.close()


def test_a_chunk_is_not_hashed_again_to_be_sent(object_store_endpoint: StoreServer, tmp_path: Path) -> None:
    leases = StoreLeases(settings_of(object_store_endpoint))
    objects: LeasedObjectStore = Attempt.begun(object_store_endpoint, leases, tmp_path, allocation(job := fresh("named"))).store()
    chunk = chunk_key(hashlib.sha256(b"chunk").hexdigest(), chunks_prefix(job))
    head, _ = prepared(objects, lambda: objects.put(chunk, b"chunk"))
    assert b"\r\nx-amz-checksum-sha256: " in head and b"crc32" not in head, "its key says its hash"
    head, _ = prepared(objects, lambda: objects.put(commit_key(job, 0), b"entry"))
    assert b"\r\nx-amz-checksum-crc32: " in head and b"sha256: " not in head
    leases.close()


def prepared(objects: S3ObjectStore, put: Callable[[], object]) -> tuple[bytes, bytes]:
    """Head and body of the request that a put makes; nothing is sent."""
    made: list[AWSPreparedRequest] = []

    def take(request: AWSPreparedRequest, **_: object) -> None:
        made.append(request)
        raise _NotSentError

    events = objects._client().meta.events
    events.register("before-send.s3.PutObject", take)
    with pytest.raises(_NotSentError):
        put()
    events.unregister("before-send.s3.PutObject", take)
    (request,) = made
    url = urlsplit(request.url)
    told = {name: value.decode() if isinstance(value, bytes) else str(value) for name, value in request.headers.items()}
    body = request.body.read() if hasattr(request.body, "read") else request.body
    if told.get("Transfer-Encoding") == "chunked":
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    lines = [f"PUT {url.path}{url.query and '?'}{url.query} HTTP/1.1", f"Host: {url.netloc}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in told.items()]
    return "\r\n".join([*lines, "", ""]).encode(), body


def answer(server: StoreServer, head: bytes, body: bytes) -> int:
    """Status of the store's answer to a request whose sender ends after these bytes."""
    at = urlsplit(server.endpoint)
    with socket.create_connection((at.hostname, at.port), timeout=30.0) as channel:
        channel.sendall(head + body)
        channel.shutdown(socket.SHUT_WR)
        found = b""
        while piece := channel.recv(1 << 16):
            found += piece
    statuses = [int(line.split()[1]) for line in found.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]
    return next(status for status in statuses if status != 100)
