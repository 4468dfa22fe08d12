"""Access rule of an attempt in the object store. Pure.

Holds: an attempt writes below its own job's prefix alone, and there only what an attempt writes: entries of the commit chain, chunks, what
is of its own epoch, and the tag `best`; and artifacts of its own job under their hash, where there is none. It reads its own job, and the
checkpoints of the job that it resumes from, with the tag `best`, if that is of the same project; there it writes one thing, under its own
name: which of them it began from, so that retention keeps it. Of datasets it reads the version that its spec names: the manifest, and the
shards that this names. Of outputs it writes, below its own job's prefix, those that its spec names: shards and distributions, records of
its own epoch's ranks, records of pieces where there is none, and work between passes, its records where there is none; never what agents
note there, nor where published datasets are. Of its project's artifacts it reads all, with their names; it writes contents under their
hash, which the store checks (`hash_in`), and names that say that it was this job, and never those of another project. Of its project's
models it reads contents of versions and pins of their checkpoints; the chunks as those of the job that it resumes from.
Never: allows a key that is not spelled as Trainhouse spells it: what has `..`, an empty part or a percent sign is not looked at further.
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from trainhouse.events.model.artifact_keys import PREFIX as ARTIFACTS
from trainhouse.events.model.artifact_keys import artifacts_prefix
from trainhouse.events.model.dataset_keys import index_key, manifest_key, shard_key
from trainhouse.events.model.model_content import models_prefix, pins_prefix
from trainhouse.events.model.version_names import NAME_PATTERN

_JOB = r"(?P<job>[A-Za-z0-9][A-Za-z0-9._:-]{0,127})"
_NAME = r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}"
_EPOCH = r"(?P<epoch>[0-9]{10})"
_COMMIT = re.compile(rf"jobs/{_JOB}/commits/[0-9]{{10}}")
_CHUNK = re.compile(rf"jobs/{_JOB}/chunks/(?P<two>[0-9a-f]{{2}})/(?P<sha256>(?P=two)[0-9a-f]{{62}})")
_TAG = re.compile(rf"jobs/{_JOB}/tags/(?:used-by:)?{_NAME}")
_BEST = re.compile(rf"jobs/{_JOB}/tags/best")
_USED_BY = re.compile(rf"jobs/{_JOB}/tags/used-by:(?P<child>{_NAME})")
_SAVER = re.compile(rf"jobs/{_JOB}/own/{_EPOCH}/savers/[0-9]{{1,20}}")
_ARTIFACT = re.compile(rf"artifacts/{_JOB}/[0-9a-f]{{64}}")
_NODE = re.compile(rf"jobs/{_JOB}/own/{_EPOCH}/nodes/{_NAME}")
_SHARED_CHUNK = re.compile(r"chunks/(?P<two>[0-9a-f]{2})/(?P<sha256>(?P=two)[0-9a-f]{62})")
_OF_A_DATASET = re.compile(
    r"datasets/[A-Za-z0-9][A-Za-z0-9._-]{0,127}/(?:manifests|shards/[0-9a-f]{2})/(?P<sha256>[0-9a-f]{64})\.(?:json|tar|idx)"
)
_OUTPUT = rf"jobs/{_JOB}/outputs/(?P<output>[A-Za-z0-9][A-Za-z0-9._-]{{0,127}})"
_OUTPUT_SHARD = re.compile(rf"{_OUTPUT}/shards/[0-9a-f]{{64}}\.(?:tar|idx)")
_OUTPUT_PROFILES = re.compile(rf"{_OUTPUT}/profiles/[0-9a-f]{{64}}\.json")
_OUTPUT_RANK = re.compile(rf"{_OUTPUT}/ranks/{_EPOCH}/[0-9]{{6}}\.json")
_OUTPUT_PIECE = re.compile(rf"{_OUTPUT}/pieces/[A-Za-z0-9][A-Za-z0-9._-]{{0,127}}\.json(?:\.[2-9])?")
_OUTPUT_WORK = re.compile(rf"{_OUTPUT}/work/[A-Za-z0-9][A-Za-z0-9._-]{{0,127}}\.rows")
_OUTPUT_WORK_RECORD = re.compile(rf"{_OUTPUT}/work/[A-Za-z0-9][A-Za-z0-9._-]{{0,127}}\.json(?:\.[2-9])?")
_OUTPUT_READS = (_OUTPUT_SHARD, _OUTPUT_PROFILES, _OUTPUT_RANK, _OUTPUT_PIECE, _OUTPUT_WORK, _OUTPUT_WORK_RECORD)
_OUTPUT_PREFIXES = re.compile(rf"{_OUTPUT}/(?:pieces|work)/")
_HASHED_ARTIFACT = re.compile(
    rf"{ARTIFACTS}{NAME_PATTERN}/(?:objects/(?P<two>[0-9a-f]{{2}})/(?P<file>(?P=two)[0-9a-f]{{62}})|manifests/(?P<manifest>[0-9a-f]{{64}})\.json)"
)
_ARTIFACT_NAME = re.compile(rf"{ARTIFACTS}{NAME_PATTERN}/names/{NAME_PATTERN}/[0-9a-f]{{64}}/job\.{_JOB}")
_ARTIFACT_NAMES_PREFIX = re.compile(rf"{ARTIFACTS}{NAME_PATTERN}/names/{NAME_PATTERN}/")
_ARTIFACT_NOTE = re.compile(rf"{ARTIFACTS}{NAME_PATTERN}/storing/{_JOB}\.{_EPOCH}\.[0-9a-f]{{32}}")
_MODEL_CONTENT = re.compile(r"[a-z/]+/[^/]+/contents/[0-9a-f]{64}\.json")
_MODEL_PIN = re.compile(rf"[a-z-]+/[^/]+/{_JOB}/[0-9]{{10}}/[0-9a-f]{{64}}")
_COMMITS_PREFIX = re.compile(rf"jobs/{_JOB}/commits/")
_OWN_PREFIXES = re.compile(rf"jobs/{_JOB}/(?:tags/|own/|own/[0-9]{{10}}/nodes/)")
# What the store itself gave; some stores make files of it.
_UPLOAD_ID = re.compile(r"[A-Za-z0-9=+~-][A-Za-z0-9._=+~-]{0,1023}")
MAX_PARTS = 10_000
_CRC32 = re.compile(r"[A-Za-z0-9+/]{5}[AQgw]==")


class Operation(StrEnum):
    """Kinds of requests to the store."""

    GET = "get"
    HEAD = "head"
    LIST = "list"
    PUT = "put"
    DELETE = "delete"
    CREATE_UPLOAD = "create_upload"
    PUT_PART = "put_part"
    COMPLETE_UPLOAD = "complete_upload"
    ABORT_UPLOAD = "abort_upload"


_READS = frozenset({Operation.GET, Operation.HEAD})
_UPLOADS = frozenset({Operation.CREATE_UPLOAD, Operation.PUT_PART, Operation.COMPLETE_UPLOAD, Operation.ABORT_UPLOAD})


@dataclass(frozen=True)
class Ask:
    """One request that a rank wants to make. `key` is the prefix of a LIST; `span` the first and last byte of a GET;
    `crc32` that of the body of a PUT whose key says no hash, as base64; empty: of a rank that began under an older agent."""

    operation: Operation
    key: str
    start_after: str = ""
    span: tuple[int, int] | None = None
    if_absent: bool = False
    upload_id: str = ""
    part: int = 0
    crc32: str = ""

    def as_dict(self) -> dict[str, Any]:
        """As it is sent."""
        found: dict[str, Any] = {"operation": self.operation.value, "key": self.key, "start_after": self.start_after, "span": self.span}
        found |= {"if_absent": self.if_absent, "upload_id": self.upload_id, "part": self.part, "crc32": self.crc32}
        return {k: v for k, v in found.items() if v}

    @classmethod
    def parse(cls, data: Any) -> "Ask":
        """The inverse of `as_dict`. Raises ValueError for whatever is not exactly one."""
        if not isinstance(data, dict) or not data.keys() <= _TYPES.keys():
            raise ValueError("no request: " + ", ".join(_TYPES))
        for name, value in data.items():
            if type(value) is not _TYPES[name]:
                raise ValueError(f"{name} must be {_TYPES[name].__name__}")
        span = data.get("span")
        if span is not None and not (len(span) == 2 and all(type(n) is int for n in span) and 0 <= span[0] <= span[1] < 2**63):
            raise ValueError("span must be the first and the last byte")
        return cls(**(data | {"operation": Operation(data.get("operation", "")), "key": data.get("key", ""), "span": span and tuple(span)}))


_TYPES = {
    "operation": str,
    "key": str,
    "start_after": str,
    "span": list,
    "if_absent": bool,
    "upload_id": str,
    "part": int,
    "crc32": str,
}


@dataclass(frozen=True)
class DatasetLease:
    """Leave to read one version of a project's dataset: hashes of its manifest and, once they are known, of its shards.
    `artifacts`: keys of the artifacts that the manifest names, and of their files."""

    project: str
    sha256: str
    shards: frozenset[str] = field(default=frozenset(), repr=False)
    artifacts: frozenset[str] = field(default=frozenset(), repr=False)


@dataclass(frozen=True)
class Lease:
    """Facts behind the rule. `resumes`: the job to begin from, once it is known to be of the same project. `shared_chunks`: hashes of
    chunks from when all jobs' lay together, that checkpoints of these two jobs name. `outputs`: those that its spec names. `project`: that
    of the job; empty: not given, so that nothing of a project's artifacts is allowed."""

    job_id: str
    epoch: int
    resumes: str | None = None
    shared_chunks: frozenset[str] = field(default=frozenset(), repr=False)
    dataset: DatasetLease | None = None
    outputs: frozenset[str] = frozenset()
    project: str = ""


