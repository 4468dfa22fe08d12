"""References to a job's commits, `jobs/{job}/tags/{name}`: tags, `used-by:{job}` of each job that began from one, and `model:{hash}` of
each version of a model.

Holds: `references` is the one rule by which pruning, deletion and sweeps know what must stay. A reference is written after its commit was
seen live. A commit that is given up in that instant keeps its bytes for the grace time, within which the pruning process or a sweep finds
the reference and puts it back. An unreadable reference keeps all commits of its job.
Never: removes a commit.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import orjson

from trainhouse.checkpointing.chain.chunks import THREADS, in_threads
from trainhouse.checkpointing.chain.commits import commit_key, read_entry
from trainhouse.checkpointing.chain.manifest import AnyEntry, Manifest, Pruned, encode
from trainhouse.checkpointing.errors import DamagedError, HeldError, InvalidStateError, NoCheckpointError
from trainhouse.checkpointing.stores.object_store import ObjectStat, ObjectStore, get_or_none
from trainhouse.events.model.model_content import OF_MODEL

USED_BY = "used-by:"
BEST = "best"
"""The tag that a rank moves by itself."""
MAX_REFERENCE_BYTES = 1024
MIN_REMEMBERED_AGE_S = 60.0
TAGS_S = 5.0
"""Deadline of the store's answer to one who shows a list: it is shown without tags after it."""
ObjectVersion = tuple[str, float]
"""Key and time of the last write."""
TAG_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class References:
    """The references of one job: names by commit. `unreadable`: names whose commit is not known."""

    by_commit: Mapping[int, tuple[str, ...]]
    unreadable: tuple[str, ...] = ()

    @property
    def rows(self) -> list[dict[str, int | str | None]]:
        """Commit and name of each, by commit; before them unreadable ones, which keep all commits, with None."""
        unreadable: list[dict[str, int | str | None]] = [{"commit": None, "name": name} for name in self.unreadable]
        return unreadable + [{"commit": commit, "name": name} for commit, names in sorted(self.by_commit.items()) for name in names]

    def of(self, commit: int) -> tuple[str, ...]:
        """Names that keep this commit, those included that might."""
        return (*self.by_commit.get(commit, ()), *self.unreadable)

    def kept(self, commits: Iterable[int]) -> frozenset[int]:
        """Commits of these that must stay."""
        return frozenset(n for n in commits if self.of(n))


class ReferenceReader:
    """Reads one job's references; remembers old ones, so that a job that saves often reads those of many children once. Blocks."""

    def __init__(self, objects: ObjectStore, job_id: str) -> None:
        self._objects = objects
        self._prefix = tags_prefix(job_id)
        self._known: dict[ObjectVersion, int | None] = {}

    def read(self) -> References:
        """All references as they are now."""
        by_commit: dict[int, tuple[str, ...]] = {}
        unreadable = []
        known: dict[ObjectVersion, int | None] = {}
        listed = list(self._objects.list(self._prefix))
        for found, (is_there, commit) in zip(listed, in_threads(self._commit_of, listed, THREADS), strict=True):
            if not is_there:
                continue
            # A younger one may be written once more within the second that the store's times count.
            if found.age_s > MIN_REMEMBERED_AGE_S:
                known[found.key, found.modified_s] = commit
            name = found.key.removeprefix(self._prefix)
            if commit is None:
                unreadable.append(name)
            else:
                by_commit[commit] = (*by_commit.get(commit, ()), name)
        self._known = known
        return References(by_commit, tuple(unreadable))

    def _commit_of(self, found: ObjectStat) -> tuple[bool, int | None]:
        """Returns whether the reference is still there, and its commit, None for an unreadable one."""
        version = (found.key, found.modified_s)
        if version in self._known:
            return True, self._known[version]
        if found.size_bytes > MAX_REFERENCE_BYTES:
            return True, None
        content = get_or_none(self._objects, found.key)
        return content is not None, None if content is None else _commit_in(content)


