"""Attacks on the memory of a gateway through the WebSockets of tunnels, by real clients that do not read, or send tiny pieces."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import uvicorn
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.sync.client import ClientConnection, connect

from tests.support.waiting import until
from trainhouse.deploy.local.free_ports import free_port
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.tunnel.tunnel_call import MAX_MESSAGE_BYTES, client_path, node_path
from trainhouse.gateway.auth.roles import Principal, Role
from trainhouse.gateway.context import Gateway
from trainhouse.gateway.limits import connection_timeouts
from trainhouse.gateway.limits.bounded_websockets import MOST_FRAGMENTS, TOO_MANY
from trainhouse.gateway.serve import server_config
from trainhouse.gateway.settings import GatewaySettings
from trainhouse.gateway.tunnels.tunnel_desk import Tunnel
from trainhouse.projections.settings import ClickHouseSettings

WAIT_S = 60.0
MOST_WAITING_BYTES = 1 << 20
FLOOD_BYTES = 8 << 20


@dataclass
class Served:
    """A gateway whose Kafka and projections are away, and its loop."""

    port: int
    server: uvicorn.Server
    gateway: Gateway
    loop: asyncio.AbstractEventLoop

    def open(self) -> Tunnel:
        """A tunnel that waits for its node, which has no key."""

        async def made() -> Tunnel:
            return self.gateway.tunnels.open(Principal("ada", (Role.ADMIN,), ("*",), "t"), "")

        return asyncio.run_coroutine_threadsafe(made(), self.loop).result(WAIT_S)

    def waiting_bytes(self) -> int:
        """Most that waits in this process for one client."""
        return max((each.transport.get_write_buffer_size() for each in list(self.server.server_state.connections)), default=0)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    chosen = GatewaySettings.model_validate({"key": "k" * 40})
    away = KafkaSettings(bootstrap=f"127.0.0.1:{free_port()}"), ClickHouseSettings(url=f"http://127.0.0.1:{free_port()}")
    config = server_config(chosen, *away, "critical")
    server, listener, loops = uvicorn.Server(config), connection_timeouts.listening("127.0.0.1", 0), []

    def run() -> None:
        async def serve() -> None:
            loops.append(asyncio.get_running_loop())
            await server.serve(sockets=[listener])

        asyncio.run(serve())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    until(lambda: server.started)
    yield Served(listener.getsockname()[1], server, config.app.state.gateway, loops[0])  # type: ignore[union-attr]
    server.should_exit = True
    thread.join(WAIT_S)


def node_of(served: Served, tunnel: Tunnel) -> ClientConnection:
    return connect(f"ws://127.0.0.1:{served.port}{node_path(tunnel.tunnel_id)}", ping_interval=None, compression=None)


def user_of(served: Served, tunnel: Tunnel) -> ClientConnection:
    headers = {"X-Trainhouse-Ticket": tunnel.ticket}
    address = f"ws://127.0.0.1:{served.port}{client_path(tunnel.tunnel_id)}"
    return connect(address, additional_headers=headers, ping_interval=None, compression=None)


def raw_user_of(served: Served, tunnel: Tunnel) -> socket.socket:
    """A user's end that reads nothing after the opening."""
    found = socket.create_connection(("127.0.0.1", served.port), WAIT_S)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    lines = [
        f"GET {client_path(tunnel.tunnel_id)} HTTP/1.1",
        f"Host: 127.0.0.1:{served.port}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",  # pragma: allowlist secret
        f"X-Trainhouse-Ticket: {tunnel.ticket}",
    ]
    found.sendall("\r\n".join([*lines, "", ""]).encode())
    assert found.recv(4096).startswith(b"HTTP/1.1 101")
    return found


def masked(opcode: Opcode, data: bytes, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=True)


def flooded(served: Served, connection: socket.socket, frames: bytes) -> int:
    """Sends frames again and again, up to FLOOD_BYTES or until the gateway closes; the most that waited for the client meanwhile."""
    sent, most = 0, 0
    while sent < FLOOD_BYTES and most <= MOST_WAITING_BYTES:
        try:
            connection.sendall(frames)
        except ConnectionError:
            break
        sent += len(frames)
        most = max(most, served.waiting_bytes())
    return most


def test_pings_of_a_client_that_reads_nothing_fill_no_memory_and_its_newest_is_answered(served: Served) -> None:
    tunnel = served.open()
    with node_of(served, tunnel) as node:
        node.send('{"ok": true}')
        with raw_user_of(served, tunnel) as user:
            assert flooded(served, user, b"".join(masked(Opcode.PING, os.urandom(125)) for _ in range(500))) <= MOST_WAITING_BYTES
            user.sendall(masked(Opcode.PING, b"the last") + masked(Opcode.BINARY, b"typed"))
            # What it types arrives all the same.
            assert node.recv(WAIT_S) == b"typed"
            got = b""
            while Frame(Opcode.PONG, b"the last").serialize(mask=False) not in got:
                got = got[-1000:] + user.recv(1 << 16)


def test_a_message_of_endless_empty_fragments_is_closed_with_the_reason(served: Served) -> None:
    tunnel = served.open()
    with node_of(served, tunnel) as node:
        node.send('{"ok": true}')
        with raw_user_of(served, tunnel) as user:
            user.sendall(masked(Opcode.BINARY, b"", fin=False))
            fragment = masked(Opcode.CONT, b"", fin=False)
            flooded(served, user, fragment * 10_000)
            got = b""
            try:
                while more := user.recv(1 << 16):
                    got += more
            except ConnectionError:
                pass
            assert struct.pack("!H", 1008) + TOO_MANY.encode() in got
        with pytest.raises(ConnectionClosed):
            node.recv(WAIT_S)
    until(lambda: not len(served.gateway.tunnels))


def test_a_message_of_some_fragments_arrives_whole(served: Served) -> None:
    tunnel = served.open()
    with node_of(served, tunnel) as node:
        node.send('{"ok": true}')
        with user_of(served, tunnel) as user:
            user.send(bytes([at % 256]) for at in range(MOST_FRAGMENTS - 1))
            assert node.recv(WAIT_S) == bytes(at % 256 for at in range(MOST_FRAGMENTS - 1))


def test_messages_of_single_bytes_that_come_at_once_wait_as_few_and_keep_their_order(served: Served) -> None:
    tunnel = served.open()
    with node_of(served, tunnel) as node:
        node.send('{"ok": true}')
        with raw_user_of(served, tunnel) as user:
            whole = os.urandom(100_000)
            user.sendall(b"".join(masked(Opcode.BINARY, bytes([byte])) for byte in whole))
            got, pieces = b"", 0
            while len(got) < len(whole):
                piece = node.recv(WAIT_S)
                assert isinstance(piece, bytes) and len(piece) <= MAX_MESSAGE_BYTES
                got, pieces = got + piece, pieces + 1
            assert got == whole and pieces < 2000