def refusal(lease: Lease, ask: Ask) -> str | None:
    """Returns the reason for a refusal, or None if access is allowed."""
    operation, key = ask.operation, ask.key
    if not _fits(ask):
        ok = False
    elif operation in _READS:
        own = _own(lease, _TAG, _SAVER, _NODE, _ARTIFACT, key=key) or _begun_from(lease, key)
        of_jobs = own or _of(lease, _COMMIT, _CHUNK, _BEST, key=key)
        outputs = _of_output(lease, *_OUTPUT_READS, key=key)
        artifacts = _of_project(lease, _HASHED_ARTIFACT, key=key) or _named_by_it(lease, key) or _of_models(lease, key)
        ok = of_jobs or outputs or artifacts or shared_chunk(key) in lease.shared_chunks or _of_dataset(lease.dataset, key)
    elif operation is Operation.LIST:
        own = _own(lease, _OWN_PREFIXES, key=key) or _of_output(lease, _OUTPUT_PREFIXES, key=key)
        own = own or _of_project(lease, _ARTIFACT_NAMES_PREFIX, key=key)
        ok = (own or _of(lease, _COMMITS_PREFIX, key=key)) and _start_is_below(ask)
    elif operation is Operation.PUT:
        own = _own(lease, _COMMIT, _CHUNK, _BEST, key=key) or (_own(lease, _SAVER, key=key) and epoch_in(key) == lease.epoch)
        own = own or _of_output(lease, _OUTPUT_SHARD, _OUTPUT_PROFILES, _OUTPUT_WORK, key=key)
        own = own or (_of_output(lease, _OUTPUT_RANK, key=key) and epoch_in(key) == lease.epoch)
        own = own or _of_project(lease, _HASHED_ARTIFACT, key=key) or _named_by_it(lease, key) or _own_note(lease, key)
        once = ask.if_absent and (_own(lease, _ARTIFACT, key=key) or _of_output(lease, _OUTPUT_PIECE, _OUTPUT_WORK_RECORD, key=key))
        ok = own or once or _begun_from(lease, key)
    elif operation is Operation.DELETE:
        ok = (_own(lease, _SAVER, _NODE, key=key) and epoch_in(key) < lease.epoch) or _own_note(lease, key)
    else:
        own = _own(lease, _CHUNK, key=key) or _of_output(lease, _OUTPUT_SHARD, _OUTPUT_WORK, key=key)
        ok = operation in _UPLOADS and own and _upload_is_sound(ask)
    return None if ok else f"{operation.value} of {key[:300]!r} is not among the rights of job {lease.job_id}, epoch {lease.epoch}"


