"""Connections of clients that are slow: with a request's head, with taking an answer, over a real server on a free port."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import uvicorn

from tests.support.waiting import until
from trainhouse.gateway.limits import connection_timeouts
from trainhouse.gateway.routes.streams import EventStream

HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n"
HEAD_S = 1.0
ENOUGH_S = 30.0


async def answers(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    monkeypatch.setattr(connection_timeouts, "HEAD_S", HEAD_S)
    made = uvicorn.Config(
        answers, http=connection_timeouts.PatientProtocol, ws="none", lifespan="off", log_config=None, timeout_keep_alive=60
    )
    server = uvicorn.Server(made)
    listener = connection_timeouts.listening("127.0.0.1", 0)
    serving = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    serving.start()
    until(lambda: server.started)
    yield listener.getsockname()
    server.should_exit = True
    serving.join(ENOUGH_S)


def answered(connection: socket.socket) -> bytes:
    connection.sendall(HEAD + b"\r\n")
    return taken(connection)


def taken(connection: socket.socket) -> bytes:
    """One answer."""
    got = b""
    while not got.endswith(b"ok") and (more := connection.recv(4096)):
        got += more
    return got


def closed_after_s(connection: socket.socket) -> float:
    """Sends a head that never ends, some bytes at a time, until the server has enough of it."""
    began_s = time.monotonic()
    connection.settimeout(0.05)
    connection.sendall(HEAD)
    while time.monotonic() < began_s + ENOUGH_S:
        try:
            connection.sendall(b"X-Drip: 1\r\n")
            if connection.recv(4096) == b"":
                return time.monotonic() - began_s
        except TimeoutError:
            continue
        except OSError:
            return time.monotonic() - began_s
    raise AssertionError("the connection stays open for ever")


def test_a_first_head_that_does_not_end_is_not_waited_for(address: tuple[str, int]) -> None:
    with socket.create_connection(address, timeout=ENOUGH_S) as connection:
        assert closed_after_s(connection) >= HEAD_S / 2


def test_a_later_head_that_does_not_end_is_not_waited_for_either(address: tuple[str, int]) -> None:
    with socket.create_connection(address, timeout=ENOUGH_S) as connection:
        assert answered(connection).endswith(b"ok")
        assert closed_after_s(connection) >= HEAD_S / 2


def test_a_connection_that_rests_between_requests_is_kept(address: tuple[str, int]) -> None:
    with socket.create_connection(address, timeout=ENOUGH_S) as connection:
        for _ in range(2):
            # A head in two parts, in time, leaves no limit behind for the rest after it.
            connection.sendall(HEAD)
            time.sleep(0.05)
            connection.sendall(b"\r\n")
            assert taken(connection).endswith(b"ok")
            time.sleep(HEAD_S * 1.3)


def test_the_kernel_drops_whoever_takes_nothing() -> None:
    with connection_timeouts.listening("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == connection_timeouts.UNREAD_MS


def test_an_answer_does_not_wait_for_the_reader_to_acknowledge_its_head() -> None:
    with connection_timeouts.listening("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_stream_ends_with_a_reader_that_takes_nothing() -> None:
    left = asyncio.Event()

    async def parts() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b": still here\n\n"
        finally:
            left.set()

    async def takes_nothing(message: Any) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    async def scene() -> None:
        async with asyncio.timeout(ENOUGH_S):
            await EventStream(parts(), 0.05).stream_response(takes_nothing)
            await left.wait()

    asyncio.run(scene())
