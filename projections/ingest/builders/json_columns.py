"""Reads high-volume records (metrics, log lines) without a model per record: JSON straight to columns.

Holds: a record is trimmed by its stream's high-water mark, at the offsets of its points or lines; what is damaged is told apart.
Never: builds a pydantic model, or a Python object per value beyond what the JSON parser makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import structlog

from trainhouse.events.model.errors import InvalidEvent
from trainhouse.events.model.ids import Name
from trainhouse.events.wire.codec import parse_json, split
from trainhouse.projections.ingest.placements import Attempt
from trainhouse.projections.ingest.senders import Claim, Senders
from trainhouse.projections.record import Record, Row
from trainhouse.projections.rows.dead_letters import unreadable_row

log = structlog.get_logger(__name__)


class DamagedError(Exception):
    """The record is no event of the expected type; the message says why."""


DAMAGE = (DamagedError, InvalidEvent, ValueError, TypeError, OverflowError, LookupError, AttributeError)


@dataclass(slots=True)
class Cut:
    """One record's data and the stream that it was cut from."""

    record: Record
    data: dict[str, Any]
    stream: str


def parse(record: Record, event_type: str) -> Cut:
    """The data of a record of `event_type`. Raises one of DAMAGE."""
    if record.value is None:
        raise DamagedError("the record has no value")
    whole = parse_json(record.value)
    data = whole.get("data") if isinstance(whole, dict) else None
    if data is None or "specversion" not in whole:
        whole, data = split(record.value, record.headers)  # the binary mode, and what is no CloudEvent at all
    if whole.get("type") != event_type:
        raise DamagedError(f"type {whole.get('type')!r} does not belong on this topic; expected {event_type}")
    for name in ("job_id", "node_id"):
        if not isinstance(data[name], str) or not Name.pattern.fullmatch(data[name]):
            raise DamagedError(f"{name} is no id")
    for name in ("attempt", "epoch", "rank"):
        if type(data[name]) is not int or not 0 <= data[name] < 2**32:
            raise DamagedError(f"{name} is no count")
    for name in ("start", "end"):
        if type(data[name]) is not int or not 0 <= data[name] < 2**63:
            raise DamagedError(f"{name} is no byte offset")
    file = data.get("stream", "metrics")
    if not isinstance(file, str):
        raise DamagedError("stream is no text")
    return Cut(record, data, f"{data['job_id']}/{data['epoch']}/{data['rank']}/{file}")


def first_new(cut: Cut, mark: int) -> int:
    """Index of the first point or line at or beyond the mark. Raises DamagedError when offsets do not ascend."""
    data = cut.data
    if mark <= data["start"]:
        return 0
    offsets = data["offsets"]
    if mark >= data["end"]:
        return len(offsets)
    at = np.array(offsets, dtype=np.int64)
    if at.size and bool(np.any(at[1:] < at[:-1])):
        raise DamagedError("offsets do not ascend")
    return int(np.searchsorted(at, mark))


class Sifter:
    """Parses the records of a batch, once, and tells apart what counts; those of `judged` (a topic) by who sent them too."""

    def __init__(self, event_type: str, judged: str, senders: Senders) -> None:
        self._event_type = event_type
        self._judged = judged
        self._senders = senders
        self._batch: Sequence[Record] | None = None
        self._cuts: list[Cut] = []
        self._letters: list[Row] = []
        self._counted: tuple[list[Cut], list[Row]] | None = None

    def ready(self, records: Sequence[Record], stop: Event) -> bool:
        """Waits until it is known who may have sent the records; False where `stop` was set before. Blocks; raises BusUnavailableError."""
        self._parse(records)
        return self._senders.known([_claim(cut) for cut in self._cuts if cut.record.topic == self._judged], stop)

    def sifted(self, records: Sequence[Record]) -> tuple[list[Cut], list[Row]]:
        """Returns the records that count, and dead letters for the rest. Blocks; raises BusUnavailableError."""
        self._parse(records)
        if self._counted is None:
            claims = [_claim(cut) for cut in self._cuts if cut.record.topic == self._judged]
            refused = {id(c.record): why for c, why in zip(claims, self._senders.refusals(claims), strict=True) if why}
            if refused:
                log.warning(
                    "records of others than a job's nodes became dead letters", count=len(refused), first=next(iter(refused.values()))
                )
            cuts = [cut for cut in self._cuts if id(cut.record) not in refused]
            bad = [cut for cut in self._cuts if id(cut.record) in refused]
            letters = [unreadable_row(cut.record, refused[id(cut.record)], cut.data["job_id"]) for cut in bad]
            self._counted = (cuts, self._letters + letters)
        return self._counted

    def take(self, records: Sequence[Record]) -> tuple[list[Cut], list[Row]]:
        """The same, and keeps nothing of the batch."""
        found = self.sifted(records)
        self._batch, self._cuts, self._letters, self._counted = None, [], [], None
        return found

    def _parse(self, records: Sequence[Record]) -> None:
        if self._batch is records:
            return
        self._batch, self._cuts, self._letters, self._counted = records, [], [], None
        for record in records:
            try:
                self._cuts.append(parse(record, self._event_type))
            except DAMAGE as error:
                self._letters.append(unreadable_row(record, f"{type(error).__name__}: {error}"))


def _claim(cut: Cut) -> Claim:
    data = cut.data
    return Claim(cut.record, Attempt(data["job_id"], data["epoch"], data["attempt"]), data["node_id"])


class Runs:
    """Columns whose values repeat over runs of rows: one value and one length a run."""

    def __init__(self, names: Sequence[str]) -> None:
        self._values: dict[str, list[Any]] = {name: [] for name in names}
        self.lengths: list[int] = []

    def add(self, length: int, *values: Any) -> None:
        """One run; values in the order of the names."""
        self.lengths.append(length)
        for column, value in zip(self._values.values(), values, strict=True):
            column.append(value)

    def text(self, name: str) -> pa.DictionaryArray:
        """A text column, as codes and distinct values."""
        distinct: dict[str, int] = {}
        codes = [distinct.setdefault(v, len(distinct)) for v in self._values[name]]
        repeated = np.repeat(np.array(codes, dtype=np.int32), self.lengths)
        return pa.DictionaryArray.from_arrays(pa.array(repeated), pa.array(list(distinct), type=pa.string()))

    def number(self, name: str, dtype: npt.DTypeLike) -> pa.Array:
        """A number column."""
        return pa.array(np.repeat(np.array(self._values[name], dtype=dtype), self.lengths))
