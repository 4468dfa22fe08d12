"""A rank's connection to a holder: copies its chunks there, and reads chunks that a manifest names from there.

Holds: every step has a time limit. A failure is reported, never raised into a save or a restore: the object store has everything.
What is read is verified against its hash before it is returned.
"""

import hashlib
import math
import queue
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from trainhouse.checkpointing.chain.manifest import Chunk, Manifest
from trainhouse.checkpointing.peer_memory.channel import Channel, ChannelError
from trainhouse.checkpointing.peer_memory.peers import Grant, Peers
from trainhouse.checkpointing.stores.object_store import Body

MAX_KEPT = 100_000
"""More hashes than these of the commit before are not sent: the holder keeps all of the save before then."""


@dataclass(frozen=True)
class TimeLimits:
    """Time limits of a holder, after which the store is used instead."""

    connect_s: float = 1.0
    answer_s: float = 5.0
    slowest_bytes_per_s: float = 50e6

    def of(self, size_bytes: int) -> float:
        """Seconds for a chunk."""
        return self.answer_s + size_bytes / self.slowest_bytes_per_s


@dataclass(frozen=True)
class Source:
    """A save of one rank, for the holder. `kept`: hashes that the newest commit names."""

    rank: int
    save: int
    kept: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Copied:
    """Hashes that the holder has now, and why it has not all."""

    node_id: str
    hashes: frozenset[str]
    why: str = ""


class ChunkCopier:
    """Copies the chunks of a save to a holder, in a thread beside the upload."""

    def __init__(self, grant: Grant, source: Source, limits: TimeLimits | None = None) -> None:
        self._grant = grant
        self._source = source
        self._limits = limits or TimeLimits()
        self._queue: queue.SimpleQueue[tuple[Chunk, Body] | None] = queue.SimpleQueue()
        self._copied: set[str] = set()
        self._lock = threading.Lock()
        self._waiting_bytes = 0
        self._until_s = math.inf
        self._why = ""
        self._thread = threading.Thread(target=self._run, name="copies", daemon=True)
        self._thread.start()

    def offer(self, chunk: Chunk, body: Body) -> None:
        """Copies a chunk later on; its bytes stay as they are until `finish` returns."""
        if not self._why:
            with self._lock:
                self._waiting_bytes += chunk.size_bytes
            self._queue.put((chunk, body))

    def finish(self) -> Copied:
        """Waits for the copies, as long as all that is left may take together; the first that fails is the last.

        A limit for each alone would let a holder that crawls hold up a commit by as many limits as there are chunks.
        """
        with self._lock:
            self._until_s = time.monotonic() + self._limits.of(self._waiting_bytes)
        self._queue.put(None)
        self._thread.join()
        return Copied(self._grant.node_id, frozenset(self._copied), self._why)

    def _run(self) -> None:
        try:
            channel = _connected(self._grant, self._limits)
        except ChannelError as error:
            self._why = f"{_named(self._grant)}: {error}"
            return
        try:
            self._begin(channel)
            while (taken := self._queue.get()) is not None:
                self._copy(channel, *taken)
        except ChannelError as error:
            self._why = f"{_named(self._grant)}: {error}"
        finally:
            channel.close()

    def _begin(self, channel: Channel) -> None:
        kept = sorted(self._source.kept) if len(self._source.kept) <= MAX_KEPT else None
        channel.allow(self._limits.answer_s)
        _ask(channel, {"op": "begin", "rank": self._source.rank, "save": self._source.save, "kept": kept})

    def _copy(self, channel: Channel, chunk: Chunk, body: Body) -> None:
        channel.allow(min(self._limits.of(chunk.size_bytes), self._until_s - time.monotonic()))
        answer = _ask(channel, {"op": "put", "sha256": chunk.sha256, "size_bytes": chunk.size_bytes})
        if answer.get("send"):
            _ask(channel, {"op": "body"}, body)
        self._copied.add(chunk.sha256)
        with self._lock:
            self._waiting_bytes -= chunk.size_bytes


@dataclass
class PeerTally:
    """Counts of a restore: bytes by node, and why others came from the store instead."""

    bytes_by_node: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


