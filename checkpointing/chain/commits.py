"""The commit chain of one job, `jobs/{job}/commits/{n}`: dense, and appended to by conditional puts alone.

Holds: epochs never fall along the chain. An attempt claims the next n before it chooses its restore point and from then on
appends at exactly the n after its own last entry; so once a newer attempt has claimed, an older one finds its n taken.
What a claim passes over (a state that diverged) stays passed over for all later attempts.
Never: deletes an entry; never appends at an n that it did not expect.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from trainhouse.checkpointing.chain.manifest import AnyEntry, Claim, Deletion, Manifest, Pruned, decode, encode
from trainhouse.checkpointing.errors import ChainConflictError, DamagedError, ObjectStoreUnavailableError, StaleEpochError
from trainhouse.checkpointing.stores.object_store import ObjectStore, get_or_none
from trainhouse.events.model.ids import AttemptNumber, Epoch, JobId

MAX_CLAIM_TRIES = 64


def chain_prefix(job_id: str) -> str:
    """Key prefix of a job's commit entries."""
    return f"jobs/{job_id}/commits/"


def commit_key(job_id: str, commit: int) -> str:
    """Key of one entry; keys sort as numbers do."""
    return f"{chain_prefix(job_id)}{commit:010d}"


def commit_of_key(key: str) -> int | None:
    """The number in a key of `commit_key`, None for other keys."""
    name = key.rpartition("/")[2]
    return int(name) if len(name) == 10 and name.isascii() and name.isdigit() else None


def place_of_key(key: str) -> tuple[str, int] | None:
    """The job and the number in a key of `commit_key`, None for other keys."""
    commit = commit_of_key(key)
    job_id = key.removeprefix("jobs/").partition("/")[0]
    return (job_id, commit) if commit is not None and key == commit_key(job_id, commit) else None


def head(objects: ObjectStore, job_id: str, known: int = -1) -> int:
    """The largest commit number, -1 for an empty chain. `known`: one that is there, where the search begins."""
    after = commit_key(job_id, known) if known >= 0 else ""
    numbers = (commit_of_key(found.key) for found in objects.list(chain_prefix(job_id), after))
    return max((n for n in numbers if n is not None), default=known)


def read_entry(objects: ObjectStore, job_id: str, commit: int) -> AnyEntry | None:
    """An entry, None if there is none. Raises DamagedError, also for one that says it is another, or UnknownFormatError."""
    key = commit_key(job_id, commit)
    content = get_or_none(objects, key)
    if content is None:
        return None
    entry = decode(content, objects.uri(key))
    # Ranks write their own job's entries: what one says of another job, or of another commit, is nothing to act on.
    for found in (entry, entry.manifest if isinstance(entry, Pruned) else None):
        if found is not None and (found.job_id, found.commit) != (job_id, commit):
            raise DamagedError(f"{objects.uri(key)}: it says that it is {found.job_id}@{found.commit}")
    return entry


def entries_newest_first(objects: ObjectStore, job_id: str) -> Iterator[tuple[int, AnyEntry | DamagedError]]:
    """The chain backwards; a damaged entry comes as its error. Raises ObjectStoreUnavailableError as it goes."""
    for commit in range(head(objects, job_id), -1, -1):
        try:
            entry = read_entry(objects, job_id, commit)
        except DamagedError as error:
            yield commit, error
            continue
        yield commit, entry or DamagedError(f"{objects.uri(commit_key(job_id, commit))}: missing, though newer entries are there")


def not_passed_over(entries: Iterable[tuple[int, AnyEntry | DamagedError]]) -> Iterator[tuple[int, AnyEntry | DamagedError]]:
    """Of a chain read backwards, what an attempt may begin from: without the checkpoints that a later claim passed over. Pure."""
    at_most: int | None = None
    for commit, entry in entries:
        if at_most is not None and commit > at_most and not isinstance(entry, Claim):
            continue
        if isinstance(entry, Claim) and entry.restore_at_most is not None:
            at_most = entry.restore_at_most if at_most is None else min(at_most, entry.restore_at_most)
        yield commit, entry


@dataclass(frozen=True)
class Writer:
    """Appender of commits: one process of one attempt. `writer` is unique to the process."""

    job_id: JobId
    epoch: Epoch
    attempt: AttemptNumber
    writer: str


