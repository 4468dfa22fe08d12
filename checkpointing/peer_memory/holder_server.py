"""The process that holds other nodes' chunks in memory: `python -m trainhouse.checkpointing.peer_memory.holder_server`.

Its settings come as a JSON line on standard input: `{"address", "port", "secret", "budget_bytes"}`; it answers `{"port": N}` and ends with
its input. A connection begins with a token; then `begin`, `put` with its `body`, and `get`.

Holds: connections, headers, waits and memory have a bound, and a job takes no more connections than it leaves to others. Under memory
pressure the kernel ends this process before others: it is a cache.
Never: writes to disk; gives a job's chunks to a token of another job.
"""

import json
import mmap
import os
import socket
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainhouse.checkpointing.peer_memory.access_token import Access, AccessRefusedError, access_of
from trainhouse.checkpointing.peer_memory.channel import Channel, ChannelError
from trainhouse.checkpointing.peer_memory.held_chunks import HeldChunks, NoRoomError, Owner, StaleWriterError

MAX_CONNECTIONS = 1024
MAX_UNKNOWN_OF_ADDRESS = 128
"""Connections of one address that have not sent a token yet: the ranks of a node connect at once after a restart."""
MAX_TOKEN_BYTES = 4096
ACCEPT_AGAIN_S = 0.1
TOKEN_S = 10.0
IDLE_S = 300.0
SLOWEST_BYTES_PER_S = 1e6
NICE = 5
OOM_SCORE = "800"
_HEX = frozenset("0123456789abcdef")