def references(objects: ObjectStore, job_id: str) -> References:
    """Reads all references of a job."""
    return ReferenceReader(objects, job_id).read()


def tag(objects: ObjectStore, job_id: str, name: str, commit: int) -> None:
    """Keeps a commit for as long as the tag exists; a tag of that name moves. Raises InvalidStateError (name), NoCheckpointError.

    Of a commit that is given up in that instant: it is put back if retention did it, and stays deleted if an operator did.
    """
    if not TAG_NAME.fullmatch(name):
        raise InvalidStateError(f"tag {name[:100]!r}: use 1 to 64 letters, digits, `.`, `_` or `-`, a letter or digit first")
    nothing = NoCheckpointError(f"{job_id}@{commit}: no such checkpoint; `trainhouse checkpoints {job_id}` lists them")
    if not isinstance(_entry(objects, job_id, commit), Manifest):
        raise nothing
    key = f"{tags_prefix(job_id)}{name}"
    before = get_or_none(objects, key)
    objects.put(key, reference_record(commit))
    entry = _entry(objects, job_id, commit)
    if isinstance(entry, Pruned) and entry.deletion is not None:
        objects.delete(key) if before is None else objects.put(key, before)
        raise nothing
    manifest = given_up(entry)
    if manifest is not None:
        objects.put(commit_key(job_id, commit), encode(manifest))


def untag(objects: ObjectStore, job_id: str, name: str) -> int | None:
    """Removes a tag, or the reference of a job (`used-by:JOB`). Returns the commit that it kept, None without such a tag. Raises HeldError
    for the reference of a model's version, which stays."""
    if name.startswith(OF_MODEL):
        raise HeldError(f"{job_id}: {name[:100]} is a registered version of a model, which keeps its checkpoint for good")
    key = f"{tags_prefix(job_id)}{name}"
    content = get_or_none(objects, key)
    objects.delete(key)
    return None if content is None else _commit_in(content)


def begin_from(objects: ObjectStore, job_id: str, commit: int, child: str) -> None:
    """Notes that job `child` begins from this commit, which was just seen; so it stays. What it began from before is forgotten."""
    if begun_from(objects, job_id, child) != commit:
        objects.put(used_by_key(job_id, child), reference_record(commit))


def begun_from(objects: ObjectStore, job_id: str, child: str) -> int | None:
    """The commit of `job_id` that an attempt of `child` began from, None for none."""
    return tagged(objects, job_id, f"{USED_BY}{child}")


def tagged(objects: ObjectStore, job_id: str, name: str) -> int | None:
    """The commit that has this tag, None for none and for a tag that is unreadable."""
    content = get_or_none(objects, f"{tags_prefix(job_id)}{name}")
    return None if content is None else _commit_in(content)


def tags_prefix(job_id: str) -> str:
    """Key prefix of a job's references."""
    return f"jobs/{job_id}/tags/"


def used_by_key(job_id: str, child: str) -> str:
    """Key of the reference that `child` has to a commit of `job_id`."""
    return f"{tags_prefix(job_id)}{USED_BY}{child}"


def given_up(entry: object) -> Manifest | None:
    """The manifest in a tombstone that a sweep has not emptied yet: its chunks are still there."""
    return entry.manifest if isinstance(entry, Pruned) else None


def _entry(objects: ObjectStore, job_id: str, commit: int) -> AnyEntry | None:
    try:
        return read_entry(objects, job_id, commit)
    except DamagedError:
        return None


def reference_record(commit: int) -> bytes:
    """Content of a reference to a commit."""
    return orjson.dumps({"commit": commit})


def _commit_in(content: bytes) -> int | None:
    try:
        commit = orjson.loads(content)["commit"]
    except (ValueError, KeyError, TypeError):
        return None
    return commit if type(commit) is int and commit >= 0 else None