def shared_chunk(key: str) -> str | None:
    """The hash in a key of a chunk that lies with those of all jobs; None for other keys."""
    found = _SHARED_CHUNK.fullmatch(key)
    return found["sha256"] if found else None


def hash_in(key: str) -> str | None:
    """The hash that the bytes under a key must have, where the store is to check that: of a job's chunks and a project's artifacts."""
    if chunk := _CHUNK.fullmatch(key):
        return chunk["sha256"]
    found = _HASHED_ARTIFACT.fullmatch(key)
    return (found["file"] or found["manifest"]) if found else None


def is_artifact_of_another(lease: "Lease", key: str) -> bool:
    """Whether a key is one of another project's artifacts, which a dataset's manifest may name."""
    return _HASHED_ARTIFACT.fullmatch(key) is not None and not _of_project(lease, _HASHED_ARTIFACT, key=key)


def is_of_dataset(key: str) -> bool:
    """Whether a key is one of a manifest, a shard or its index."""
    return _OF_A_DATASET.fullmatch(key) is not None


def job_in(key: str) -> str | None:
    """Returns the job that a key belongs to; None if it is under no job's prefix."""
    found = re.match(rf"jobs/{_JOB}/", key)
    return found["job"] if found else None


def epoch_in(key: str) -> int:
    """Of which epoch a key of what ranks have of their own is."""
    found = _SAVER.fullmatch(key) or _NODE.fullmatch(key) or _OUTPUT_RANK.fullmatch(key)
    return int(found["epoch"]) if found else -1


