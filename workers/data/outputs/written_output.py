"""An output of a job as its ranks see it: samples of this attempt, and named pieces that stay over attempts.

Holds: what is added without a piece counts for this attempt alone, since the next one begins anew; a named piece is there whole or not
at all, once, whichever attempt wrote it. Nothing is published here: the node's agent makes the version, once every rank has exited with
code 0.
"""

import mmap
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.events.model.dataset import NamedArtifact
from trainhouse.events.model.output_names import (
    piece_key,
    piece_profiles_key,
    pieces_prefix,
    rank_piece_key,
    staged_index_key,
    staged_shard_key,
    work_prefix,
)
from trainhouse.events.model.version_names import NAME_PATTERN
from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.outputs.piece_writer import TRAIN, PieceStore, PieceWriter
from trainhouse.workers.data.outputs.pieces import Piece, parsed_piece
from trainhouse.workers.data.outputs.written_once import put_record, read_record, without_turn
from trainhouse.workers.data.shards import Shard
from trainhouse.workers.data.shards.writer import MOST_BYTES


class OutputStore(Protocol):
    """Place of an output. All methods block."""

    def of_rank(self) -> "RankStore":
        """Place of what this rank writes outside of named pieces."""
        ...

    def of_piece(self, piece: str) -> PieceStore:
        """Place of a named piece."""
        ...

    def pieces(self) -> frozenset[str]:
        """Names of the pieces that are whole."""
        ...

    def work_prefix(self) -> str | None:
        """Prefix in the object store for what a job of several passes keeps between them; None for a folder."""
        ...


class RankStore(PieceStore, Protocol):
    """As PieceStore; a rank notes first that it has begun."""

    def begin(self) -> None:
        """Notes that there will be a record."""
        ...


