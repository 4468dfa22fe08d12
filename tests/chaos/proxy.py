"""A TCP proxy whose wire can be cut: a partition between whoever connects to it and the server behind it.

Holds: while it is cut, no byte passes in either direction and nobody is told so: connections stand, new ones are taken and stay silent,
as with packets that get lost. Healed, what was on its way arrives, as a retransmission would bring it.
Never: looks into what it carries.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

CHUNK_BYTES = 64 * 1024


class Proxy:
    """Listens on `(host, port)` (0: any free port) and connects to `(to_host, to_port)`, in a thread of its own."""

    def __init__(self, to_port: int, port: int = 0, host: str = "127.0.0.1", to_host: str = "127.0.0.1") -> None:
        self._to = (to_host, to_port)
        self._listening = socket.create_server((host, port))
        self.port = int(self._listening.getsockname()[1])
        self._loop = asyncio.new_event_loop()
        self._open = asyncio.Event()
        self._open.set()
        self._stopped = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), name=f"proxy-{self.port}", daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """From now on nothing passes."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def heal(self) -> None:
        """Everything passes again. Harmless when nothing was cut."""
        self._loop.call_soon_threadsafe(self._open.set)

    def close(self) -> None:
        """Ends it with all connections."""
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accepted, sock=self._listening)
        await self._stopped.wait()
        server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._open.wait()
            with contextlib.suppress(OSError):
                await self._carry(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection(*self._to)
        port = int(writer.get_extra_info("peername")[1])
        ways = [asyncio.ensure_future(self._ask(reader, to_writer, port)), asyncio.ensure_future(self._pump(to_reader, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            to_writer.close()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        """From a client, which connects from that port, to the server."""
        await self._pump(reader, writer)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            await self._open.wait()
            writer.write(data)
            await writer.drain()
        await self._open.wait()
        writer.write_eof()