def _fits(ask: Ask) -> bool:
    """Returns whether it says nothing that an operation of its kind does not know."""
    return (
        (ask.span is None or ask.operation is Operation.GET)
        and (not ask.if_absent or ask.operation is Operation.PUT)
        and (not ask.crc32 or (ask.operation is Operation.PUT and _CRC32.fullmatch(ask.crc32) is not None))
        and (not ask.start_after or ask.operation is Operation.LIST)
        and (not (ask.upload_id or ask.part) or ask.operation in _UPLOADS)
    )


def _own(lease: Lease, *patterns: re.Pattern[str], key: str) -> bool:
    return any(found["job"] == lease.job_id for found in (p.fullmatch(key) for p in patterns) if found)


def _of(lease: Lease, *patterns: re.Pattern[str], key: str) -> bool:
    """Of the job, or of the one that it resumes from."""
    return any(found["job"] in (lease.job_id, lease.resumes) for found in (p.fullmatch(key) for p in patterns) if found)


def _of_output(lease: Lease, *patterns: re.Pattern[str], key: str) -> bool:
    """Of an output of the job that its spec names."""
    found = next((found for pattern in patterns if (found := pattern.fullmatch(key))), None)
    return found is not None and found["job"] == lease.job_id and found["output"] in lease.outputs


def _of_project(lease: Lease, *patterns: re.Pattern[str], key: str) -> bool:
    """Of the job's own project."""
    return bool(lease.project) and key.startswith(artifacts_prefix(lease.project)) and any(p.fullmatch(key) for p in patterns)


def _of_models(lease: Lease, key: str) -> bool:
    """A version's content, or a pin of its checkpoint, of a model of the job's own project."""
    if not lease.project:
        return False
    content = key.startswith(models_prefix(lease.project)) and _MODEL_CONTENT.fullmatch(key) is not None
    return content or (key.startswith(pins_prefix(lease.project)) and _MODEL_PIN.fullmatch(key) is not None)


def _named_by_it(lease: Lease, key: str) -> bool:
    """A name of an artifact that this job gives."""
    return _of_project(lease, _ARTIFACT_NAME, key=key) and _own(lease, _ARTIFACT_NAME, key=key)


def _own_note(lease: Lease, key: str) -> bool:
    """A note of this attempt that it stores an artifact."""
    found = _ARTIFACT_NOTE.fullmatch(key)
    return (
        found is not None
        and _of_project(lease, _ARTIFACT_NOTE, key=key)
        and found["job"] == lease.job_id
        and int(found["epoch"]) == lease.epoch
    )


def _of_dataset(dataset: DatasetLease | None, key: str) -> bool:
    if dataset is not None and key in dataset.artifacts:
        return True
    found = _OF_A_DATASET.fullmatch(key)
    if dataset is None or found is None:
        return False
    sha256 = found["sha256"]
    if key == manifest_key(dataset.project, dataset.sha256):
        return True
    return sha256 in dataset.shards and key in (shard_key(dataset.project, sha256), index_key(dataset.project, sha256))


def _begun_from(lease: Lease, key: str) -> bool:
    """Of the job that it resumes from, the reference in its own name."""
    found = _USED_BY.fullmatch(key)
    return found is not None and found["job"] == lease.resumes != lease.job_id and found["child"] == lease.job_id


def _start_is_below(ask: Ask) -> bool:
    after = ask.start_after
    return not after or (after.startswith(ask.key) and re.fullmatch(r"[A-Za-z0-9._:/-]{1,1024}", after) is not None)


def _upload_is_sound(ask: Ask) -> bool:
    if ask.operation is Operation.CREATE_UPLOAD:
        return not ask.upload_id and not ask.part
    numbered = 1 <= ask.part <= MAX_PARTS if ask.operation is Operation.PUT_PART else not ask.part
    return numbered and _UPLOAD_ID.fullmatch(ask.upload_id) is not None and ".." not in ask.upload_id
