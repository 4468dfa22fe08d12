"""Pins of models: a copy of a checkpoint's manifest for each content of a version that names it, `model-pins/{project}/{job}/{commit}/{hash}`.

Holds: a pin is written, with the tag `model:{hash}` of the job, before the content that it is for, so that a content's chunks always have a
root that no rank of the job can reach. Sweeps keep the chunks of a pin whatever the job's chain says; one that cannot be read keeps all
chunks of its job. A pin whose content never came counts for the grace, after it was written last.
Never: removes a pin whose content is there.
"""

import hashlib
import re
from dataclasses import dataclass, field
from typing import Final

from trainhouse.checkpointing.chain.chunks import THREADS, chunk_key, in_threads, prefix_of
from trainhouse.checkpointing.chain.commits import commit_key, read_entry
from trainhouse.checkpointing.chain.manifest import Manifest, Pruned, decode, encode
from trainhouse.checkpointing.chain.references import given_up, reference_record, tags_prefix
from trainhouse.checkpointing.errors import CheckpointError, DamagedError, NoCheckpointError, RetryableError, UnknownFormatError
from trainhouse.checkpointing.stores.object_store import ObjectStat, ObjectStore, exists, get_or_none
from trainhouse.events.model.ids import JobId
from trainhouse.events.model.model_content import OF_MODEL, PINS_PREFIX, PREFIX, pin_key

_PIN: Final = re.compile(rf"{PINS_PREFIX}(?P<project>[^/]+)/(?P<job>[^/]+)/(?P<commit>[0-9]{{10}})/(?P<content>[0-9a-f]{{64}})", re.ASCII)


@dataclass
class PinnedChunks:
    """Chunks that versions of models keep: their keys. `unclear`: jobs of which all chunks stay. `keeps_all`: no chunk of any job goes.
    `has_shared`: whether chunks may go that lay together for all jobs, which any pin may name; false where one cannot be read. `damaged` and `unknown`: keys of pins that cannot be read, or are of a newer program."""

    keys: set[str] = field(default_factory=set)
    unclear: set[str] = field(default_factory=set)
    keeps_all: bool = False
    has_shared: bool = True
    damaged: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def keep_for_model(objects: ObjectStore, project: str, sha256: str, manifest: Manifest, body: bytes) -> None:
    """Keeps a checkpoint for the content with this hash, which is to be stored next. `body`: the manifest's bytes in the job's chain.

    One that retention gave up in that instant is put back. Blocks. Raises NoCheckpointError where an operator deleted it.
    """
    job_id, commit = str(manifest.job_id), manifest.commit
    pin, tag = pin_key(project, job_id, commit, sha256), f"{tags_prefix(job_id)}{OF_MODEL}{sha256}"
    before = get_or_none(objects, pin)
    objects.put(pin, body)
    objects.put(tag, reference_record(commit))
    try:
        entry = read_entry(objects, job_id, commit)
    except DamagedError:
        entry = None
    if isinstance(entry, Pruned) and entry.deletion is not None:
        if before is None:
            objects.delete(tag)
            objects.delete(pin)
        raise NoCheckpointError(f"{job_id}@{commit}: no such checkpoint; `trainhouse checkpoints {job_id}` lists them")
    again = given_up(entry)
    if again is not None:
        objects.put(commit_key(job_id, commit), encode(again))


def pinned_manifest(objects: ObjectStore, project: str, job_id: str, commit: int, sha256: str, checkpoint: str) -> Manifest:
    """The manifest of the checkpoint that a content names. `checkpoint`: the hash of its bytes. Blocks. Raises DamagedError where neither
    the pin nor the job's chain has those bytes, UnknownFormatError."""
    problem = ""
    for key in (pin_key(project, job_id, commit, sha256), commit_key(job_id, commit)):
        body = get_or_none(objects, key)
        if body is not None and hashlib.sha256(body).hexdigest() == checkpoint:
            return _manifest_of(body, objects.uri(key), job_id, commit)
        problem = problem or f"{objects.uri(key)} {'is missing' if body is None else f'has not the hash {checkpoint[:12]}…'}"
    raise DamagedError(f"{problem}, which the content {sha256[:12]}… of a model names", checkpoint)


def pinned_chunks(objects: ObjectStore, older_than_s: float) -> PinnedChunks:
    """All chunks that pins keep. A pin without its content that was written before `older_than_s` loses its tag, and keeps nothing.
    Reads all pins; blocks. Raises what the store raises."""
    found = PinnedChunks()
    pins = list(objects.list(PINS_PREFIX))
    for stat, (named, result) in zip(pins, in_threads(lambda stat: _read(objects, stat, older_than_s), pins, THREADS), strict=True):
        if named is None:
            found.keeps_all = True
            found.damaged.append(stat.key)
        elif isinstance(result, Manifest):
            found.keys.update(chunk_key(chunk.sha256, prefix_of(result)) for chunk in result.chunks)
        elif isinstance(result, CheckpointError):
            found.unclear.add(named["job"])
            found.has_shared = False
            (found.unknown if isinstance(result, UnknownFormatError) else found.damaged).append(stat.key)
    return found


def _read(objects: ObjectStore, stat: ObjectStat, older_than_s: float) -> tuple[re.Match[str] | None, Manifest | CheckpointError | None]:
    """The parts of a pin's key, None for another key; and its manifest, the reason that it cannot be read, or None for one that keeps
    nothing."""
    named = _PIN.fullmatch(stat.key)
    if named is None:
        return None, None
    job_id, content = named["job"], named["content"]
    if stat.modified_s < older_than_s and not exists(objects, f"{PREFIX}{named['project']}/contents/{content}.json"):
        objects.delete(f"{tags_prefix(job_id)}{OF_MODEL}{content}")
        return named, None
    try:
        return named, _manifest_of(objects.get(stat.key), objects.uri(stat.key), job_id, int(named["commit"]))
    except RetryableError:
        raise
    except CheckpointError as error:
        return named, error


def _manifest_of(body: bytes, where: str, job_id: str, commit: int) -> Manifest:
    entry = decode(body, where)
    if not isinstance(entry, Manifest) or (entry.job_id, entry.commit) != (JobId(job_id), commit):
        raise DamagedError(f"{where}: it says that it is {entry.kind} {entry.job_id}@{entry.commit}")
    return entry
