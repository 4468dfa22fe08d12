"""The key of tokens is rotated while streams are open: all go on, a new login works, and what the old key signed ends when it is retired.

`TRAINHOUSE_TEST_STREAMS=500` opens so many.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.gateway_world import World, world_in
from tests.support.served_gateway import served
from trainhouse.deploy.local.credentials import token_keys
from trainhouse.deploy.local.layout import StackFolder
from trainhouse.gateway.auth import tokens
from trainhouse.gateway.auth.keyring import Keyring
from trainhouse.gateway.settings import GatewaySettings

STREAMS = int(os.environ.get("TRAINHOUSE_TEST_STREAMS", "50"))
JOB = "streamed-1"
ENOUGH_S = 120.0
# As many as the tables answer at a time, so that few are told to ask again.
AT_ONCE = 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> StackFolder:
    """Where a stack keeps its keys."""
    found = StackFolder(tmp_path_factory.mktemp("keys"))
    found.make()
    return found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_in(tmp_path_factory.mktemp("streams")) as made:
        made.submit(JOB, "vision")
        yield made


@pytest.fixture
def url(world: World, folder: StackFolder) -> Iterator[str]:
    files = {"key_file": token_keys.token_key(folder), "accepted_keys_file": token_keys.accepted_keys(folder)}
    bounds = {"stream_poll_s": 0.1, "stream_watchers": STREAMS + 10, "requests_at_once": STREAMS + 100}
    settings = GatewaySettings.model_validate(files | bounds)
    with served(world, settings) as found:
        yield found


def token_by(folder: StackFolder, sub: str) -> dict[str, str]:
    """A token as `trainhouse token create` would sign it now."""
    key = token_keys.token_key(folder).read_bytes().strip()
    return {"Authorization": f"Bearer {tokens.issue(key, sub, ['viewer'], ['vision'], now_s=int(time.time()))}"}


class Stream:
    """One connection's events."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    @classmethod
    async def opened(cls, url: str, headers: dict[str, str]) -> Stream:
        """Asks again while the tables are busy."""
        at = httpx.URL(url)
        lines = (
            f"GET /v1/training-jobs/{JOB}/stream HTTP/1.1",
            f"Host: {at.netloc.decode()}",
            f"Authorization: {headers['Authorization']}",
        )
        while True:
            reader, writer = await asyncio.open_connection(at.host, at.port, limit=1024**2)
            writer.write("\r\n".join((*lines, "", "")).encode())
            answer = await reader.readline()
            if b" 503 " not in answer:
                assert b" 200 " in answer, answer
                found = cls(reader, writer)
                await found.until("event: status")
                return found
            writer.close()
            await asyncio.sleep(0.2)

    async def until(self, text: str) -> str:
        """Reads on to a line with this text."""
        while text.encode() not in (line := await self._reader.readline()):
            assert line, f"the stream ended before {text!r}"
        return line.decode()


def test_streams_go_on_over_a_rotation_and_end_with_their_key(world: World, folder: StackFolder, url: str) -> None:
    async def scene() -> None:
        old = token_by(folder, "ana")
        turns = asyncio.Semaphore(AT_ONCE)

        async def opened(headers: dict[str, str]) -> Stream:
            async with turns:
                return await Stream.opened(url, headers)

        async with asyncio.timeout(ENOUGH_S):
            streams = await asyncio.gather(*(opened(old) for _ in range(STREAMS)))
        await asyncio.to_thread(told, world, "before")
        await heard(streams, "before")

        await asyncio.to_thread(token_keys.renew, folder)
        await asyncio.to_thread(told, world, "after")
        await heard(streams, "after")
        new = token_by(folder, "bo")
        async with httpx.AsyncClient(base_url=url) as client:
            for headers in (old, new):
                assert (await client.get("/v1/whoami", headers=headers)).status_code == 200
            cookie_of_old, cookie_of_new = await signed_in(client, old), await signed_in(client, new)
            newer = await Stream.opened(url, new)

            await asyncio.to_thread(token_keys.retire, folder)
            answer = await client.get("/v1/whoami", headers=old)
            assert answer.status_code == 401
            assert "the key that signed it was retired" in answer.json()["detail"] and "token create" in answer.json()["detail"]
            # A session ends with the key of its token, whichever sealed it.
            answer = await client.get("/v1/whoami", headers=cookie_of_old)
            assert answer.status_code == 401 and "was retired" in answer.json()["detail"]
            for headers in (new, cookie_of_new):
                assert (await client.get("/v1/whoami", headers=headers)).status_code == 200
        await asyncio.to_thread(told, world, "retired")
        await heard([newer], "retired")
        async with asyncio.timeout(ENOUGH_S):
            for stream in streams:
                await stream.until("event: cut")
        for stream in (*streams, newer):
            stream.writer.close()

    asyncio.run(scene())


