"""Reads of one checkpoint's chunks for all ranks of a gang: each is read from the store by one rank, which sends it to those that need it.

Holds: a chunk is read and verified once in a restore, whatever the number of ranks that need some of it; a rank that needs nothing of it
neither reads nor gets it, and one that needs a part of it is sent that part. All ranks take the same steps, and agree on faults before a
chunk is sent: what one rank finds damaged is used by none, and a rank that fails does not leave others waiting for its bytes. While a wave
is waited for, sent and used the next one is read, so that READ_THREADS reads are always under way: a rank holds two waves of WAVE_BYTES
each, or of one chunk, and room for one chunk that is received. This memory is reused from wave to wave: to get pages from the kernel costs
as much as a hash of what is read into them.
"""

import mmap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import zip_longest

import torch
import torch.distributed as dist

from trainhouse.checkpointing.chain.chunks import ChunkStore, prefix_of
from trainhouse.checkpointing.chain.manifest import Chunk, Manifest
from trainhouse.checkpointing.collective import Ranks
from trainhouse.checkpointing.errors import DamagedError
from trainhouse.checkpointing.peer_memory.holder_client import PeerReads
from trainhouse.checkpointing.stores.object_store import Body

READ_THREADS = 4
WAVE_BYTES = 64 * 2**20
Use = Callable[[int, Body], None]
"""Called with the number of a chunk in the manifest, and its bytes, which are others after the call."""
Bytes = tuple[int, int]
"""Bytes of a chunk, from one to before another."""
ALIGN_BYTES = 64
HUGE_PAGES_FROM_BYTES = 2 * 2**20
_Reading = dict[str, "Future[Body | DamagedError]"]


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
        self._parts: dict[tuple[str, int], Bytes] = {}
        self._memories = (_Memory(), _Memory())

    def fetch(
        self, needs: Sequence[Collection[int]], use: Use, keep: bool = False, parts: Sequence[Mapping[int, Bytes]] | None = None
    ) -> list[DamagedError]:
        """Hands this rank the chunks that it needs, one after the other; returns the faults of all ranks.

        `needs`: by rank, numbers of chunks; alike on all ranks. Those in front of a fault have been handed out. `keep`: readers hold what
        they read for later calls. `parts`: by rank and chunk, the bytes that are needed, all without it: a rank that a chunk is sent to
        gets no others, and uses nothing of the rest. Raises what `use` raises, on all ranks, and ObjectStoreUnavailableError.
        """
        wanted = self._wanted(needs)
        self._parts = self._parts_of(needs, parts)
        mine: dict[str, list[int]] = {}
        for number in needs[self._ranks.rank]:
            mine.setdefault(self._manifest.chunks[number].sha256, []).append(number)
        problems: list[DamagedError] = []
        failures: list[Exception] = []
        waves = list(self._waves(wanted))
        with ThreadPoolExecutor(READ_THREADS, thread_name_prefix="restore") as threads:
            reading: _Reading = {}
            try:
                for number, (wave, after) in enumerate(zip_longest(waves, waves[1:])):
                    bodies, found, reading = self._agreed(threads, number, (wave, after), wanted, reading)
                    problems += found
                    if keep:
                        self._kept.update({name: bytearray(body) for name, body in bodies.items()})
                    for chunk in [] if problems else wave:
                        body = self._exchanged(chunk, wanted[chunk], bodies)
                        if body is not None and not failures:
                            _use(use, mine.get(chunk.sha256, ()), body, failures)
            finally:
                for future in reading.values():
                    future.cancel()
        ended = self._ranks.all(lambda: _damage_or_raise(failures))
        return problems + [damage for damage in ended if damage is not None]

    def _agreed(
        self,
        threads: ThreadPoolExecutor,
        number: int,
        waves: "tuple[Sequence[Chunk], Sequence[Chunk] | None]",
        wanted: Mapping[Chunk, Sequence[int]],
        reading: _Reading,
    ) -> tuple[dict[str, Body], list[DamagedError], _Reading]:
        """This rank's part of a wave, the faults of all ranks' parts, and the reads of the wave after it.

        Whatever can fail on one rank alone, memory and threads too, does so in here, where the others learn of it.
        """
        wave, after = waves
        bodies: dict[str, Body] = {}
        following: _Reading = {}

        def ended() -> list[DamagedError]:
            now = self._begun(threads, number, wave) if number == 0 else reading
            if after is not None:  # the wave before has been used: its memory is free
                following.update(self._begun(threads, number + 1, after))
            size_bytes = max((chunk.size_bytes for chunk in wave if self._takes_part(chunk, wanted[chunk])), default=0)
            if size_bytes > self._room.size_bytes:
                self._room = _Room(size_bytes, self._device)
            found = {name: future.result() for name, future in now.items()}
            bodies.update({name: body for name, body in found.items() if not isinstance(body, DamagedError)})
            return [body for body in found.values() if isinstance(body, DamagedError)]

        problems = [problem for of_rank in self._ranks.all(ended) for problem in of_rank]
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

    def _parts_of(self, needs: Sequence[Collection[int]], parts: Sequence[Mapping[int, Bytes]] | None) -> dict[tuple[str, int], Bytes]:
        """By hash and rank, the bytes of a chunk that the rank needs: for several chunks of one content, from the first to the last."""
        found: dict[tuple[str, int], Bytes] = {}
        for rank, numbers in enumerate(needs):
            for number in numbers:
                chunk = self._manifest.chunks[number]
                start, stop = (0, chunk.size_bytes) if parts is None else parts[rank][number]
                before = found.get((chunk.sha256, rank), (start, stop))
                found[chunk.sha256, rank] = (min(start, before[0]), min(max(stop, before[1]), chunk.size_bytes))
        return found

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

    def _begun(self, threads: ThreadPoolExecutor, number: int, wave: Sequence[Chunk]) -> _Reading:
        """Begins to read this rank's part of a wave: by hash, bytes that are sound, or the fault."""
        mine = [chunk for chunk in wave if self._reader[chunk.sha256] == self._ranks.rank]
        unread = [chunk for chunk in mine if chunk.sha256 not in self._kept]
        begun: _Reading = {}
        for chunk in mine:
            if chunk.sha256 in self._kept:
                begun[chunk.sha256] = Future()
                begun[chunk.sha256].set_result(self._kept[chunk.sha256])
        rooms = self._memories[number % 2].divided([chunk.size_bytes for chunk in unread])
        for chunk, room in zip(unread, rooms, strict=True):
            begun[chunk.sha256] = threads.submit(self._read, chunk, room)
        return begun

    def _read(self, chunk: Chunk, room: memoryview) -> Body | DamagedError:
        """Reads a chunk into `room`; returns that, or the fault."""
        if self._peers is not None and self._peers.fetch_into(chunk, room):
            return room
        try:
            self._chunks.fetch_into(chunk, prefix_of(self._manifest), room)
        except DamagedError as error:
            return error
        return room

    def _takes_part(self, chunk: Chunk, needed_by: Sequence[int]) -> bool:
        """True if this rank sends the chunk, or receives it."""
        reader, rank = self._reader[chunk.sha256], self._ranks.rank
        others = [other for other in needed_by if other != reader]
        return bool(others) and (rank == reader or rank in others or self._is_broadcast(chunk, others))

    def _exchanged(self, chunk: Chunk, needed_by: Sequence[int], bodies: dict[str, Body]) -> Body | None:
        """The chunk's bytes if this rank needs them; sends them where this rank read them for others."""
        reader, rank = self._reader[chunk.sha256], self._ranks.rank
        others = [other for other in needed_by if other != reader]
        sent = chunk.size_bytes > 0 and self._takes_part(chunk, needed_by)
        if rank == reader:
            body = bodies.pop(chunk.sha256)
            if sent:
                self._send(chunk, self._room.filled(body), others)
            return body if rank in needed_by else None
        if sent:
            self._receive(chunk, self._room.first(chunk.size_bytes), others)
        return self._room.content(chunk.size_bytes) if rank in needed_by else None

    @property
    def _device(self) -> torch.device:
        """Device of the bytes that ranks send each other: sessions have a group over gloo, one over NCCL alone takes none of the host's."""
        only_nccl = dist.get_backend(self._ranks.group) == "nccl"
        return torch.device("cuda", torch.cuda.current_device()) if only_nccl else torch.device("cpu")

    def _is_broadcast(self, chunk: Chunk, others: Sequence[int]) -> bool:
        """True if it goes to all ranks at once, because all others need all of it."""
        whole = (0, chunk.size_bytes)
        return len(others) == self._ranks.world_size - 1 > 1 and all(self._parts[chunk.sha256, other] == whole for other in others)

    def _send(self, chunk: Chunk, content: torch.Tensor, others: Sequence[int]) -> None:
        if self._is_broadcast(chunk, others):
            dist.broadcast(content, group_src=self._ranks.rank, group=self._ranks.group)
            return
        for other in others:
            start, stop = self._parts[chunk.sha256, other]
            if start < stop:
                dist.send(content[start:stop], group_dst=other, group=self._ranks.group)

    def _receive(self, chunk: Chunk, room: torch.Tensor, others: Sequence[int]) -> None:
        reader = self._reader[chunk.sha256]
        if self._is_broadcast(chunk, others):
            dist.broadcast(room, group_src=reader, group=self._ranks.group)
            return
        start, stop = self._parts[chunk.sha256, self._ranks.rank]
        if start < stop:
            dist.recv(room[start:stop], group_src=reader, group=self._ranks.group)


