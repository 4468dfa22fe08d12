"""Pieces of an output: the record of one, and the manifest over all of them. Pure.

Holds: the manifest follows from the pieces and the job's id alone, in whatever order they are listed: equal pieces have one id, whichever
attempt wrote them.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

import orjson
from pydantic import Field

from trainhouse.events.model.absence import is_absent
from trainhouse.events.model.base import Model
from trainhouse.events.model.bounds import Count
from trainhouse.events.model.dataset import (
    MOST_ARTIFACTS,
    MOST_FIELDS,
    MOST_SHARDS,
    MOST_SPLITS,
    DataField,
    DataShard,
    DataSource,
    DataSplit,
    FieldStatistics,
    Manifest,
    NamedArtifact,
)
from trainhouse.events.model.dataset_names import FieldName, SplitName
from trainhouse.events.model.ids import JobId
from trainhouse.events.model.labels import Label, Sha256
from trainhouse.workers.data.errors import InvalidDataError

_SPLIT_RULE: Final = orjson.dumps({"by": "job"}).decode()


class PieceField(Model):
    """One field of a piece's samples."""

    samples: Count = Field(description="samples that have it")
    types: tuple[Label, ...] = Field(description="types seen, sorted")


class PieceSplit(Model):
    """Samples of one split in a piece."""

    shards: tuple[DataShard, ...] = Field((), max_length=MOST_SHARDS, description="shards, in the order of writing")
    statistics: dict[FieldName, FieldStatistics] = Field(default_factory=dict, max_length=MOST_FIELDS)


class Piece(Model):
    """Record of a piece. `closed`: it is whole; a rank that is still writing has an open one."""

    closed: bool = True
    splits: dict[SplitName, PieceSplit] = Field(default_factory=dict, max_length=MOST_SPLITS)
    fields: dict[FieldName, PieceField] = Field(default_factory=dict, max_length=MOST_FIELDS)
    artifacts: tuple[NamedArtifact, ...] = Field((), max_length=MOST_ARTIFACTS, exclude_if=is_absent)
    profiles: Sha256 | None = Field(None, description="hash of its distributions; null: it has none")

    @property
    def samples(self) -> int:
        """Samples of all splits."""
        return sum(shard.samples for split in self.splits.values() for shard in split.shards)

    def content(self) -> bytes:
        """The bytes of its record, equal for equal pieces."""
        return orjson.dumps(self.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)


def parsed_piece(content: bytes) -> Piece:
    """The piece of a record. Raises ValueError."""
    return Piece.model_validate(orjson.loads(content))


def manifest_of(
    job_id: str, output: str, named: Mapping[str, Piece], of_ranks: Mapping[int, Piece], purposes: tuple[str, ...] = ()
) -> Manifest:
    """The manifest of an output: named pieces by their names, then what ranks wrote beside them. Raises InvalidDataError; ValueError where
    a figure or a name in the pieces exceeds its bound."""
    unfinished = sorted(rank for rank, piece in of_ranks.items() if not piece.closed)
    if unfinished:
        raise InvalidDataError(
            f"rank {unfinished[0]} exited with code 0 and had not closed output {output}: let its session end, or call its close()"
        )
    pieces = [named[name] for name in sorted(named)] + [of_ranks[rank] for rank in sorted(of_ranks)]
    splits = dict[str, DataSplit]()
    for name in sorted({name for piece in pieces for name, split in piece.splits.items() if split.shards}):
        splits[name] = _split([piece.splits[name] for piece in pieces if name in piece.splits])
    if not splits:
        raise InvalidDataError(f'output {output} has no sample: write some to session.output("{output}"), or leave it out of the spec')
    if len(splits) > MOST_SPLITS:
        raise InvalidDataError(f"output {output} has {len(splits)} splits, and a version has {MOST_SPLITS} at most; write fewer")
    fields = _fields(output, pieces)
    hashes = [shard.sha256 for name in sorted(splits) for shard in splits[name].shards]
    source = DataSource(
        kind="job",
        sha256=hashlib.sha256("\n".join(hashes).encode()).hexdigest(),
        bytes=sum(split.bytes for split in splits.values()),
        files=sum(1 for piece in pieces if piece.samples),
        job=JobId.parse(job_id),
    )
    artifacts = _artifacts(output, pieces)
    return Manifest.of(fields, splits, _SPLIT_RULE, sources=(source,), purposes=tuple(sorted(set(purposes))), artifacts=artifacts)


def _artifacts(output: str, pieces: Iterable[Piece]) -> tuple[NamedArtifact, ...]:
    found = dict[str, NamedArtifact]()
    for named in (each for piece in pieces for each in piece.artifacts):
        if found.setdefault(named.name, named) != named:
            raise InvalidDataError(f"pieces of output {output} were made with two artifacts called {named.name}; write it anew with one")
    return tuple(found[name] for name in sorted(found))


def _split(parts: Iterable[PieceSplit]) -> DataSplit:
    parts = list(parts)
    shards = tuple(shard for part in parts for shard in part.shards)
    if len(shards) > MOST_SHARDS:
        raise InvalidDataError(f"a split of {len(shards)} shards, and a version has {MOST_SHARDS} at most; write larger ones")
    statistics = dict[str, FieldStatistics]()
    for part in parts:
        for name, figures in part.statistics.items():
            known = statistics.get(name)
            statistics[name] = figures if known is None else _added(known, figures)
    return DataSplit(
        shards=shards,
        samples=sum(shard.samples for shard in shards),
        bytes=sum(shard.bytes for shard in shards),
        statistics=dict(sorted(statistics.items())),
    )


def _added(one: FieldStatistics, other: FieldStatistics) -> FieldStatistics:
    return FieldStatistics(
        samples=one.samples + other.samples,
        bytes=one.bytes + other.bytes,
        least_bytes=min(one.least_bytes, other.least_bytes),
        most_bytes=max(one.most_bytes, other.most_bytes),
    )


def _fields(output: str, pieces: Iterable[Piece]) -> tuple[DataField, ...]:
    counts, types, samples = dict[str, int](), dict[str, set[str]](), 0
    for piece in pieces:
        samples += piece.samples
        for name, field in piece.fields.items():
            counts[name] = counts.get(name, 0) + field.samples
            types.setdefault(name, set()).update(field.types)
    if len(counts) > MOST_FIELDS:
        raise InvalidDataError(f"output {output} has {len(counts)} different fields, and a version has {MOST_FIELDS} at most; write fewer")
    return tuple(DataField(name=name, type="|".join(sorted(types[name])), optional=counts[name] < samples) for name in sorted(counts))
