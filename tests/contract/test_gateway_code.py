"""Code by the gateway's app over a real object store: memory stays bounded, and nobody's content stands in for another's."""

from __future__ import annotations

import hashlib
import os
import threading
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import uvicorn

from tests.support.gateway_world import KEY, ListBus
from tests.support.waiting import until
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.s3 import S3ObjectStore
from trainhouse.client.code_archive import PackedCode
from trainhouse.client.gateway.exchange import Flow, GatewayAnswer, Request
from trainhouse.client.gateway.writes import put_code
from trainhouse.events import CodeArchive
from trainhouse.gateway.app import make_app
from trainhouse.gateway.auth import tokens
from trainhouse.gateway.auth.keyring import Keyring
from trainhouse.gateway.context import Gateway
from trainhouse.gateway.live.hub import Hub
from trainhouse.gateway.queries.sql_reader import SqlReader
from trainhouse.gateway.settings import GatewaySettings
from trainhouse.projections.settings import ClickHouseSettings

if TYPE_CHECKING:
    from trainhouse.deploy.local.servers.seaweedfs import StoreServer

pytestmark = pytest.mark.stack
MIB = 2**20
# What the store's client keeps of an upload in parts, and room for everything else.
MOST_IN_MEMORY = 80 * MIB
START_S = 60.0


@dataclass(frozen=True)
class Served:
    """The app on a port of its own, and the store behind it."""

    url: str
    objects: S3ObjectStore

    def client(self, sub: str, project: str) -> httpx.Client:
        """Somebody who submits."""
        token = tokens.issue(KEY, sub, ["submitter"], [project], now_s=int(time.time()))
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {token}"}, timeout=60.0)

    def content(self, uri: str) -> bytes:
        """What lies there."""
        return self.objects.get(uri.removeprefix(self.objects.uri("")))


@pytest.fixture(scope="module")
def served(object_store_endpoint: StoreServer) -> Iterator[Served]:
    settings: dict[str, Any] = {name: getattr(object_store_endpoint, name) for name in ("endpoint", "access_key", "secret_key", "bucket")}
    objects = S3ObjectStore(StoreSettings(**settings, multipart_bytes=5 * MIB))
    made = GatewaySettings.model_validate({"key": KEY.decode()})
    gateway = Gateway(made, Keyring.of(KEY), SqlReader(ClickHouseSettings()), ListBus(), Hub(50, 100))  # type: ignore[arg-type]
    gateway.revocations.complete()
    gateway.projects.complete()
    app = make_app(gateway)
    app.state.code_store = objects
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, lifespan="off", log_config=None))
    serving = threading.Thread(target=server.run, daemon=True)
    serving.start()
    until(lambda: server.started, timeout_s=START_S)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield Served(f"http://127.0.0.1:{port}", objects)
    server.should_exit = True
    serving.join(START_S)


def sent(client: httpx.Client, flow: Flow[CodeArchive]) -> CodeArchive:
    """Runs the client's own flow."""
    try:
        request: Request = next(flow)
        while True:
            answer = client.request(request.method, request.path, params=dict(request.params), content=request.content)
            request = flow.send(GatewayAnswer(answer.status_code, answer.content, {}))
    except StopIteration as end:
        found = end.value
        assert isinstance(found, CodeArchive)
        return found


def packed(archive: bytes, diff: bytes) -> PackedCode:
    return PackedCode(archive, hashlib.sha256(archive).hexdigest(), 1, "1" * 40, diff)


def test_a_large_archive_is_not_held_in_memory(served: Served) -> None:
    piece, pieces = os.urandom(MIB), 128
    whole = hashlib.sha256()
    for _ in range(pieces):
        whole.update(piece)
    with served.client("ana", "vision") as client:
        tracemalloc.start()
        try:
            answer = client.put(f"/v1/code/{whole.hexdigest()}", content=(piece for _ in range(pieces)))
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert answer.status_code == 200, answer.text
    assert answer.json()["size_bytes"] == pieces * MIB
    assert peak_bytes < MOST_IN_MEMORY, f"{peak_bytes / MIB:.0f} MiB"
    stored = served.objects.stat(answer.json()["uri"].removeprefix(served.objects.uri("")))
    assert stored is not None and stored.size_bytes == pieces * MIB


def test_who_knows_an_archive_cannot_say_what_it_differs_by_for_others(served: Served) -> None:
    archive = os.urandom(64)
    with served.client("eve", "speech") as eve, served.client("ana", "vision") as ana:
        planted = sent(eve, put_code(packed(archive, b"what eve says")))
        own = sent(ana, put_code(packed(archive, b"what ana changed")))
    assert own.uri == planted.uri and own.git_diff_uri is not None and planted.git_diff_uri is not None
    assert served.content(own.git_diff_uri) == b"what ana changed"
    assert served.content(planted.git_diff_uri) == b"what eve says"


@pytest.mark.parametrize("place", ["", "diffs/"])
def test_another_content_than_its_address_says_is_not_stored(served: Served, place: str) -> None:
    sha256 = hashlib.sha256(os.urandom(64)).hexdigest()
    with served.client("eve", "speech") as eve:
        refused = eve.put(f"/v1/code/{place}{sha256}", content=b"something else")
    assert refused.status_code == 422 and "nothing was stored" in refused.json()["detail"]
    assert list(served.objects.list(f"code/{sha256}")) == []
