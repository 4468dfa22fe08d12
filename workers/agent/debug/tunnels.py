"""Tunnels between users of interactive jobs and the jobs' programs: this agent calls the gateway back, and passes bytes on.

Holds: nothing listens here. The agent shows by its key that it is the node that was asked. The job's socket is opened without following
links, and its other side is a process of the job's user. Tunnels, and bytes that wait in each, have a bound; each ends with either side.
Never: holds up the agent's loop; reads what passes.
"""

import asyncio
import contextlib
import json
import os
import socket
import ssl
import stat
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

from trainhouse.events import OpenTunnel
from trainhouse.events.security.signing import SigningKey
from trainhouse.events.tunnel.tunnel_call import MAX_MESSAGE_BYTES, call_bytes, node_path
from trainhouse.events.tunnel.tunnel_call import SIGNED_AS as TUNNELS
from trainhouse.workers.launcher import AttemptPaths

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

MAX_TUNNELS: Final = 128
CALL_S: Final = 10.0
PROGRAM_S: Final = 8.0
"""For the program of a job that has just started to open its socket."""
RETRY_S: Final = 0.1
PIECE_BYTES: Final = 32 * 1024
QUEUED_MESSAGES: Final = 8
BUSY: Final = f"this node has {MAX_TUNNELS} tunnels open, and that is the most: close one, or ask again"
_PEER: Final = struct.Struct("3i")
log = structlog.get_logger(__name__)

Closed = Callable[[int, str], None]
"""Called once at a tunnel's end with the bytes that passed, and why it did not go as asked (else empty); from another thread."""


@dataclass
class Tunnels:
    """Tunnels of one agent. `ca`: an authority that is trusted beside the system's; `key`: the node's."""

    ca: Path | None = None
    key: SigningKey | None = None

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open = 0

    def open(self, request: OpenTunnel, paths: AttemptPaths | None, closed: Closed) -> None:
        """Begins to call the gateway. `paths`: of the job's attempt here; None where it does not run here. Does not block."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="tunnels", daemon=True).start()
            loop = self._loop
        asyncio.run_coroutine_threadsafe(self._run(request, paths, closed), loop)

    def close(self) -> None:
        """Ends all of them. Blocks for a moment."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            with contextlib.suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(_cancelled(), loop).result(2.0)
            loop.call_soon_threadsafe(loop.stop)

    async def _run(self, request: OpenTunnel, paths: AttemptPaths | None, closed: Closed) -> None:
        self._open += 1
        passed, why = [0], "the agent ended"
        try:
            why = await self._serve(request, paths, passed)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            log.warning("a tunnel did not come about", job_id=request.job_id, reason=why)
        finally:
            self._open -= 1
            closed(passed[0], why)

    async def _serve(self, request: OpenTunnel, paths: AttemptPaths | None, passed: list[int]) -> str:
        """Returns why it did not go as asked; empty where it did. Raises OSError, WebSocketException."""
        stream, why = None, BUSY
        if self._open <= MAX_TUNNELS:
            stream, why = await _program(paths) if paths is not None else (None, "the job does not run on this node now")
        try:
            async with await self._called(request) as gateway:
                await gateway.send(json.dumps({"error": why} if stream is None else {"ok": True}))
                if stream is not None:
                    await _pass_both(gateway, *stream, passed)
        finally:
            if stream is not None:
                stream[1].close()
        return why

    async def _called(self, request: OpenTunnel) -> "ClientConnection":
        """Calls the gateway. Raises OSError, WebSocketException."""
        from websockets.asyncio.client import connect  # by the first tunnel: most agents have none

        signed = self.key.header(TUNNELS, call_bytes(request.request_id, request.nonce)) if self.key is not None else None
        context: ssl.SSLContext | None = None
        if request.url.startswith("https://"):
            context = ssl.create_default_context()
            if self.ca is not None:
                context.load_verify_locations(cafile=self.ca)
        return await connect(
            f"ws{request.url.removeprefix('http').rstrip('/')}{node_path(request.request_id)}",
            additional_headers=[(signed[0], signed[1].decode())] if signed is not None else None,
            ssl=context,
            compression=None,
            open_timeout=CALL_S,
            max_size=MAX_MESSAGE_BYTES,
            max_queue=QUEUED_MESSAGES,
        )


async def _program(paths: AttemptPaths) -> tuple[tuple[asyncio.StreamReader, asyncio.StreamWriter] | None, str]:
    """A stream to the program of an interactive job; else the reason."""
    until_s, why = time.monotonic() + PROGRAM_S, ""
    while time.monotonic() < until_s:
        try:
            return await asyncio.open_unix_connection(sock=_connected(paths)), ""
        except PermissionError as error:
            return None, str(error)
        except OSError:
            why = "the job's program offers no session: its command has to be `python -m trainhouse.workers.interactive`"
        await asyncio.sleep(RETRY_S)
    return None, why


def _connected(paths: AttemptPaths) -> socket.socket:
    """A connection to the job's socket. The folder is the job's: what lies there is looked at, never followed. Raises OSError."""
    place = paths.rank(0).interactive
    folder = os.open(place.parent, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        there = os.open(place.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        if not stat.S_ISSOCK(os.fstat(there).st_mode):
            raise PermissionError("something that is no socket lies where the job's program has its socket")
        found.setblocking(False)
        found.connect(f"/proc/self/fd/{there}")
        peer: int = _PEER.unpack(found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[1]
        if peer != os.stat(paths.code, follow_symlinks=False).st_uid:
            raise PermissionError("the socket of the job's program is another user's")
    except BaseException:
        found.close()
        raise
    finally:
        os.close(there)
    return found


async def _pass_both(gateway: "ClientConnection", reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passed: list[int]) -> None:
    """Passes bytes on until either side ends."""
    ways = [asyncio.create_task(_out(gateway, reader, passed)), asyncio.create_task(_in(gateway, writer, passed))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _out(gateway: "ClientConnection", reader: asyncio.StreamReader, passed: list[int]) -> None:
    while data := await reader.read(PIECE_BYTES):
        passed[0] += len(data)
        await gateway.send(data)


async def _in(gateway: "ClientConnection", writer: asyncio.StreamWriter, passed: list[int]) -> None:
    async for message in gateway:
        if isinstance(message, str):
            return  # the gateway says nothing after the beginning
        passed[0] += len(message)
        writer.write(message)
        await writer.drain()


async def _cancelled() -> None:
    others: Any = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