class _Memory:
    """Memory that chunks are read into, one set of them after the other."""

    def __init__(self) -> None:
        self._whole = memoryview(b"")

    def divided(self, sizes: Sequence[int]) -> list[memoryview]:
        """Room for chunks of these sizes in bytes, in the place of those before. Raises OSError if there is no memory."""
        total_bytes = sum(map(_aligned, sizes))
        if total_bytes > len(self._whole):
            self._whole = memoryview(b"")
            whole = mmap.mmap(-1, total_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            if total_bytes >= HUGE_PAGES_FROM_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
                with suppress(OSError):  # a kernel without them
                    whole.madvise(mmap.MADV_HUGEPAGE)
            self._whole = memoryview(whole)
        rooms, at = [], 0
        for size_bytes in sizes:
            rooms.append(self._whole[at : at + size_bytes])
            at += _aligned(size_bytes)
        return rooms


def _aligned(size_bytes: int) -> int:
    """Memory that a chunk takes, so that the next one begins where any dtype may."""
    return -(-size_bytes // ALIGN_BYTES) * ALIGN_BYTES


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
        """These bytes, to be sent: where they are, unless they have to be on the device."""
        content = torch.frombuffer(body, dtype=torch.uint8)
        return content if self._sent.device.type == "cpu" else self.first(len(body)).copy_(content)

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
