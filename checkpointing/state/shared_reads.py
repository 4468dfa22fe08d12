"""Reads of one checkpoint's chunks for all ranks of a gang: each is read from the store by one rank, which sends it to those that need it.

Holds: a chunk is read and verified once in a restore, whatever the number of ranks that need some of it; a rank that needs nothing of it
neither reads nor gets it. All ranks take the same steps, and agree on faults before a chunk is sent: what one rank finds damaged is used by
none, and a rank that fails does not leave others waiting for its bytes. While a wave is sent and used the next one is read: a rank holds
two of WAVE_BYTES each, or of one chunk.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import zip_longest

import torch
import torch.distributed as dist

from trainhouse.checkpointing.chain.chunks import ChunkStore, in_threads, prefix_of
from trainhouse.checkpointing.chain.manifest import Chunk, Manifest
from trainhouse.checkpointing.collective import Ranks
from trainhouse.checkpointing.errors import DamagedError
from trainhouse.checkpointing.stores.object_store import Body

READ_THREADS = 4
WAVE_BYTES = 64 * 2**20
Use = Callable[[int, Body], None]
"""Called with the number of a chunk in the manifest, and its bytes."""
_Read = tuple[dict[str, Body], list[DamagedError]]


class SharedReads:
    """Reads for one restore from one manifest. `fetch` is collective."""

    def __init__(self, ranks: Ranks, manifest: Manifest, chunks: ChunkStore) -> None:
        self._ranks = ranks
        self._manifest = manifest
        self._chunks = chunks
        self._reader: dict[str, int] = {}
        self._kept: dict[str, Body] = {}

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
            reading = ahead.submit(self._read, waves[0]) if waves else None
            for wave, after in zip_longest(waves, waves[1:]):
                assert reading is not None
                bodies, found = self._agreed(reading)
                reading = ahead.submit(self._read, after) if after is not None else None
                problems += found
                if keep:
                    self._kept.update(bodies)
                for chunk in [] if problems else wave:
                    body = self._exchanged(chunk, wanted[chunk], bodies)
                    if body is not None and not failures:
                        _use(use, mine.get(chunk.sha256, ()), body, failures)
        ended = self._ranks.all(lambda: _damage_or_raise(failures))
        return problems + [damage for damage in ended if damage is not None]

    def _agreed(self, reading: "Future[_Read]") -> tuple[dict[str, Body], list[DamagedError]]:
        """This rank's part of a wave, and the faults of all ranks' parts."""
        mine: list[dict[str, Body]] = []

        def ended() -> list[DamagedError]:
            bodies, problems = reading.result()
            mine.append(bodies)
            return problems

        problems = [problem for of_rank in self._ranks.all(ended) for problem in of_rank]
        return mine[0], problems

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

        def read(chunk: Chunk) -> bytes | DamagedError:
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

    def _exchanged(self, chunk: Chunk, needed_by: Sequence[int], bodies: dict[str, Body]) -> Body | None:
        """The chunk's bytes if this rank needs them; sends them where this rank read them for others."""
        reader, rank = self._reader[chunk.sha256], self._ranks.rank
        others = [other for other in needed_by if other != reader]
        if rank == reader:
            body = bodies.pop(chunk.sha256)
            if others and chunk.size_bytes:
                self._send(torch.frombuffer(bytearray(body), dtype=torch.uint8).to(self._device), reader, others)
            return body if rank in needed_by else None
        if rank not in needed_by and not self._is_broadcast(others):
            return None
        room = torch.empty(chunk.size_bytes, dtype=torch.uint8, device=self._device)
        if chunk.size_bytes:
            self._receive(room, reader, others)
        return room.cpu().numpy().data if rank in needed_by else None

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
