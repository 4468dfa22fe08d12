"""Reads of one checkpoint's chunks for all ranks of a gang: each is read from the store by one rank, which sends it to those that need it.

Holds: a chunk is read and verified once in a restore, whatever the number of ranks that need some of it; a rank that needs nothing of it
neither reads nor gets it. All ranks take the same steps, and agree on faults before a chunk is sent: what one rank finds damaged is used by
none, and a rank that fails does not leave others waiting for its bytes. While a wave is sent and used the next one is read: a rank holds
two of WAVE_BYTES each, or of one chunk, and room for one chunk that is sent or received.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import zip_longest

import numpy as np
import torch
import torch.distributed as dist

from trainhouse.checkpointing.chain.chunks import ChunkStore, in_threads, prefix_of
from trainhouse.checkpointing.chain.manifest import Chunk, Manifest
from trainhouse.checkpointing.collective import Ranks
from trainhouse.checkpointing.errors import DamagedError
from trainhouse.checkpointing.peer_memory.holder_client import PeerReads
from trainhouse.checkpointing.stores.object_store import Body

READ_THREADS = 4
WAVE_BYTES = 64 * 2**20
Use = Callable[[int, Body], None]
"""Called with the number of a chunk in the manifest, and its bytes, which are others after the call."""
_Read = tuple[dict[str, Body], list[DamagedError]]


class SharedReads:
    """Reads for one restore from one manifest: from `peers`, where those have a chunk, else from the store. `fetch` is collective."""

    def __init__(self, ranks: Ranks, manifest: Manifest, chunks: ChunkStore, peers: PeerReads | None = None) -> None:
        self._ranks = ranks
        self._manifest = manifest
        self._chunks = chunks
        self._peers = peers
        self._reader: dict[str, int] = {}
        self._kept: dict[str, Body] = {}
        self._room = _Room(0, torch.device("cpu"))

    def fetch(self, needs: Sequence[Collection[int]], use: Use, keep: bool = False) -> list[DamagedError]:
        """Hands this rank the chunks that it needs, one after the other; returns the faults of all ranks.

        `needs`: by rank, numbers of chunks; alike on all ranks. Those in front of a fault have been handed out. `keep`: readers hold what
        they read for later calls. Raises what `use` raises, on all ranks, and ObjectStoreUnavailableError.
        """
        wanted = self._wanted(needs)
        mine: dict[str, list[int]] = {}
        for number in needs[self._ranks.rank]:
            mine.setdefault(self._manifest.chunks[number].sha256, []).append(number)
        problems: list[DamagedError] = []
        failures: list[Exception] = []
        waves = list(self._waves(wanted))
        with ThreadPoolExecutor(1, thread_name_prefix="restore") as ahead:
            reading: Future[_Read] | None = None
            for wave, after in zip_longest(waves, waves[1:]):
                bodies, found, reading = self._agreed(ahead, wave, after, wanted, reading)
                problems += found
                if keep:
                    self._kept.update(bodies)
                for chunk in [] if problems else wave:
                    body = self._exchanged(chunk, wanted[chunk], bodies)
                    if body is not None and not failures:
                        _use(use, mine.get(chunk.sha256, ()), body, failures)
        ended = self._ranks.all(lambda: _damage_or_raise(failures))
        return problems + [damage for damage in ended if damage is not None]

    def _agreed(
        self,
        ahead: ThreadPoolExecutor,
        wave: Sequence[Chunk],
        after: Sequence[Chunk] | None,
        wanted: Mapping[Chunk, Sequence[int]],
        reading: "Future[_Read] | None",
    ) -> "tuple[dict[str, Body], list[DamagedError], Future[_Read] | None]":
        """This rank's part of a wave, the faults of all ranks' parts, and the read of the wave after it.

        Whatever can fail on one rank alone, memory and threads too, does so in here, where the others learn of it.
        """
        mine: list[tuple[dict[str, Body], Future[_Read] | None]] = []

        def ended() -> list[DamagedError]:
            bodies, problems = reading.result() if reading is not None else self._read(wave)
            size_bytes = max((chunk.size_bytes for chunk in wave if self._takes_part(chunk, wanted[chunk])), default=0)
            if size_bytes > self._room.size_bytes:
                self._room = _Room(size_bytes, self._device)
            mine.append((bodies, ahead.submit(self._read, after) if after is not None else None))
            return problems

        problems = [problem for of_rank in self._ranks.all(ended) for problem in of_rank]
        bodies, following = mine[0]
        return bodies, problems, following

    def _wanted(self, needs: Sequence[Collection[int]]) -> dict[Chunk, list[int]]:
        """The ranks that need each chunk; decides which of them reads it, so that all read about as much."""
        by_number: dict[int, list[int]] = {}
        for rank, numbers in enumerate(needs):
            for number in numbers:
                by_number.setdefault(number, []).append(rank)
        wanted: dict[Chunk, list[int]] = {}
        for number in sorted(by_number):
            ranks = wanted.setdefault(self._manifest.chunks[number], [])
            ranks += [rank for rank in by_number[number] if rank not in ranks]
        load = dict.fromkeys(range(len(needs)), 0)
        for chunk, ranks in wanted.items():
            if chunk.sha256 not in self._reader:
                self._reader[chunk.sha256] = min(ranks, key=lambda rank: (load[rank], rank))
                load[self._reader[chunk.sha256]] += chunk.size_bytes
        return wanted

    def _waves(self, wanted: Collection[Chunk]) -> Iterator[list[Chunk]]:
        """Chunks in parts of which no rank reads more than WAVE_BYTES, or one chunk."""
        wave: list[Chunk] = []
        load: dict[int, int] = {}
        for chunk in wanted:
            reader = self._reader[chunk.sha256]
            if load.get(reader, 0) and load[reader] + chunk.size_bytes > WAVE_BYTES:
                yield wave
                wave, load = [], {}
            wave.append(chunk)
            load[reader] = load.get(reader, 0) + chunk.size_bytes
        if wave:
            yield wave

    def _read(self, wave: Sequence[Chunk]) -> "_Read":
        """Reads this rank's part of a wave; returns what is sound of it by hash, and what is damaged."""
        mine = [chunk for chunk in wave if self._reader[chunk.sha256] == self._ranks.rank]
        bodies = {chunk.sha256: self._kept[chunk.sha256] for chunk in mine if chunk.sha256 in self._kept}
        unread = [chunk for chunk in mine if chunk.sha256 not in bodies]
        prefix = prefix_of(self._manifest)

        def read(chunk: Chunk) -> Body | DamagedError:
            held = self._peers.fetch(chunk) if self._peers is not None else None
            if held is not None:
                return held
            try:
                body = self._chunks.fetch(chunk, prefix)
            except DamagedError as error:
                return error
            if len(body) != chunk.size_bytes:
                return DamagedError(f"chunk {chunk.sha256[:12]}… has {len(body)} bytes, its manifest says {chunk.size_bytes}", chunk.sha256)
            return body

        problems = []
        for chunk, found in zip(unread, in_threads(read, unread, READ_THREADS), strict=True):
            if isinstance(found, DamagedError):
                problems.append(found)
            else:
                bodies[chunk.sha256] = found
        return bodies, problems

    def _takes_part(self, chunk: Chunk, needed_by: Sequence[int]) -> bool:
        """True if this rank sends the chunk, or receives it."""
        reader, rank = self._reader[chunk.sha256], self._ranks.rank
        others = [other for other in needed_by if other != reader]
        return bool(others) and (rank == reader or rank in others or self._is_broadcast(others))

    def _exchanged(self, chunk: Chunk, needed_by: Sequence[int], bodies: dict[str, Body]) -> Body | None:
        """The chunk's bytes if this rank needs them; sends them where this rank read them for others."""
        reader, rank = self._reader[chunk.sha256], self._ranks.rank
        others = [other for other in needed_by if other != reader]
        sent = chunk.size_bytes > 0 and self._takes_part(chunk, needed_by)
        if rank == reader:
            body = bodies.pop(chunk.sha256)
            if sent:
                self._send(self._room.filled(body), reader, others)
            return body if rank in needed_by else None
        if sent:
            self._receive(self._room.first(chunk.size_bytes), reader, others)
        return self._room.content(chunk.size_bytes) if rank in needed_by else None

    @property
    def _device(self) -> torch.device:
        """Device of the bytes that ranks send each other: sessions have a group over gloo, one over NCCL alone takes none of the host's."""
        only_nccl = dist.get_backend(self._ranks.group) == "nccl"
        return torch.device("cuda", torch.cuda.current_device()) if only_nccl else torch.device("cpu")

    def _is_broadcast(self, others: Sequence[int]) -> bool:
        """True if it goes to all ranks at once, because all others need it."""
        return len(others) == self._ranks.world_size - 1 > 1

    def _send(self, content: torch.Tensor, reader: int, others: Sequence[int]) -> None:
        if self._is_broadcast(others):
            dist.broadcast(content, group_src=reader, group=self._ranks.group)
            return
        for other in others:
            dist.send(content, group_dst=other, group=self._ranks.group)

    def _receive(self, room: torch.Tensor, reader: int, others: Sequence[int]) -> None:
        if self._is_broadcast(others):
            dist.broadcast(room, group_src=reader, group=self._ranks.group)
        else:
            dist.recv(room, group_src=reader, group=self._ranks.group)


