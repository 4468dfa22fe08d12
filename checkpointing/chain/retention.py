"""Retention: the choice of checkpoints to keep, and the removal of the rest.

Holds: the newest checkpoint of a job is never given up, nor is one that `references` names. Giving one up replaces its manifest by a
tombstone that holds it, so the chain stays dense and fenced, and one that was referred to at the same moment is put back. Bytes go later,
by `sweep`: only chunks that neither a manifest names nor a tombstone younger than the grace, and that were older than the grace when the
sweep began, by the store's clock; never one that a version of a model names (see model_pins). A save that relies on such a chunk has sent it again within half the grace (see chunks). A job with an
entry that cannot be read keeps all its bytes; those of other jobs go.
"""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, groupby, islice
from typing import Literal

from trainhouse.checkpointing.chain.chunks import GRACE_S, SHARED_PREFIX, THREADS, chunk_key, in_threads, prefix_of
from trainhouse.checkpointing.chain.commits import (
    chain_prefix,
    commit_key,
    entries_newest_first,
    head,
    not_passed_over,
    place_of_key,
    read_entry,
    tombstone,
)
from trainhouse.checkpointing.chain.manifest import LOSS, Claim, Deletion, Manifest, Pruned, encode
from trainhouse.checkpointing.chain.model_pins import pinned_chunks
from trainhouse.checkpointing.chain.references import ReferenceReader, references
from trainhouse.checkpointing.errors import DamagedError, HeldError, NoCheckpointError, UnknownFormatError
from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.events.model.model_content import OF_MODEL

MAX_EARLIER = 1000
"""Pruned commits that an attempt reports for the one before, of those that it may not have reported."""


@dataclass(frozen=True)
class RetentionPolicy:
    """Keep the last N, those with a tag, and the `keep_best` best by a metric that was given when they were saved."""

    keep_last: int = 3
    keep_best: int = 0
    metric: str = LOSS
    best: Literal["min", "max"] = "min"


@dataclass(frozen=True)
class PruneResult:
    """`bytes_freed` counts chunks that no other manifest of the job names; `sweep` frees them once they are old enough.

    `unmeasured`: the policy keeps the best by a metric that no checkpoint has. `earlier`: commits that the attempt before gave
    up after its last save, and may have ended before it reported them; the newest, and once.
    """

    commits: tuple[int, ...]
    bytes_freed: int
    unmeasured: bool = False
    earlier: tuple[int, ...] = ()


@dataclass(frozen=True)
class SweepResult:
    """Result of a sweep: removed objects, and keys of entries that keep all bytes of their job, as it is not known which they need.

    `unknown`: intact entries that this program is too old to read.
    """

    chunks: int = 0
    bytes_freed: int = 0
    damaged: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def to_prune(live: Mapping[int, Manifest], tagged: frozenset[int], policy: RetentionPolicy, damaged: frozenset[int]) -> list[int]:
    """Commits to give up, oldest first. Damaged (or passed-over) ones do not count among the last N, and are kept only by a tag. Pure."""
    keep = _kept_by_policy(live, policy, damaged) | tagged
    newest = max(set(live) - damaged, default=-1)
    # A damaged one that is newer than every healthy one stays for whoever looks into it, until something newer is safe.
    return sorted(n for n in live if n not in keep and n < newest)


def _kept_by_policy(live: Mapping[int, Manifest], policy: RetentionPolicy, damaged: frozenset[int]) -> frozenset[int]:
    healthy = sorted(set(live) - damaged)
    scored = [(m.metrics[policy.metric], -n) for n, m in live.items() if policy.metric in m.metrics and n not in damaged]
    ranked = sorted(scored if policy.best == "min" else [(-score, n) for score, n in scored])
    return frozenset(healthy[-max(1, policy.keep_last) :]) | {-n for _, n in ranked[: policy.keep_best]}


