"""Chunks that a holder has in memory: which save of which rank they belong to, and which go when there is no room.

Holds: never more bytes than the budget, nor more chunks and ranks than their bounds; a chunk that was dropped counts until its last reader
has done with it. A rank has its newest save here and, while that is sent, what the newest commit names of the one before. Without room for
the newest save the one before goes, whole; then those of ranks that were silent for long; then, where its job has less than an equal share,
chunks of the job that has most above its own; else it is refused. So a job alone has all the memory, and none keeps another out.
A writer of an older epoch than the newest one of its job changes nothing. Pure but for the clock given; not safe to share by threads.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from trainhouse.checkpointing.stores.object_store import Body

SILENT_S = 1800.0
"""A rank saves every 600 s unless its spec says otherwise: one that was silent for so long has probably ended."""

MAX_CHUNKS = 60_000
"""Each chunk has a mapping of its own, of which the kernel gives a process 65530; empty ones cost memory too."""
MAX_RANKS = 4096
"""Of one job: a token is of the whole attempt, so that the number of its ranks is its own word."""


class NoRoomError(Exception):
    """A bound that leaves no room for a chunk or a rank."""


class StaleWriterError(Exception):
    """A newer attempt of the job writes here."""


@dataclass(frozen=True)
class Owner:
    """A rank of a job."""

    job_id: str
    rank: int


@dataclass
class HeldChunk:
    """A chunk that is here, or was dropped while it was read. `owners`: ranks of its job; `readers`: loans that have not ended."""

    job_id: str
    body: Body
    owners: set[int] = field(default_factory=set)
    readers: int = 0


@dataclass
class _Held:
    """Chunks of one rank, by hash. `before`: of the save before the newest."""

    epoch: int
    save: int
    touched_s: float
    newest: set[str] = field(default_factory=set)
    before: set[str] = field(default_factory=set)


@dataclass
class _Job:
    """Newest epoch of a job, and the ranks that have chunks here."""

    epoch: int
    ranks: set[int] = field(default_factory=set)


@dataclass
class _Taken:
    """Memory that a job takes, room that is reserved included. `dropped_bytes`: of chunks that are here for their readers alone."""

    size_bytes: int = 0
    chunks: int = 0
    dropped_bytes: int = 0


class HeldChunks:
    """All chunks of one holder."""

    def __init__(self, budget_bytes: int, steady_s: Callable[[], float]) -> None:
        self._budget_bytes = budget_bytes
        self._steady_s = steady_s
        self._chunks: dict[tuple[str, str], HeldChunk] = {}
        self._owners: dict[Owner, _Held] = {}
        self._jobs: dict[str, _Job] = {}
        self._taken: dict[str, _Taken] = {}
        self._count = 0
        self.used_bytes = 0

    def begin(self, owner: Owner, epoch: int, save: int, kept: Collection[str] | None) -> None:
        """Begins a save of a rank, or goes on with it. `kept`: hashes that the newest commit names; None: all of the save before stay.

        Raises StaleWriterError, NoRoomError.
        """
        self._refuse_older(owner.job_id, epoch)
        job = self._jobs.get(owner.job_id)
        if job is not None and owner.rank not in job.ranks and len(job.ranks) >= MAX_RANKS:
            raise NoRoomError(f"{MAX_RANKS} ranks of job {owner.job_id} have chunks here, which is the most of one job")
        job = self._jobs.setdefault(owner.job_id, _Job(epoch))
        job.epoch = epoch
        job.ranks.add(owner.rank)
        held = self._owners.get(owner)
        now_s = self._steady_s()
        if held is None:
            self._owners[owner] = _Held(epoch, save, now_s)
            return
        held.touched_s = now_s
        if (held.epoch, held.save) == (epoch, save):
            return
        stays = held.newest if kept is None else (held.newest | held.before) & set(kept)
        self._drop(owner, (held.newest | held.before) - stays)
        held.epoch, held.save, held.newest, held.before = epoch, save, set(), set(stays)

    def reserve(self, owner: Owner, epoch: int, sha256: str, size_bytes: int) -> bool:
        """Makes room for a chunk; False: it is here already. Call `begin` first. Raises StaleWriterError, NoRoomError."""
        self._refuse_older(owner.job_id, epoch)
        held = self._owners[owner]
        held.touched_s = self._steady_s()
        there = self._chunks.get((owner.job_id, sha256))
        if there is not None:
            self._own(owner, sha256, there)
            return False
        while not self._fits(size_bytes):
            if held.before - held.newest:
                self._drop(owner, held.before - held.newest)
                held.before = set()
                continue
            silent = self._most_silent()
            if silent is not None:
                self._forget(silent)
            elif not self._took_from_others(owner.job_id, size_bytes):
                raise NoRoomError(self._full(owner.job_id, size_bytes))
        self._take(owner.job_id, size_bytes)
        return True

    def store(self, owner: Owner, sha256: str, body: Body) -> None:
        """Keeps a chunk for which there is room reserved."""
        there = self._chunks.get((owner.job_id, sha256))
        if there is not None or owner not in self._owners:
            self.release(owner.job_id, len(body))
        if owner not in self._owners:
            return
        if there is None:
            there = self._chunks[owner.job_id, sha256] = HeldChunk(owner.job_id, body)
        self._own(owner, sha256, there)

    def release(self, job_id: str, size_bytes: int) -> None:
        """Gives reserved room back."""
        taken = self._taken[job_id]
        taken.size_bytes -= size_bytes
        taken.chunks -= 1
        self._count -= 1
        self.used_bytes -= size_bytes
        if not taken.chunks:
            del self._taken[job_id]

    def lend(self, job_id: str, sha256: str) -> HeldChunk | None:
        """Returns a chunk of a job, which takes its memory until `end_loan`."""
        chunk = self._chunks.get((job_id, sha256))
        if chunk is not None:
            chunk.readers += 1
        return chunk

    def end_loan(self, chunk: HeldChunk) -> None:
        """Takes a chunk back; its bytes must not be used any more."""
        chunk.readers -= 1
        if not chunk.owners and not chunk.readers:
            size_bytes = len(chunk.body)
            chunk.body = b""
            self._taken[chunk.job_id].dropped_bytes -= size_bytes
            self.release(chunk.job_id, size_bytes)

    def _take(self, job_id: str, size_bytes: int) -> None:
        taken = self._taken.setdefault(job_id, _Taken())
        taken.size_bytes += size_bytes
        taken.chunks += 1
        self._count += 1
        self.used_bytes += size_bytes

    def _fits(self, size_bytes: int) -> bool:
        return self.used_bytes + size_bytes <= self._budget_bytes and self._count < MAX_CHUNKS

    def _share(self, size_bytes: int, chunks: int) -> float:
        """Part of an equal share of the jobs here; above 1 is more than one."""
        return len(self._jobs) * max(size_bytes / max(1, self._budget_bytes), chunks / MAX_CHUNKS)

    def _held_share(self, job_id: str) -> float:
        taken = self._taken.get(job_id, _Taken())
        return self._share(taken.size_bytes - taken.dropped_bytes, taken.chunks)

    def _took_from_others(self, job_id: str, size_bytes: int) -> bool:
        """Drops chunks of the job with most above its share, for a chunk of a job with less than its own; whether there were any."""
        own = self._taken.get(job_id, _Taken())
        most = max(self._jobs, key=self._held_share)
        if self._share(own.size_bytes + size_bytes, own.chunks + 1) > 1 or self._held_share(most) <= 1:
            return False
        ranks = {rank: self._owners[Owner(most, rank)] for rank in sorted(self._jobs[most].ranks)}
        owner = Owner(most, max(ranks, key=lambda rank: len(ranks[rank].newest | ranks[rank].before)))
        held = self._owners[owner]
        hashes = (*sorted(held.before - held.newest), *sorted(held.newest))
        for sha256 in hashes:
            self._drop(owner, (sha256,))
            held.newest.discard(sha256)
            held.before.discard(sha256)
            if self._fits(size_bytes) or self._held_share(most) <= 1:
                break
        return bool(hashes)

    def _full(self, job_id: str, size_bytes: int) -> str:
        taken = self._taken.get(job_id, _Taken())
        dropped_bytes = sum(each.dropped_bytes for each in self._taken.values())
        return (
            f"{self.used_bytes} of {self._budget_bytes} bytes, in {self._count} chunks of at most {MAX_CHUNKS}, hold newest checkpoints"
            f"{f' and {dropped_bytes} bytes that are still read' if dropped_bytes else ''}; job {job_id} has {taken.size_bytes} of them, "
            f"and an equal share of {len(self._jobs)} jobs is {self._budget_bytes // len(self._jobs)}: "
            f"no room for {size_bytes} more; raise TRAINHOUSE_AGENT_PEER_MEMORY_GIB on its node"
        )

    def _refuse_older(self, job_id: str, epoch: int) -> None:
        job = self._jobs.get(job_id)
        if job is not None and epoch < job.epoch:
            raise StaleWriterError(f"epoch {job.epoch} of job {job_id} writes here; this attempt, of epoch {epoch}, must end")

    def _own(self, owner: Owner, sha256: str, chunk: HeldChunk) -> None:
        chunk.owners.add(owner.rank)
        self._owners[owner].newest.add(sha256)

    def _most_silent(self) -> Owner | None:
        latest_s = self._steady_s() - SILENT_S
        silent = [(held.touched_s, owner.job_id, owner.rank) for owner, held in self._owners.items() if held.touched_s < latest_s]
        return Owner(*min(silent)[1:]) if silent else None

    def _forget(self, owner: Owner) -> None:
        held = self._owners.pop(owner)
        self._drop(owner, held.newest | held.before)
        job = self._jobs[owner.job_id]
        job.ranks.discard(owner.rank)
        if not job.ranks:
            del self._jobs[owner.job_id]

    def _drop(self, owner: Owner, hashes: Collection[str]) -> None:
        for sha256 in hashes:
            chunk = self._chunks[owner.job_id, sha256]
            chunk.owners.discard(owner.rank)
            if not chunk.owners:
                del self._chunks[owner.job_id, sha256]
                if chunk.readers:
                    self._taken[owner.job_id].dropped_bytes += len(chunk.body)
                else:
                    self.release(owner.job_id, len(chunk.body))
