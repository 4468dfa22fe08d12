"""The entries of a job's commit chain: a claim of an epoch, a checkpoint's manifest, or what retention left of one.

Holds: every entry is frozen and carries a checksum of itself; a manifest names every chunk by hash and length, so a checkpoint
can be verified without trusting the store. Dtypes are torch's names without the prefix. Pure.
Never: pickles; a manifest is JSON that any language reads.
"""

import hashlib
from typing import Annotated, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from trainhouse.checkpointing.errors import DamagedError, UnknownFormatError
from trainhouse.events.model.ids import AttemptNumber, Epoch, JobId

FORMAT = 2
LOSS = "loss"
"""The metric of a manifest by which one checkpoint is better than another, where no other is named."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Chunk(_Model):
    """A content-addressed object: its key follows from its hash."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size_bytes: int = Field(ge=0)


class Span(_Model):
    """`size_bytes` of the chunk with this index in the manifest's list, from `offset`."""

    chunk: int = Field(ge=0)
    offset: int = Field(ge=0)
    size_bytes: int = Field(ge=0)


class Piece(_Model):
    """A box of a tensor, row-major, little-endian, and where its bytes are."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    span: Span


class Held(_Model):
    """So many chunks from one on that a node had in memory when the checkpoint was committed."""

    node_id: str
    first: int = Field(ge=0)
    count: int = Field(ge=1)


class TensorRecord(_Model):
    """One tensor: its pieces cover it without overlap."""

    dtype: str
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]


class Entry(_Model):
    """Common fields of all entries: owner and fence."""

    format: int = FORMAT
    job_id: JobId
    commit: int = Field(ge=0)
    epoch: Epoch
    attempt: AttemptNumber
    writer: str = Field(description="unique to one process, so that a lost answer can be told from a lost race")
    created_at_s: float


class Claim(Entry):
    """From here on the chain belongs to this epoch. Older entries above `restore_at_most` are passed over for good."""

    kind: Literal["claim"] = "claim"
    restore_at_most: int | None = Field(None, ge=0)


class Manifest(Entry):
    """A checkpoint. `parent` is the commit that this training state began from, or the one saved before it.

    Its kind says where its chunks are: with its job (`checkpoint/2`), or, of format 1, where those of all jobs were together. A program
    that does not know the newer kind says so, instead of finding every chunk missing.
    """

    kind: Literal["checkpoint", "checkpoint/2"] = "checkpoint/2"
    step: int = Field(ge=0)
    world_size: int = Field(ge=1)
    data_shares: tuple[int, ...] = Field(
        (), exclude_if=lambda shares: not shares, description="by rank: the share of the data that it read; empty: each its own, in order"
    )
    spec_hash: str
    parent: int | None = None
    structure: Span = Field(description="everything of the state that is no tensor")
    ranks: tuple[Span, ...] = Field(description="by rank: what differs between ranks")
    tensors: dict[str, TensorRecord]
    chunks: tuple[Chunk, ...]
    bytes_new: int = Field(ge=0)
    stage_s: float = 0.0
    upload_s: float = 0.0
    metrics: dict[str, float] = Field(default_factory=dict)
    imported_from: str | None = Field(
        None, exclude_if=lambda source: source is None, description="where it was imported from; parts that it lacks begin anew"
    )

    held: tuple[Held, ...] = Field(
        (), exclude_if=lambda held: not held, description="chunks that nodes have in memory, too; where they have not, the store has them"
    )

    @property
    def has_own_chunks(self) -> bool:
        """True if its chunks lie with its job."""
        return self.kind == "checkpoint/2"

    @property
    def shares(self) -> tuple[int, ...]:
        """By rank, the share of the data that it read."""
        return self.data_shares or tuple(range(self.world_size))

    @property
    def bytes_total(self) -> int:
        """Bytes of all distinct chunks."""
        return sum({c.sha256: c.size_bytes for c in self.chunks}.values())


class Deletion(_Model):
    """Operator's deletion of a checkpoint, as its event reports it."""

    user: str
    at_ms: int = Field(ge=0)


class Pruned(Entry):
    """Retention took this checkpoint, or an operator did; its place in the chain stays taken, with its epoch.

    `manifest`: of the checkpoint, until a sweep removes its bytes; if something turns out to refer to it, it is put back.
    """

    kind: Literal["pruned"] = "pruned"
    step: int = Field(ge=0)
    manifest: Manifest | None = Field(None, exclude_if=lambda manifest: manifest is None)
    deletion: Deletion | None = Field(None, exclude_if=lambda deletion: deletion is None, description="None where retention took it")


AnyEntry = Claim | Manifest | Pruned
_ENTRY: TypeAdapter[AnyEntry] = TypeAdapter(Annotated[AnyEntry, Field(discriminator="kind")])


def encode(entry: AnyEntry) -> bytes:
    """The entry with its checksum, as JSON."""
    body = _canonical(entry.model_dump(mode="json"))
    return b'{"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'","entry":' + body + b"}"


def decode(content: bytes, name: str) -> AnyEntry:
    """The entry. Raises DamagedError if it is not what was written, UnknownFormatError if it is but we are too old for it."""
    try:
        outer = orjson.loads(content)
        checksum, inner = outer["sha256"], outer["entry"]
        found = hashlib.sha256(_canonical(inner)).hexdigest()
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise DamagedError(f"{name}: no readable commit entry ({type(error).__name__})") from error
    if found != checksum:
        raise DamagedError(f"{name}: its checksum is {found[:12]}…, it says {str(checksum)[:12]}…")
    try:
        return _ENTRY.validate_python(inner)
    except ValidationError as error:
        version = inner.get("format") if isinstance(inner, dict) else None
        raise UnknownFormatError(
            f"{name}: intact, but of format {version}, kind unknown here; this program reads format {FORMAT}"
        ) from error


def _canonical(value: object) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