class _Room:
    """Memory for one chunk on its way between ranks, and its copy on the device that they send from."""

    def __init__(self, size_bytes: int, device: torch.device) -> None:
        self.size_bytes = size_bytes
        self._host = torch.empty(size_bytes, dtype=torch.uint8)
        self._sent = self._host.to(device)

    def first(self, size_bytes: int) -> torch.Tensor:
        """Its first bytes, to be sent or received."""
        return self._sent[:size_bytes]

    def filled(self, body: Body) -> torch.Tensor:
        """These bytes, to be sent."""
        size_bytes = len(body)
        self._host.numpy()[:size_bytes] = np.frombuffer(body, np.uint8)
        return self.first(size_bytes).copy_(self._host[:size_bytes])

    def content(self, size_bytes: int) -> Body:
        """Bytes that were received."""
        return self._host[:size_bytes].copy_(self.first(size_bytes)).numpy().data


def _use(use: Use, numbers: Sequence[int], body: Body, failures: list[Exception]) -> None:
    """Uses a chunk. An error is kept until all ranks have their chunks."""
    try:
        for number in numbers:
            use(number, body)
    except Exception as error:
        failures.append(error)


def _damage_or_raise(failures: Sequence[Exception]) -> DamagedError | None:
    for failure in failures:
        if isinstance(failure, DamagedError):
            return failure
        raise failure
    return None
