"""Both passes over one unit of work: samples of the source to prepared rows, and prepared rows to shards of the output.

Holds: what becomes of a unit follows from its samples, the preparation and the tokenizer alone, and what becomes of a piece from its rows
and the moments of all: it is the same whichever rank and attempt does it.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from mmap import ACCESS_READ, mmap
from typing import Any

import numpy as np
import orjson

from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.outputs.piece_writer import PieceWriter
from trainhouse.workers.data.prepare.preparation import Preparation
from trainhouse.workers.data.prepare.row_runs import Run, RunWriter, StoredRow, UnitRecord, WorkStore, read_row, row_heads
from trainhouse.workers.data.prepare.row_steps import ColumnMoments, Row, place_in_shuffle, prepared_row, split_of
from trainhouse.workers.data.prepare.shard_plan import RUNS_PER_SHARD, PlannedPiece, bucket_count, bucket_of, planned_pieces
from trainhouse.workers.data.prepare.source_units import SourceUnit
from trainhouse.workers.data.prepare.tokens import Encoder, token_fields
from trainhouse.workers.data.publishing.sample_fields import JSON, Fields, canonical
from trainhouse.workers.data.publishing.sample_schema import columns_of
from trainhouse.workers.data.publishing.split_rule import SplitRule
from trainhouse.workers.data.sharded_dataset import KEY

BATCH = 256


@dataclass(frozen=True)
class PreparedRow:
    """A row that stays: its key, its split, its columns, and the fields beside `json`."""

    key: str
    split: str
    row: Row
    others: Fields
    where: str


class UnitSteps:
    """The steps of one preparation. `encoder`: where it tokenises."""

    def __init__(self, rules: Preparation, encoder: Encoder | None = None) -> None:
        self.rules, self._encoder = rules, encoder
        self._split = None if rules.split is None else SplitRule.parse(rules.split.shares, rules.split.by)

    @property
    def shard_bytes(self) -> float:
        """Size of shards."""
        return self.rules.shard_mib * 2**20

    def keep(self, samples: Iterable[tuple[str, Mapping[str, Any]]], source_bytes: int, work: WorkStore, unit: SourceUnit) -> UnitRecord:
        """First pass: a unit's rows, all steps done but normalising, and the moments for that. `source_bytes`: of the whole source.
        Blocks. Raises InvalidDataError."""
        moments = ColumnMoments(self.rules.normalise)
        buckets = _Buckets(self.rules.shuffle, source_bytes, self.shard_bytes)
        rows = self._rows(samples)
        with RunWriter() as kept:
            while batch := list(islice(rows, BATCH)):
                for row in batch:
                    moments.add(row.row, row.split, row.where)
                for row, fields in zip(batch, self._fields(batch), strict=True):
                    place, bucket = buckets.of(row.split, row.key)
                    buckets.added(row.split, kept.add(row.split, bucket, place, row.key, fields))
            return kept.send(work, unit.name, unit.samples, moments.of)

    def write(
        self, planned: PlannedPiece, units: Sequence[SourceUnit], work: WorkStore, moments: ColumnMoments, piece: PieceWriter
    ) -> None:
        """Second pass: the rows of a piece, in their order, cut into its shards. Blocks. Raises InvalidDataError,
        DamagedShardError."""
        share, at, line, keys = planned.shard_bytes / planned.shards, 0, 1, dict[str, int]()
        for row in _stored_rows(planned, units, work, shuffled=self.rules.shuffle is not None):
            if line < planned.shards and keys and at + row.shard_bytes / 2 > line * share:
                piece.cut(planned.split)
                line, keys = line + 1, {}
            fields = self._normalised(row, moments)
            piece.add(fields, key=_own_key(row.key, keys), split=planned.split)
            at += row.shard_bytes

    def _rows(self, samples: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[PreparedRow]:
        for split, sample in samples:
            key = str(sample[KEY])
            fields = {name: content for name, content in sample.items() if name != KEY}
            where = self._where(key)
            row = columns_of(key, fields)
            if row is None:
                raise InvalidDataError(f"{where} has no object in its field json; prepare reads rows, as of JSONL, CSV and Parquet")
            kept = prepared_row(row, self.rules, where)
            if kept is not None:
                own = split if self._split is None else split_of(kept, self._split, where)
                fields.pop(JSON)
                yield PreparedRow(key, own, kept, fields, where)

    def _where(self, key: str) -> str:
        return f"sample {key!r} of {self.rules.source}"

    def _fields(self, batch: Sequence[PreparedRow]) -> Iterator[Fields]:
        step = self.rules.tokenise
        tokens: Sequence[bytes | None] = [None] * len(batch)
        if step is not None:
            assert self._encoder is not None, "a preparation that tokenises has a tokenizer"
            tokens = token_fields(self._encoder, [self._text(row, step.column) for row in batch], step.most_tokens)
        for row, content in zip(batch, tokens, strict=True):
            columns, fields = row.row, dict(row.others)
            if step is not None and content is not None:
                fields[f"{step.into}.npy"] = content
                if not step.keep_text:
                    columns = {name: value for name, value in columns.items() if name != step.column}
            yield {JSON: canonical(columns)} | fields

    def _normalised(self, row: StoredRow, moments: ColumnMoments) -> Fields:
        if not moments.columns:
            return row.fields
        columns = moments.normalised(orjson.loads(row.fields[JSON]), self._where(row.key))
        return row.fields | {JSON: canonical(columns)}

    def _text(self, row: PreparedRow, column: str) -> str:
        text = row.row.get(column)
        if not isinstance(text, str):
            raise InvalidDataError(f"{row.where} has no text {column} to tokenise; check for it")
        return text


def moments_of(records: list[UnitRecord], rules: Preparation) -> ColumnMoments:
    """Moments over all units."""
    found = ColumnMoments(rules.normalise)
    for record in records:
        found = found.merged(ColumnMoments(rules.normalise, record.moments_of()))
    return found


def pieces_of(records: list[UnitRecord], steps: UnitSteps) -> list[PlannedPiece]:
    """Pieces of the output."""
    return planned_pieces([record.runs for record in records], steps.shard_bytes, shuffled=steps.rules.shuffle is not None)


class _Buckets:
    """Bucket of each row of a unit: by the hash of its key, or, where nothing is shuffled, one after another as they are full."""

    def __init__(self, seed: int | None, source_bytes: int, shard_bytes: float) -> None:
        self._seed, self._count = seed, bucket_count(source_bytes, shard_bytes)
        self._most_bytes = shard_bytes / RUNS_PER_SHARD
        self._under_way = dict[str, tuple[int, int]]()

    def of(self, split: str, key: str) -> tuple[int, int]:
        """Place in the shuffle, and the bucket."""
        if self._seed is None:
            return 0, self._under_way.get(split, (0, 0))[0]
        place = place_in_shuffle(self._seed, key)
        return place, bucket_of(place, self._count)

    def added(self, split: str, size: int) -> None:
        """Counts the bytes of a row."""
        if self._seed is None:
            bucket, held = self._under_way.get(split, (0, 0))
            self._under_way[split] = (bucket + 1, 0) if held + size >= self._most_bytes else (bucket, held + size)


def _stored_rows(planned: PlannedPiece, units: Sequence[SourceUnit], work: WorkStore, *, shuffled: bool) -> Iterator[StoredRow]:
    """The rows of a piece in their order: of its units one by one, or by their places in the shuffle. Off a file without a name, so that
    memory has 24 bytes a row alone."""
    with tempfile.TemporaryFile() as file:
        parts, at = list[np.ndarray[Any, np.dtype[np.uint64]]](), 0
        for number, runs in _neighbours(planned.runs):
            content = work.runs(units[number].name, runs)
            heads = np.array(list(row_heads(content)), np.uint64)
            heads[:, 1] += np.uint64(at)
            parts.append(heads)
            at += file.write(content)
        file.flush()
        rows = np.concatenate(parts)
        if shuffled:
            rows = rows[np.argsort(rows[:, 0], kind="stable")]
        with mmap(file.fileno(), 0, access=ACCESS_READ) as kept:
            for _, start, length in rows.tolist():
                yield read_row(kept[start : start + length])


def _neighbours(runs: Iterable[tuple[int, Run]]) -> Iterator[tuple[int, list[Run]]]:
    """Runs by unit, in the order of units; those that lie one after another together, so that they are one request."""
    for number, of_unit in groupby(sorted(runs, key=lambda each: (each[0], each[1].offset)), key=lambda each: each[0]):
        found = list[Run]()
        for _, run in of_unit:
            if found and found[-1].offset + found[-1].bytes != run.offset:
                yield number, found
                found = []
            found.append(run)
        yield number, found


def _own_key(key: str, taken: dict[str, int]) -> str:
    """The key, with a number behind it where another sample of the shard has it: shards of the source may have samples of one key.
    `taken`: by key that a sample of the shard has, the number that the next one of this key may get."""
    number = taken.get(key)
    if number is None:
        taken[key] = 2
        return key
    while (own := f"{key}-{number}") in taken:
        number += 1
    taken[key], taken[own] = number + 1, 2
    return own