class PeerReads:
    """Reads chunks of one manifest from the holders that it names. Safe to share by threads. A holder that failed is not asked again."""

    def __init__(self, peers: Peers, manifest: Manifest, limits: TimeLimits | None = None) -> None:
        self._peers = peers
        self._job_id = str(manifest.job_id)
        self._limits = limits or TimeLimits()
        self._lock = threading.Lock()
        self._grants: dict[str, Grant | None] = {}
        self._idle: dict[str, list[Channel]] = {}
        self._holder = {
            chunk.sha256: held.node_id for held in manifest.held for chunk in manifest.chunks[held.first : held.first + held.count]
        }
        self.tally = PeerTally()

    def fetch_into(self, chunk: Chunk, room: memoryview) -> bool:
        """Fills `room`, which is as long as the chunk, with its verified bytes; False if it must come from the store. Blocks, for its
        time limit at most."""
        node_id = self._holder.get(chunk.sha256)
        grant = self._grant(node_id) if node_id is not None else None
        if node_id is None or grant is None:
            return False
        try:
            found = self._read(grant, chunk, room)
        except ChannelError as error:
            self._give_up(node_id, f"{_named(grant)}: {error}")
            return False
        if found:
            with self._lock:
                self.tally.bytes_by_node[node_id] = self.tally.bytes_by_node.get(node_id, 0) + len(room)
        return found

    def close(self) -> None:
        """Ends the connections."""
        with self._lock:
            idle, self._idle = self._idle, {}
        for channels in idle.values():
            for channel in channels:
                channel.close()

    def _grant(self, node_id: str) -> Grant | None:
        with self._lock:
            if node_id not in self._grants:
                found = self._peers.reach(node_id)
                self._grants[node_id] = found if isinstance(found, Grant) else None
                if not isinstance(found, Grant):
                    self.tally.failures.append(f"{node_id}: {found}")
            return self._grants[node_id]

    def _give_up(self, node_id: str, why: str) -> None:
        with self._lock:
            if self._grants[node_id] is not None:
                self._grants[node_id] = None
                self.tally.failures.append(why)

    def _read(self, grant: Grant, chunk: Chunk, room: memoryview) -> bool:
        with self._lock:
            idle = self._idle.setdefault(grant.node_id, [])
            channel = idle.pop() if idle else None
        channel = channel or _connected(grant, self._limits)
        try:
            found = self._received(channel, chunk, room)
        except ChannelError:
            channel.close()
            raise
        with self._lock:
            self._idle.setdefault(grant.node_id, []).append(channel)
        return found

    def _received(self, channel: Channel, chunk: Chunk, room: memoryview) -> bool:
        channel.allow(self._limits.of(chunk.size_bytes))
        answer = _ask(channel, {"op": "get", "job": self._job_id, "sha256": chunk.sha256})
        size_bytes = answer.get("size_bytes")
        if size_bytes is None:
            return False
        if size_bytes != chunk.size_bytes:
            raise ChannelError(f"chunk {chunk.sha256[:12]}… has {size_bytes} bytes there, its manifest says {chunk.size_bytes}")
        found = hashlib.sha256()
        channel.fill(room, found.update)
        if found.hexdigest() != chunk.sha256:
            raise ChannelError(f"chunk {chunk.sha256[:12]}… hashes to {found.hexdigest()[:12]}… there: that memory is not to be trusted")
        return True


def _connected(grant: Grant, limits: TimeLimits) -> Channel:
    """Opens a connection with the token. Raises ChannelError."""
    try:
        channel = Channel(socket.create_connection((grant.address, grant.port), limits.connect_s))
    except OSError as error:
        raise ChannelError(f"no connection to {grant.address}:{grant.port} ({error})") from error
    try:
        channel.allow(limits.answer_s)
        _ask(channel, {"token": grant.token})
    except ChannelError:
        channel.close()
        raise
    return channel


def _ask(channel: Channel, header: dict[str, Any], body: Body = b"") -> dict[str, Any]:
    """Sends a frame and returns the answer. Raises ChannelError, also for a refusal."""
    channel.send(header, body)
    answer = channel.header()
    if "refused" in answer:
        raise ChannelError(str(answer["refused"]))
    return answer


def _named(grant: Grant) -> str:
    return f"memory of {grant.node_id}"