class Pruner:
    """Prunes one job's chain; remembers what it has seen, so that of the old entries only those are read that decide. Blocks."""

    def __init__(self, objects: ObjectStore, job_id: str) -> None:
        self._objects = objects
        self._job_id = job_id
        self._references = ReferenceReader(objects, job_id)
        self._seen = -1
        self._earlier: list[int] = []
        self._live: dict[int, Manifest] = {}
        self._damaged: set[int] = set()

    def do_not_count(self, commit: int) -> None:
        """Marks this commit as damaged."""
        self._damaged.add(commit)

    def prune(self, policy: RetentionPolicy, keep: frozenset[int] = frozenset()) -> PruneResult:
        """Puts tombstones, but not on `keep`. An interruption leaves some for the next time."""
        sure = self._look()
        kept = keep | self._references.read().kept(self._live)
        while due := self._due(policy, kept):
            unsure = sorted((_kept_by_policy(self._live, policy, frozenset(self._damaged)) | set(due)) - sure)
            if not unsure:
                break
            # What was deleted meanwhile must take no other's place among the last or the best, nor get another tombstone.
            for commit, entry in zip(unsure, in_threads(self._read, unsure, THREADS), strict=True):
                if not isinstance(entry, Manifest):
                    del self._live[commit]
            sure.update(unsure)
        pruned = _give_up(self._objects, self._job_id, {n: self._live[n] for n in due}, self._references, self._seen)
        for commit in pruned:
            del self._live[commit]
        named = {c.sha256 for m in self._live.values() for c in m.chunks}
        freed = {c.sha256: c.size_bytes for m in pruned.values() for c in m.chunks if c.sha256 not in named}
        unmeasured = policy.keep_best > 0 and not any(policy.metric in m.metrics for m in self._live.values())
        earlier, self._earlier = tuple(self._earlier[-MAX_EARLIER:]), []
        return PruneResult(tuple(pruned), sum(freed.values()), unmeasured, earlier)

    def _due(self, policy: RetentionPolicy, kept: frozenset[int]) -> list[int]:
        return to_prune(self._live, kept, policy, frozenset(self._damaged))

    def _look(self) -> set[int]:
        """Reads new entries; returns their numbers."""
        newest = head(self._objects, self._job_id, self._seen)
        unseen = range(self._seen + 1, newest + 1)
        entries = dict(zip(unseen, in_threads(self._read, unseen, THREADS), strict=True))
        if self._seen < 0:
            self._earlier = self._unreported(entries)
        for commit, entry in entries.items():
            if isinstance(entry, Manifest):
                self._live[commit] = entry
            elif isinstance(entry, Claim) and entry.restore_at_most is not None:
                self._damaged.update(n for n in self._live if n > entry.restore_at_most)
        self._seen = newest
        return set(unseen)

    def _unreported(self, entries: Mapping[int, object]) -> list[int]:
        """Returns what was given up since the last save before the newest claim, by the store's clock: most saves follow the report."""
        claimed = max((n for n, entry in entries.items() if isinstance(entry, Claim)), default=0)
        saved = max((n for n, entry in entries.items() if n < claimed and isinstance(entry, Manifest)), default=None)
        given_up = [n for n, e in entries.items() if isinstance(e, Pruned) and e.manifest is not None and e.deletion is None]
        if saved is None or not given_up:
            return []
        written_s = {found.key: found.modified_s for found in self._objects.list(chain_prefix(self._job_id))}
        return [n for n in given_up if written_s[commit_key(self._job_id, n)] >= written_s[commit_key(self._job_id, saved)]]

    def _read(self, commit: int) -> object:
        try:
            return read_entry(self._objects, self._job_id, commit)
        except DamagedError:
            return None