class Output:
    """One output of one rank. `close`, or the end of the session, makes what was added whole."""

    def __init__(self, store: OutputStore, rank: int, shard_bytes: int = MOST_BYTES) -> None:
        self._store, self._rank, self._shard_bytes = store, rank, shard_bytes
        self._stream: PieceWriter | None = None
        self._made_with: tuple[NamedArtifact, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        elif self._stream is not None:
            self._stream.drop()

    def add(self, sample: Mapping[str, Any], *, key: str | None = None, split: str = TRAIN) -> None:
        """Write a sample of this attempt, as {"txt": "…", "json": {…}, "jpg": b"…"}. Keys are unique within a split. Blocks where a shard
        is full, and goes to the store. Raises InvalidDataError."""
        self._of_rank().add(sample, key=key, split=split)

    def add_files(self, path: str | Path, *, split: str = TRAIN) -> int:
        """Write the samples of a folder or a file, in any format that `trainhouse data publish` reads. Returns their number."""
        return self._of_rank().add_files(Path(path), split=split)

    def piece(self, name: str) -> PieceWriter:
        """Begin a named piece: a context manager with `add` and `add_files`. At the end of the block it is there, for all attempts.

        Where several write a piece of one name, the first that ends counts. Raises InvalidDataError.
        """
        if not re.fullmatch(NAME_PATTERN, name):
            raise InvalidDataError(f"piece {name[:128]!r}: its name must fit {NAME_PATTERN}")
        return PieceWriter(self._store.of_piece(name), name, self._shard_bytes, lambda: self._made_with)

    def made_with(self, name: str, sha256: str) -> None:
        """Name an artifact of the job's project that samples are made with, such as their tokenizer: the version's manifest names it, so
        that it stays, and `session.artifact(name)` of a job that reads the version finds it. Counts for pieces that end after it."""
        others = [each for each in self._made_with if each.name != name]
        self._made_with = tuple(sorted([*others, NamedArtifact(name=name, sha256=sha256)], key=lambda each: each.name))

    def pieces(self) -> frozenset[str]:
        """Names of the pieces that are there, of this attempt and earlier ones. Asks the store, and reads the record of each once."""
        return self._store.pieces()

    def work_prefix(self) -> str | None:
        """Prefix in the object store below which a job keeps what it makes between passes; None outside of Trainhouse."""
        return self._store.work_prefix()

    def close(self) -> None:
        """Make what was added whole. Blocks; a second call does nothing."""
        if self._stream is not None:
            self._stream.close()

    def _of_rank(self) -> PieceWriter:
        if self._stream is None:
            store = self._store.of_rank()
            store.begin()
            self._stream = PieceWriter(store, f"{self._rank:06d}", self._shard_bytes, lambda: self._made_with)
        return self._stream


@dataclass(frozen=True)
class JobOutputStore:
    """The output in the object store, below the job's own prefix. `whole`: pieces whose records were read; nothing replaces those."""

    objects: ObjectStore
    job_id: str
    output: str
    epoch: int
    rank: int
    whole: set[str] = field(default_factory=set, compare=False)

    def of_rank(self) -> RankStore:
        return _OfRank(self)

    def of_piece(self, piece: str) -> PieceStore:
        return _OfPiece(self, piece)

    def pieces(self) -> frozenset[str]:
        """Reads the record of each once: a piece that has torn ones alone is not there, since sealing raises for it."""
        prefix = pieces_prefix(self.job_id, self.output)
        listed = {without_turn(stat.key).removeprefix(prefix).removesuffix(".json") for stat in self.objects.list(prefix)}
        for name in sorted(listed - self.whole):
            if read_record(self.objects, piece_key(self.job_id, self.output, name), parsed_piece) is not None:
                self.whole.add(name)
        return frozenset(listed & self.whole)

    def work_prefix(self) -> str | None:
        return work_prefix(self.job_id, self.output)

    def send(self, shard: Shard, folder: Path) -> None:
        """The index first: a tar that is there has one."""
        for name, key in (
            (shard.index_name, staged_index_key(self.job_id, self.output, shard.sha256)),
            (shard.tar_name, staged_shard_key(self.job_id, self.output, shard.sha256)),
        ):
            path = folder / name
            stat = self.objects.stat(key)
            if stat is not None and stat.size_bytes == path.stat().st_size:
                continue
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content, memoryview(content) as body:
                self.objects.put(key, body)

    def profile(self, sha256: str, content: bytes) -> None:
        """Distributions of a piece, by their hash."""
        self.objects.put(piece_profiles_key(self.job_id, self.output, sha256), content)


@dataclass(frozen=True)
class _OfRank:
    output: JobOutputStore

    def begin(self) -> None:
        self._put(Piece(closed=False))

    def send(self, shard: Shard, folder: Path) -> None:
        self.output.send(shard, folder)

    def profile(self, sha256: str, content: bytes) -> None:
        self.output.profile(sha256, content)

    def record(self, piece: Piece) -> None:
        self._put(piece)

    def _put(self, piece: Piece) -> None:
        at = self.output
        at.objects.put(rank_piece_key(at.job_id, at.output, at.epoch, at.rank), piece.content())


@dataclass(frozen=True)
class _OfPiece:
    output: JobOutputStore
    piece: str

    def send(self, shard: Shard, folder: Path) -> None:
        self.output.send(shard, folder)

    def profile(self, sha256: str, content: bytes) -> None:
        self.output.profile(sha256, content)

    def record(self, piece: Piece) -> None:
        """The first one stays: two attempts may write a piece of one name."""
        at = self.output
        put_record(at.objects, piece_key(at.job_id, at.output, self.piece), piece.content(), parsed_piece)


@dataclass(frozen=True)
class FolderOutputStore:
    """The output of a program outside of Trainhouse: shards in a local folder, which `open_folder` reads."""

    folder: Path

    def of_rank(self) -> RankStore:
        return self

    def of_piece(self, piece: str) -> PieceStore:
        return _FolderPiece(self, piece)

    def pieces(self) -> frozenset[str]:
        return frozenset(path.stem for path in self.folder.glob("*.piece"))

    def work_prefix(self) -> str | None:
        return None

    def begin(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def send(self, shard: Shard, folder: Path) -> None:
        self.begin()
        for name in (shard.index_name, shard.tar_name):
            shutil.copyfile(folder / name, self.folder / name)

    def profile(self, sha256: str, content: bytes) -> None:
        pass

    def record(self, piece: Piece) -> None:
        pass


@dataclass(frozen=True)
class _FolderPiece:
    output: FolderOutputStore
    piece: str

    def send(self, shard: Shard, folder: Path) -> None:
        self.output.send(shard, folder)

    def profile(self, sha256: str, content: bytes) -> None:
        pass

    def record(self, piece: Piece) -> None:
        self.output.begin()
        (self.output.folder / f"{self.piece}.piece").write_bytes(piece.content())
