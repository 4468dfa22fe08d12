"""One unit of work of a preparation: the rows of one shard of the source, read, prepared, and written as one piece of the output.

Holds: what becomes of a unit follows from its rows, the preparation, the tokenizer and the moments alone, so that it is the same whichever
rank and attempt does it.
"""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import numpy as np

from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.outputs.piece_writer import PieceWriter
from trainhouse.workers.data.prepare.preparation import Preparation
from trainhouse.workers.data.prepare.row_steps import ColumnMoments, Row, place_in_shuffle, prepared_row, split_of
from trainhouse.workers.data.publishing.sample_fields import JSON, Fields
from trainhouse.workers.data.publishing.sample_schema import columns_of
from trainhouse.workers.data.publishing.split_rule import SplitRule
from trainhouse.workers.data.sharded_dataset import KEY

BATCH = 256


class Encoder(Protocol):
    """Part of a tokenizer that is needed: that of Hugging Face's."""

    def encode_batch(self, input: list[str]) -> Sequence[Any]: ...


@dataclass(frozen=True)
class PreparedRow:
    """A row that stays: its key, its split, its columns, and the fields beside `json`."""

    key: str
    split: str
    row: Row
    others: Fields
    where: str


@dataclass
class Counts:
    """Rows that were read, and those that were written."""

    read: int = 0
    written: int = 0

    def added(self, other: "Counts") -> "Counts":
        return Counts(self.read + other.read, self.written + other.written)


class UnitSteps:
    """The steps of one preparation. `encoder`: where it tokenises."""

    def __init__(self, rules: Preparation, encoder: Encoder | None = None) -> None:
        self.rules, self._encoder = rules, encoder
        self._split = None if rules.split is None else SplitRule.parse(rules.split.shares, rules.split.by)

    def moments(self, samples: Iterable[Mapping[str, Any]], split: str) -> ColumnMoments:
        """Moments of a unit's rows of the split train. Raises InvalidDataError."""
        found = ColumnMoments(self.rules.normalise)
        for row in self._rows(samples, split, Counts()):
            found.add(row.row, row.split, row.where)
        return found

    def write(self, samples: Iterable[Mapping[str, Any]], split: str, moments: ColumnMoments, piece: PieceWriter) -> Counts:
        """Writes a unit's rows. `split`: of the source. Raises InvalidDataError."""
        counts = Counts()
        rows: Iterable[PreparedRow] = self._rows(samples, split, counts)
        seed = self.rules.shuffle
        if seed is not None:
            rows = sorted(rows, key=lambda row: place_in_shuffle(seed, row.key))
        source = iter(rows)
        while batch := list(islice(source, BATCH)):
            for row, fields in zip(batch, self._fields(batch, moments), strict=True):
                piece.add(fields, key=row.key, split=row.split)
                counts.written += 1
        return counts

    def _rows(self, samples: Iterable[Mapping[str, Any]], split: str, counts: Counts) -> Iterator[PreparedRow]:
        for sample in samples:
            counts.read += 1
            key = str(sample[KEY])
            fields = {name: content for name, content in sample.items() if name != KEY}
            where = f"sample {key!r} of {self.rules.source}"
            row = columns_of(key, fields)
            if row is None:
                raise InvalidDataError(f"{where} has no object in its field json; prepare reads rows, as of JSONL, CSV and Parquet")
            kept = prepared_row(row, self.rules, where)
            if kept is not None:
                own = split if self._split is None else split_of(kept, self._split, where)
                fields.pop(JSON)
                yield PreparedRow(key, own, kept, fields, where)

    def _fields(self, batch: Sequence[PreparedRow], moments: ColumnMoments) -> Iterator[dict[str, Any]]:
        step = self.rules.tokenise
        tokens: Sequence[bytes | None] = [None] * len(batch)
        if step is not None:
            tokens = self._tokens([self._text(row, step.column) for row in batch], step.most_tokens)
        for row, content in zip(batch, tokens, strict=True):
            columns = moments.normalised(row.row, row.where)
            fields: dict[str, Any] = dict(row.others)
            if step is not None and content is not None:
                fields[f"{step.into}.npy"] = content
                if not step.keep_text:
                    columns.pop(step.column)
            yield {JSON: columns} | fields

    def _text(self, row: PreparedRow, column: str) -> str:
        text = row.row.get(column)
        if not isinstance(text, str):
            raise InvalidDataError(f"{row.where} has no text {column} to tokenise; check for it")
        return text

    def _tokens(self, texts: list[str], most: int | None) -> list[bytes]:
        assert self._encoder is not None, "a preparation that tokenises has a tokenizer"
        found = []
        for encoded in self._encoder.encode_batch(texts):
            file = io.BytesIO()
            np.save(file, np.array(encoded.ids[:most], dtype="<u4"), allow_pickle=False)
            found.append(file.getvalue())
        return found