def delete(objects: ObjectStore, job_id: str, commit: int, ended: bool, by: Deletion) -> Pruned:
    """Gives up one checkpoint; returns its tombstone. `ended`: the job is over, so that its newest two may go, too.

    Of one that was deleted before it returns the tombstone of then, so that a deletion that was cut off can be finished. Raises
    NoCheckpointError, HeldError (referenced, or what a restart may begin from), DamagedError.
    """
    seen = head(objects, job_id)
    entry = read_entry(objects, job_id, commit)
    if isinstance(entry, Pruned):
        return _deleted_before(objects, entry, ended)
    if not isinstance(entry, Manifest):
        raise NoCheckpointError(f"{job_id}@{commit}: no such checkpoint; `trainhouse checkpoints {job_id}` lists them")
    if not ended and commit in _restart_points(objects, entry):
        raise _restarts(entry)
    reader = ReferenceReader(objects, job_id)
    names = reader.read().of(commit)
    if not names and _give_up(objects, job_id, {commit: entry}, reader, seen, by):
        return tombstone(entry, by)
    names = names or reader.read().of(commit)
    if not names:
        raise _restarts(entry)
    raise _held(job_id, commit, names)


def _deleted_before(objects: ObjectStore, entry: Pruned, ended: bool) -> Pruned:
    if entry.deletion is None:
        raise NoCheckpointError(
            f"{entry.job_id}@{entry.commit}: retention has removed it; `trainhouse checkpoints {entry.job_id}` lists them"
        )
    # It may have been cut off right after its tombstone: then it looks now at what one that was not looks at after it.
    names = references(objects, entry.job_id).of(entry.commit)
    if entry.manifest is None or not (names or (not ended and entry.commit in _restart_points(objects, entry.manifest))):
        return entry
    objects.put(commit_key(entry.job_id, entry.commit), encode(entry.manifest))
    raise _held(entry.job_id, entry.commit, names) if names else _restarts(entry.manifest)


def _restarts(manifest: Manifest) -> HeldError:
    return HeldError(
        f"{manifest.job_id}@{manifest.commit}: a restart of the job may begin from it: the newest two of a job that has not ended stay, as "
        f"the newest may turn out damaged or diverged; end the job first (`trainhouse cancel {manifest.job_id}`)"
    )


def _held(job_id: str, commit: int, names: tuple[str, ...]) -> HeldError:
    kept = f"{job_id}@{commit}: kept by {', '.join(names)}"
    if any(name.startswith(OF_MODEL) for name in names):
        return HeldError(f"{kept}; a registered version of a model keeps its checkpoint for good")
    untags = "; ".join(f"`trainhouse checkpoint untag {job_id} {name}`" for name in names)
    return HeldError(f"{kept}; without any of them it can be deleted: {untags}")


def _restart_points(objects: ObjectStore, deleted: Manifest) -> list[int]:
    """Returns the newest two that a restart may begin from, as if `deleted` were there."""
    found = entries_newest_first(objects, deleted.job_id)
    entries = not_passed_over((commit, deleted if commit == deleted.commit else entry) for commit, entry in found)
    return list(islice((commit for commit, entry in entries if isinstance(entry, Manifest)), 2))


def _give_up(
    objects: ObjectStore,
    job_id: str,
    manifests: Mapping[int, Manifest],
    reader: ReferenceReader,
    seen: int,
    by: Deletion | None = None,
) -> dict[int, Manifest]:
    """Puts tombstones on commits that nothing referred to just now. Returns them, without those that something refers to since.

    Puts all back if a claim newer than `seen` went back in the chain: one of them may be what it begins from.
    """
    if not manifests:
        return {}
    for commit, manifest in manifests.items():
        objects.put(commit_key(job_id, commit), encode(tombstone(manifest, by)))
    back = frozenset(manifests) if _is_rewound(objects, job_id, seen) else reader.read().kept(manifests)
    for commit in back:
        objects.put(commit_key(job_id, commit), encode(manifests[commit]))
    return {n: m for n, m in manifests.items() if n not in back}


def _is_rewound(objects: ObjectStore, job_id: str, seen: int) -> bool:
    """Returns whether an entry newer than `seen` is, or may be, a claim that passes others over."""
    for commit in range(seen + 1, head(objects, job_id, seen) + 1):
        try:
            entry = read_entry(objects, job_id, commit)
        except (DamagedError, UnknownFormatError):
            return True
        if isinstance(entry, Claim) and entry.restore_at_most is not None:
            return True
    return False


