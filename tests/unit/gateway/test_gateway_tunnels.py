"""Tunnels of a gateway: who connects with which end, how many there may be, and that an end ends both."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps

import pytest
from starlette.websockets import WebSocketDisconnect

from trainhouse.events.security.signing import SigningKey
from trainhouse.events.tunnel.tunnel_call import SIGNED_AS, call_bytes
from trainhouse.gateway.auth.roles import Principal, Role
from trainhouse.gateway.errors import ProblemError
from trainhouse.gateway.settings import GatewaySettings
from trainhouse.gateway.tunnels.tunnel_desk import Tunnel, TunnelDesk

NODE, OTHER = SigningKey.made(), SigningKey.made()


def in_a_loop(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    async def whole() -> None:
        await test()

    @wraps(test)
    def run() -> None:
        asyncio.run(whole())

    del run.__wrapped__  # type: ignore[attr-defined]  # pytest would see a coroutine
    return run


def somebody(name: str = "ada") -> Principal:
    return Principal(name, (Role.SUBMITTER,), ("vision",), "t")


def header(key: SigningKey, tunnel: Tunnel, nonce: str = "") -> str:
    return key.header(SIGNED_AS, call_bytes(tunnel.tunnel_id, nonce or tunnel.nonce))[1].decode()


class Side:
    """One end, which notes how it was closed."""

    def __init__(self, is_gone: bool = False) -> None:
        self.closed: list[tuple[int, str | None]] = []
        self.is_gone = is_gone

    async def send_bytes(self, data: bytes) -> None: ...

    async def close(self, code: int = 1000, reason: str | None = None) -> None:
        if self.is_gone:
            raise WebSocketDisconnect(1006)
        self.closed.append((code, reason))


@in_a_loop
async def test_of_a_node() -> None:
    desk = TunnelDesk(10, 10)
    tunnel, another = desk.open(somebody(), NODE.public_key), desk.open(somebody(), NODE.public_key)
    assert tunnel.is_called_by_node(header(NODE, tunnel))
    for wrong in (None, "", "x", header(OTHER, tunnel), header(NODE, another), header(NODE, tunnel, "another nonce")):
        assert not tunnel.is_called_by_node(wrong), wrong
    assert desk.open(somebody(), "").is_called_by_node(None)


@in_a_loop
async def test_of_its_user() -> None:
    tunnel = TunnelDesk(10, 10).open(somebody(), "")
    assert tunnel.is_users(tunnel.ticket)
    assert not any(tunnel.is_users(wrong) for wrong in (None, "", "ü", tunnel.tunnel_id))
    assert tunnel.ticket not in repr(tunnel)


@in_a_loop
async def test_so_many_at_once_for_all_and_for_each_and_an_end_makes_room() -> None:
    desk = TunnelDesk(3, 2)
    first, _ = desk.open(somebody(), ""), desk.open(somebody(), "")
    with pytest.raises(ProblemError, match="ada has 2 tunnels open") as of_one:
        desk.open(somebody(), "")
    desk.open(somebody("bob"), "")
    with pytest.raises(ProblemError, match="3 tunnels open") as of_all:
        desk.open(somebody("eve"), "")
    assert (of_one.value.status, of_all.value.status) == (429, 503)
    await desk.end(first)
    await desk.end(first)
    assert len(desk) == 2 and desk.find(first.tunnel_id) is None
    assert desk.open(somebody(), "")


@in_a_loop
async def test_an_end_closes_both_sides_with_its_reason_once_and_wakes_who_waits() -> None:
    desk, node, client = TunnelDesk(3, 2), Side(), Side()
    tunnel = desk.open(somebody(), "")
    tunnel.node, tunnel.client = node, client
    await desk.end(tunnel, 1008, "é" * 200)
    await desk.end(tunnel)
    assert node.closed == client.closed == [(1008, "é" * 60)]
    await asyncio.wait_for(tunnel.joined.wait(), 1)


@in_a_loop
async def test_a_side_that_is_gone_without_a_word_keeps_the_other_from_nothing() -> None:
    desk, client = TunnelDesk(3, 2), Side()
    tunnel = desk.open(somebody(), "")
    tunnel.node, tunnel.client = Side(is_gone=True), client
    await desk.end(tunnel, 1011, "lost")
    assert client.closed == [(1011, "lost")]


def test_tunnels_leave_room_for_requests() -> None:
    """Each has two connections, which count as requests at once for as long as it is open."""
    fields = GatewaySettings.model_fields
    ends = 2 * fields["tunnels_at_once"].default
    assert ends <= fields["requests_at_once"].default / 4
    assert fields["tunnels_per_user"].default <= fields["tunnels_at_once"].default / 4