class Holder:
    """Serves one memory over one listening socket."""

    def __init__(self, listener: socket.socket, secret: str, budget_bytes: int) -> None:
        self._listener = listener
        self._secret = secret
        self._budget_bytes = budget_bytes
        self._chunks = HeldChunks(budget_bytes, time.monotonic)
        self._lock = threading.Lock()
        self._connections = 0
        self._of_address: Counter[str] = Counter()
        self._of_job: Counter[str] = Counter()

    def serve(self) -> None:
        """Accepts connections for ever, also after those that the system has no file or thread for."""
        while True:
            try:
                connected, (address, *_) = self._listener.accept()
            except OSError:
                time.sleep(ACCEPT_AGAIN_S)
                continue
            why = self._enter(address)
            if why:
                _refuse(connected, why)
                continue
            try:
                threading.Thread(target=self._talk, args=(connected, address), daemon=True).start()
            except RuntimeError:
                connected.close()
                self._leave(self._of_address, address)
                self._end()

    def _talk(self, connected: socket.socket, address: str) -> None:
        channel, job_id = None, ""
        try:
            channel = Channel(connected)
            channel.allow(TOKEN_S)
            try:
                access = self._authenticate(channel)
            finally:
                self._leave(self._of_address, address)
            self._enter_job(access.job_id)
            job_id = access.job_id
            channel.send({})
            self._talk_with(channel, access)
        except (ChannelError, OSError):
            pass
        except _RefusedError as error:
            with suppress(ChannelError):
                assert channel is not None
                channel.allow(TOKEN_S)
                channel.send({"refused": str(error)})
        finally:
            (channel or connected).close()
            if job_id:
                self._leave(self._of_job, job_id)
            self._end()

    def _enter(self, address: str) -> str:
        """Counts a connection; returns why it is one too many."""
        with self._lock:
            if self._connections >= MAX_CONNECTIONS:
                return f"it has {MAX_CONNECTIONS} connections, which is its bound"
            if self._of_address[address] >= MAX_UNKNOWN_OF_ADDRESS:
                return f"{MAX_UNKNOWN_OF_ADDRESS} connections of {address} have sent no token yet, which is the bound of an address"
            self._connections += 1
            self._of_address[address] += 1
            return ""

    def _enter_job(self, job_id: str) -> None:
        """Counts a connection of a job: as many as are left to others, so that a second job finds half of them, a third a quarter."""
        with self._lock:
            if self._of_job[job_id] > MAX_CONNECTIONS - self._connections:
                raise _RefusedError(
                    f"job {job_id} has {self._of_job[job_id]} connections here, and {MAX_CONNECTIONS - self._connections} of "
                    f"{MAX_CONNECTIONS} are left for others: a job takes no more than it leaves"
                )
            self._of_job[job_id] += 1

    def _leave(self, counts: Counter[str], name: str) -> None:
        with self._lock:
            counts[name] -= 1
            if not counts[name]:
                del counts[name]

    def _end(self) -> None:
        with self._lock:
            self._connections -= 1

    def _authenticate(self, channel: Channel) -> Access:
        token = channel.header(MAX_TOKEN_BYTES).get("token")
        try:
            access = access_of(self._secret, token if isinstance(token, str) else "", time.time())
        except AccessRefusedError as error:
            raise _RefusedError(str(error)) from error
        return access

    def _talk_with(self, channel: Channel, access: Access) -> None:
        owner: Owner | None = None
        while True:
            channel.allow(IDLE_S)
            request = channel.header()
            channel.allow(IDLE_S)
            match request.get("op"):
                case "get":
                    self._get(channel, access, request)
                case "begin":
                    owner = self._begin(access, request)
                    channel.send({})
                case "put" if owner is not None:
                    self._put(channel, owner, access.epoch, request)
                case _:
                    raise _RefusedError("no such request here: get, begin, or put after begin")

    def _get(self, channel: Channel, access: Access, request: dict[str, Any]) -> None:
        job_id, sha256 = request.get("job"), request.get("sha256")
        if job_id not in access.reads or not isinstance(job_id, str) or not isinstance(sha256, str):
            raise _RefusedError(f"the token of job {access.job_id} is not one for chunks of {str(job_id)[:200]}")
        with self._lock:
            chunk = self._chunks.lend(job_id, sha256)
        if chunk is None:
            channel.send({})
            return
        try:
            channel.allow(TOKEN_S + len(chunk.body) / SLOWEST_BYTES_PER_S)
            channel.send({"size_bytes": len(chunk.body)}, chunk.body)
        finally:
            with self._lock:
                self._chunks.end_loan(chunk)

    def _begin(self, access: Access, request: dict[str, Any]) -> Owner:
        rank, save, kept = request.get("rank"), request.get("save"), request.get("kept")
        if not access.writes:
            raise _RefusedError("the token is one for reading alone")
        if type(rank) is not int or type(save) is not int or not (kept is None or isinstance(kept, list)):
            raise _RefusedError("begin needs rank, save and kept")
        owner = Owner(access.job_id, rank)
        try:
            with self._lock:
                self._chunks.begin(owner, access.epoch, save, None if kept is None else frozenset(map(str, kept)))
        except (StaleWriterError, NoRoomError) as error:
            raise _RefusedError(str(error)) from error
        return owner

    def _put(self, channel: Channel, owner: Owner, epoch: int, request: dict[str, Any]) -> None:
        sha256, size_bytes = request.get("sha256"), request.get("size_bytes")
        if not isinstance(sha256, str) or len(sha256) != 64 or not _HEX.issuperset(sha256):
            raise _RefusedError("put needs the hash of a chunk")
        if type(size_bytes) is not int or size_bytes < 0:
            raise _RefusedError("put needs the size of a chunk")
        try:
            with self._lock:
                wanted = self._chunks.reserve(owner, epoch, sha256, size_bytes)
        except (StaleWriterError, NoRoomError) as error:
            raise _RefusedError(str(error)) from error
        except KeyError:
            raise _RefusedError("this rank was silent for long, and its room was given to others; the next save begins anew") from None
        if not wanted:
            channel.send({"send": False})
            return
        try:
            body = self._received(channel, size_bytes)
        except BaseException:
            with self._lock:
                self._chunks.release(owner.job_id, size_bytes)
            raise
        with self._lock:
            self._chunks.store(owner, sha256, body)
        channel.send({})

    def _received(self, channel: Channel, size_bytes: int) -> memoryview:
        try:
            body = memoryview(mmap.mmap(-1, size_bytes)) if size_bytes else memoryview(b"")
        except (OSError, MemoryError, ValueError, OverflowError) as error:
            raise _RefusedError(f"its node has no memory for {size_bytes} bytes ({error})") from error
        channel.send({"send": True})
        channel.allow(min(TOKEN_S + size_bytes / SLOWEST_BYTES_PER_S, IDLE_S))  # its room is nobody else's meanwhile
        channel.header(MAX_TOKEN_BYTES)
        channel.fill(body)
        return body


class _RefusedError(Exception):
    """A request that is answered by its reason, and ends the connection."""


def _refuse(connected: socket.socket, why: str) -> None:
    """Answers a connection that gets no thread, if its buffer takes the answer at once, and ends it."""
    with suppress(ChannelError, OSError):
        channel = Channel(connected)
        channel.allow(ACCEPT_AGAIN_S)
        channel.send({"refused": why})
    connected.close()


def listening(address: str, port: int) -> socket.socket:
    """Returns a listening socket. Raises OSError."""
    family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((address, port), family=family, backlog=256)


def main() -> None:
    """Serves until standard input ends."""
    settings = json.loads(sys.stdin.buffer.readline())
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE)
    os.nice(NICE)
    try:
        listener = listening(settings["address"], settings["port"])
    except OSError as error:
        sys.exit(f"nothing can listen on {settings['address']}:{settings['port']}: {error}")
    holder = Holder(listener, settings["secret"], settings["budget_bytes"])
    threading.Thread(target=holder.serve, daemon=True).start()
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