def sweep(objects: ObjectStore, grace_s: float = GRACE_S) -> SweepResult:
    """Removes chunks that nobody needs. For an operator, or a timer; one at a time is enough, two do no harm. Blocks long."""
    began_s = _store_now(objects)
    # First, so that a tag which a version loses here is no reference below.
    pinned = pinned_chunks(objects, began_s - grace_s)
    named, unclear = pinned.keys, pinned.unclear
    unreadable: dict[type[Exception], list[str]] = {DamagedError: pinned.damaged, UnknownFormatError: pinned.unknown}
    tombstones: list[tuple[Pruned, Manifest]] = []
    places = [place for found in objects.list("jobs/") if (place := place_of_key(found.key)) is not None]
    for (job_id, commit), entry in zip(places, in_threads(lambda place: _entry_or_error(objects, *place), places, THREADS), strict=True):
        if isinstance(entry, Manifest):
            named.update(_chunk_keys(entry))
        elif isinstance(entry, Pruned):
            tombstones += [(entry, entry.manifest)] if entry.manifest is not None else []
        elif isinstance(entry, Exception):
            unreadable[type(entry)].append(commit_key(job_id, commit))
            unclear.add(job_id)
    for manifest in _empty_tombstones(objects, tombstones, began_s - grace_s, unclear):
        named.update(_chunk_keys(manifest))
    count = freed = 0
    for key, size_bytes in () if pinned.keeps_all else _old_chunks(objects, began_s - grace_s, named, unclear, pinned.has_shared):
        objects.delete(key)
        count, freed = count + 1, freed + size_bytes
    return SweepResult(count, freed, tuple(unreadable[DamagedError]), tuple(unreadable[UnknownFormatError]))


def _empty_tombstones(
    objects: ObjectStore, tombstones: list[tuple[Pruned, Manifest]], older_than_s: float, unclear: set[str]
) -> Iterator[Manifest]:
    """Takes the manifests out of old tombstones, and puts those back that something refers to. Yields those whose chunks stay.

    `unclear`: jobs of which nothing may go.
    """
    for job_id, of_job in groupby(tombstones, key=lambda pair: pair[0].job_id):
        held = references(objects, job_id)
        for entry, manifest in of_job:
            key = commit_key(job_id, entry.commit)
            # Looked at after it was read: it may have become a tombstone since it was listed.
            found = objects.stat(key)
            if held.of(entry.commit):
                objects.put(key, encode(manifest))
                yield manifest
            elif found is None or found.modified_s >= older_than_s or job_id in unclear:
                yield manifest
            else:
                objects.put(key, encode(entry.model_copy(update={"manifest": None})))


def _chunk_keys(manifest: Manifest) -> Iterator[str]:
    return (chunk_key(c.sha256, prefix_of(manifest)) for c in manifest.chunks)


def _old_chunks(
    objects: ObjectStore, older_than_s: float, named: set[str], unclear: set[str], has_shared: bool
) -> Iterator[tuple[str, int]]:
    paths = ((found, found.key.split("/")) for found in objects.list("jobs/"))
    of_jobs = (found for found, path in paths if path[2:3] == ["chunks"] and path[1] not in unclear)
    for found in chain(objects.list(SHARED_PREFIX) if has_shared else (), of_jobs):
        if found.modified_s < older_than_s and found.key not in named:
            # Looked at again: a save may have sent it anew since the page was listed.
            again = objects.stat(found.key)
            if again is not None and again.modified_s < older_than_s:
                yield found.key, found.size_bytes


def _entry_or_error(objects: ObjectStore, job_id: str, commit: int) -> object:
    try:
        return read_entry(objects, job_id, commit)
    except (DamagedError, UnknownFormatError) as error:
        return error


def _store_now(objects: ObjectStore) -> float:
    """The store's clock: the time that it gives a thing written now."""
    key = f"sweeps/{uuid.uuid4().hex}"
    objects.put(key, b"")
    found = objects.stat(key)
    objects.delete(key)
    assert found is not None
    return found.modified_s
