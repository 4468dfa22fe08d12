"""Unix socket in each attempt's folder where ranks ask for leases of the object store, served by one thread
of the agent, and at most one more for each attempt.

Holds: who reaches an attempt's socket has that attempt's rights, so the uid of each connection is compared with that of the attempt's code,
which a confined attempt gets only once its ranks start. Connections, lines and requests a second have a bound for each attempt. An attempt
that is over, or that a newer one of its job on this node replaces, gets nothing more. A restarted agent opens the sockets of adopted
attempts again.
Never: holds up the agent's loop, or its own: what waits for the store waits in a thread, and an attempt waits for itself alone.
"""

import asyncio
import os
import socket
import stat
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import structlog

from trainhouse.checkpointing.lease.access_rule import Ask, Lease
from trainhouse.checkpointing.lease.wire import MAX_BATCH, MAX_LINE_BYTES, HolderReply, LeaseReply
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.events import GangAllocated
from trainhouse.workers.agent.core import AttemptKey
from trainhouse.workers.agent.launch.attempt_dirs import key_of
from trainhouse.workers.agent.launch.lease_grants import Grants, LeaseDesk, Tenant
from trainhouse.workers.agent.peer_memory.holder_desk import HolderDesk
from trainhouse.workers.launcher import AttemptPaths

MAX_CONNECTIONS = 256
ASKS_A_SECOND = 1_000
BURST = 5_000
THREADS = 64
_PEER = struct.Struct("3i")
log = structlog.get_logger(__name__)


@dataclass
class _Open:
    """One attempt that has leave. `turn`: its requests are answered one after another, by one thread at most."""

    tenant: Tenant
    code: Path
    listener: socket.socket
    server: asyncio.Server | None = None
    over: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    writers: set[asyncio.StreamWriter] = field(default_factory=set)
    left: float = BURST
    filled_at_s: float = field(default_factory=time.monotonic)

    def wait_s(self, asks: int) -> float:
        """Returns the wait that keeps the attempt to its rate."""
        now = time.monotonic()
        self.left = min(BURST, self.left + (now - self.filled_at_s) * ASKS_A_SECOND) - asks
        self.filled_at_s = now
        return max(0.0, -self.left / ASKS_A_SECOND)