def told(world: World, line: str) -> None:
    told.at += 1000  # type: ignore[attr-defined]
    world.log(JOB, [line], told.at)  # type: ignore[attr-defined]


told.at = 0  # type: ignore[attr-defined]


async def heard(streams: list[Stream], line: str) -> None:
    async with asyncio.timeout(ENOUGH_S):
        await asyncio.gather(*(stream.until(f'"{line}"') for stream in streams))


async def signed_in(client: httpx.AsyncClient, headers: dict[str, str]) -> dict[str, str]:
    """The pages' cookie, by a code that the token asked for."""
    code = (await client.post("/v1/login-codes", headers=headers)).json()["code"]
    answer = await client.get("/login", params={"code": code})
    assert answer.status_code == 200, answer.text
    client.cookies.clear()
    name, _, rest = answer.headers["set-cookie"].partition("=")
    return {"Cookie": f"{name}={rest.partition(';')[0]}"}


def test_a_write_before_a_rotation_can_be_read_behind_it(folder: StackFolder, world: World) -> None:
    from trainhouse.gateway.errors import ProblemError
    from trainhouse.gateway.queries import read_your_writes

    keys = Keyring.of_settings(GatewaySettings(key_file=token_keys.token_key(folder), accepted_keys_file=token_keys.accepted_keys(folder)))
    written = read_your_writes.Written(job_id=JOB, event_id="e", partition=0, offset=1)
    token = read_your_writes.token_of(written, keys.now().newest)
    token_keys.renew(folder)
    assert read_your_writes.read_by(keys.now(), token) == written
    token_keys.retire(folder)
    with pytest.raises(ProblemError, match="leave it out"):
        read_your_writes.read_by(keys.now(), token)


@pytest.mark.parametrize("content", ["short", ""])
def test_a_damaged_file_of_keys_leaves_the_keys_that_were_known(tmp_path: Path, content: str) -> None:
    path = tmp_path / "key"
    path.write_text("k" * 64)
    keys = Keyring.of_settings(GatewaySettings(key_file=path))
    path.write_text(content)
    assert keys.now().all == (b"k" * 64,)


def test_who_signs_for_a_gateway_that_knows_the_next_key_already(tmp_path: Path) -> None:
    """Of several gateways all take the next key before the first signs by it."""
    paths: dict[str, Any] = {"key_file": tmp_path / "key", "accepted_keys_file": tmp_path / "more"}
    paths["key_file"].write_text("a" * 64)
    keys = Keyring.of_settings(GatewaySettings(**paths))
    by_next = tokens.issue(b"b" * 64, "ana", ["viewer"], ["vision"], now_s=int(time.time()))
    with pytest.raises(tokens.InvalidTokenError):
        keys.now().read(lambda key: tokens.read(key, by_next))
    paths["accepted_keys_file"].write_text(f"{'b' * 64}\n")
    assert keys.now().read(lambda key: tokens.read(key, by_next)).sub == "ana" and keys.now().newest == b"a" * 64