class CommitChain:
    """The chain as one writer sees it. Blocks; all methods raise ObjectStoreUnavailableError."""

    def __init__(self, objects: ObjectStore, writer: Writer) -> None:
        self._objects = objects
        self._writer = writer
        self._next: int | None = None

    @property
    def claimed(self) -> bool:
        """True if this writer may append."""
        return self._next is not None

    def claim(self, now: float, restore_at_most: int | None = None) -> int:
        """Takes the chain for our epoch; returns the claim's n. Raises StaleEpochError if a newer epoch has it.

        `restore_at_most`: newer checkpoints than this one stay where they are, but neither we nor any later attempt begins from them.
        """
        known = -1
        for _ in range(MAX_CLAIM_TRIES):
            known = head(self._objects, self._writer.job_id, known)
            self._refuse_newer_epoch(known)
            entry = Claim(
                job_id=self._writer.job_id,
                commit=known + 1,
                epoch=self._writer.epoch,
                attempt=self._writer.attempt,
                writer=self._writer.writer,
                created_at_s=now,
                restore_at_most=restore_at_most,
            )
            if self._put(entry):
                self._next = entry.commit + 1
                return entry.commit
            known = entry.commit
        raise ObjectStoreUnavailableError(
            f"{self._objects.address}: chain of {self._writer.job_id}: lost {MAX_CLAIM_TRIES} races for the next commit; try again"
        )

    def take_over(self) -> None:
        """Appends from here on where another process of this same attempt did, which is gone. Raises StaleEpochError,
        ChainConflictError."""
        known = head(self._objects, self._writer.job_id)
        entry = read_entry(self._objects, self._writer.job_id, known) if known >= 0 else None
        if entry is not None and entry.epoch > self._writer.epoch:
            raise self._stale(entry)
        if entry is None or entry.epoch < self._writer.epoch:
            writer = self._writer
            raise ChainConflictError(f"chain of {writer.job_id}: epoch {writer.epoch} has not claimed it; there is nothing to take over")
        self._next = known + 1

    def append(self, build: Callable[[int], Manifest]) -> tuple[Manifest, list[Manifest]]:
        """Appends the manifest that `build(n)` makes for the expected n. Returns it, and those of our own that had landed unnoticed.

        Raises StaleEpochError if a newer epoch took n, ChainConflictError if another process has our epoch or nothing was claimed.
        """
        landed: list[Manifest] = []
        if self._next is None:
            raise ChainConflictError(f"chain of {self._writer.job_id}: commit without a claim; call claim() first")
        while True:
            manifest = build(self._next)
            if self._put(manifest):
                self._next += 1
                return manifest, landed
            landed.append(self._ours_or_raise(self._next))
            self._next += 1

    def _put(self, entry: Claim | Manifest) -> bool:
        return self._objects.put_if_absent(commit_key(self._writer.job_id, entry.commit), encode(entry))

    def _refuse_newer_epoch(self, commit: int) -> None:
        """A damaged entry does not tell its epoch: then the one before it does."""
        while commit >= 0:
            try:
                entry = read_entry(self._objects, self._writer.job_id, commit)
            except DamagedError:
                commit -= 1
                continue
            if entry is not None and entry.epoch > self._writer.epoch:
                raise self._stale(entry)
            return

    def _ours_or_raise(self, commit: int) -> Manifest:
        """The manifest of ours at a taken n: an earlier put whose answer was lost, and which landed after all."""
        entry = read_entry(self._objects, self._writer.job_id, commit)
        if entry is not None and entry.epoch > self._writer.epoch:
            raise self._stale(entry)
        if isinstance(entry, Manifest) and entry.writer == self._writer.writer:
            return entry
        what = "nothing readable" if entry is None else f"a {entry.kind} of epoch {entry.epoch}, attempt {entry.attempt}"
        raise ChainConflictError(
            f"chain of {self._writer.job_id}: commit {commit} should be ours (epoch {self._writer.epoch}) but holds {what}; "
            "two processes run with one epoch: stop one"
        )

    def _stale(self, entry: AnyEntry) -> StaleEpochError:
        return StaleEpochError(
            f"chain of {self._writer.job_id}: commit {entry.commit} belongs to epoch {entry.epoch}, ours is {self._writer.epoch}: "
            "a newer attempt has taken over; this one must end",
            mine=int(self._writer.epoch),
            theirs=int(entry.epoch),
        )


def tombstone(manifest: Manifest, deletion: Deletion | None = None) -> Pruned:
    """Returns the entry that replaces a pruned or deleted checkpoint; it can be put back from it."""
    return Pruned(
        job_id=manifest.job_id,
        commit=manifest.commit,
        epoch=manifest.epoch,
        attempt=manifest.attempt,
        writer=manifest.writer,
        created_at_s=manifest.created_at_s,
        step=manifest.step,
        manifest=manifest,
        deletion=deletion,
    )