class StoreLeases:
    """Of one agent. `begin` and `end` may be called from any thread and do not wait for the store."""

    def __init__(self, settings: StoreSettings, holders: HolderDesk | None = None, grants: Grants | None = None) -> None:
        self._desk = LeaseDesk(settings, grants=grants)
        self._holders = holders
        self._lock = threading.Lock()
        self._open: dict[AttemptKey, _Open] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self, allocation: GangAllocated, paths: AttemptPaths) -> None:
        """Opens the attempt's socket, if it is not open. Raises OSError."""
        key = key_of(allocation)
        with self._lock:
            if key in self._open:
                return
            opened = self._open[key] = _Open(Tenant.of(allocation), paths.code, _listening(paths))
            loop = self._running()
        asyncio.run_coroutine_threadsafe(self._serve(opened), loop)

    def end(self, key: AttemptKey) -> None:
        """Nothing more for this attempt."""
        with self._lock:
            opened, loop = self._open.pop(key, None), self._loop
        if opened is not None and loop is not None:
            loop.call_soon_threadsafe(_hang_up, opened)

    def close(self) -> None:
        """Stops; ranks that run go on asking until an agent is there again."""
        for key in list(self._open):
            self.end(key)
        with self._lock:
            if self._loop is not None:
                asyncio.run_coroutine_threadsafe(_stopped(), self._loop)
            self._loop = None
        self._desk.close()

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._loop.set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="store-leases"))
            threading.Thread(target=self._loop.run_forever, name="store-leases", daemon=True).start()
        return self._loop

    async def _serve(self, opened: _Open) -> None:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._talk(opened, reader, writer)

        opened.server = await asyncio.start_unix_server(connected, sock=opened.listener, limit=MAX_LINE_BYTES)
        if opened.over:
            _hang_up(opened)

    async def _talk(self, opened: _Open, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(opened.writers) >= MAX_CONNECTIONS or not _is_let_in(writer, opened.code):
            writer.close()
            return
        opened.writers.add(writer)
        try:
            while line := await reader.readline():
                writer.write(orjson.dumps(await self._reply(opened, line)) + b"\n")
                await writer.drain()
        except (OSError, ValueError) as error:  # a line too long, or none of ours: there is no going on after it
            log.warning("a rank's request for leave cannot be read", job=opened.tenant.job_id, error=str(error))
        finally:
            opened.writers.discard(writer)
            writer.close()

    async def _reply(self, opened: _Open, line: bytes) -> dict[str, Any]:
        request = orjson.loads(line)
        if not isinstance(request, dict) or not isinstance(request.get("asks", []), list) or len(request.get("asks", [])) > MAX_BATCH:
            raise ValueError(f"neither a session nor at most {MAX_BATCH} asks")
        tenant, asks = opened.tenant, [Ask.parse(ask) for ask in request.get("asks", [])]
        wait_s = opened.wait_s(max(1, len(asks)))
        if wait_s:
            await asyncio.sleep(wait_s)
        if "holder" in request and not request.get("session"):  # blocks on the store: signing of puts does not wait for it
            return {"holder": await self._holder(tenant, request["holder"], self._replaced(opened))}
        async with opened.turn:  # so that this loop never waits for the tenant's lock
            replaced = self._replaced(opened)
            if request.get("session"):
                return {"session": replaced or await asyncio.to_thread(self._desk.session, tenant)}
            if replaced is not None:
                return {"answers": [replaced] * len(asks)}
            if self._desk.ready(tenant, asks):
                return {"answers": self._desk.answer(tenant, asks)}
            return {"answers": await asyncio.to_thread(self._desk.answer, tenant, asks)}

    async def _holder(self, tenant: Tenant, node_id: Any, replaced: LeaseReply | None) -> HolderReply:
        if not isinstance(node_id, str):
            raise ValueError("holder must be the name of a node, or empty")
        if replaced is not None:
            return HolderReply(why=replaced["why"])
        if self._holders is None:
            return HolderReply(why="this node's agent offers no peer memory")
        lease = await asyncio.to_thread(self._desk.lease_of, tenant)
        if not isinstance(lease, Lease):
            return HolderReply(why=lease.get("why", "the store is away"))
        return await asyncio.to_thread(self._holders.access, lease, node_id)

    def _replaced(self, opened: _Open) -> LeaseReply | None:
        job_id, epoch = opened.tenant.job_id, opened.tenant.epoch
        with self._lock:
            newest = max((key.epoch for key in self._open if key.job_id == job_id), default=epoch)
        if newest <= epoch:
            return None
        return LeaseReply(kind="stale", why=f"epoch {newest} of job {job_id} runs here; this attempt, of epoch {epoch}, must end")


def _listening(paths: AttemptPaths) -> socket.socket:
    """A socket for the attempt's ranks; who may speak is judged at each connection. Raises OSError."""
    name = paths.store_socket.name
    folder = os.open(paths.folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        try:
            os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            pass
        listener.bind(f"/proc/self/fd/{folder}/{name}")  # the whole path may be longer than an address
        _let_connect(name, folder)
        listener.listen(128)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    finally:
        os.close(folder)
    return listener


def _let_connect(name: str, folder: int) -> None:
    """Everybody may connect. The folder may be a rank's: what lies there now under the name is looked at, never followed."""
    there = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        if not stat.S_ISSOCK(os.fstat(there).st_mode):
            raise FileExistsError(f"{name} was replaced by something that is no socket")
        os.chmod(f"/proc/self/fd/{there}", 0o666)  # nosec B103  # the uid of each connection is judged
    finally:
        os.close(there)


def _is_let_in(writer: asyncio.StreamWriter, code: Path) -> bool:
    peer: int = _PEER.unpack(writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[1]
    return peer == os.getuid() or peer == os.stat(code, follow_symlinks=False).st_uid


async def _stopped() -> None:
    """Ends what the loop still does, then the loop."""
    loop, others = asyncio.get_running_loop(), asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    loop.stop()


def _hang_up(opened: _Open) -> None:
    opened.over = True
    if opened.server is not None:
        opened.server.close()
    for writer in list(opened.writers):
        writer.close()
