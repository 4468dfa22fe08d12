"""Numbers that no column holds: a job's program, or an agent, may tell any, and as many as it likes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from trainhouse.events import CheckpointCompleted
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import HEADERS, encode
from trainhouse.events.wire.envelope import Envelope, envelope_of
from trainhouse.projections.ingest.builders.event_builder import FactsBuilder
from trainhouse.projections.record import Record, Row
from trainhouse.projections.rows.dead_letters import unreadable_row
from trainhouse.projections.store.schema import TIME, out_of_range
from trainhouse.projections.store.tables import DEAD_LETTERS_TABLE

COMMITS = pa.schema(
    [("commit", pa.int64()), ("source_topic", pa.string()), ("source_partition", pa.int64()), ("source_offset", pa.int64())]
)
LETTER = unreadable_row(Record("t", 0, 0, 1, None, b"{}"), "why").values
LETTERS = pa.schema([(name, pa.int64() if isinstance(value, int) else pa.string()) for name, value in LETTER.items()])
MANY = 200


def record(offset: int, commit: int) -> Record:
    """A checkpoint as a rank tells of it."""
    told = {
        "job_id": "j",
        "attempt": 0,
        "epoch": 1,
        "at_ms": 1,
        "commit": commit,
        "step": 1,
        "uri": "s3://b",
        "bytes_total": 1,
        "bytes_new": 1,
    }
    event = CheckpointCompleted.model_validate(told)
    return Record(topics.CHECKPOINTS, 0, offset, 1, None, encode(envelope_of(event, id=f"e{offset}", source="s", now_ms=1)), HEADERS)


def builder(value_of: Any = lambda commit: commit) -> FactsBuilder:
    """One table of commits; `value_of`: what the projection makes of one."""

    def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
        assert isinstance(envelope.event, CheckpointCompleted)
        yield Row("commits", {"commit": value_of(envelope.event.commit)})

    return FactsBuilder({topics.CHECKPOINTS: [rows]}, {"commits": COMMITS, DEAD_LETTERS_TABLE: LETTERS})


def test_any_number_of_numbers_that_no_column_holds_stops_nothing() -> None:
    built = builder(lambda commit: 2**63 + commit if commit % 5 else commit).build([record(n, n) for n in range(MANY)], {})
    assert built.tables["commits"]["commit"].to_pylist() == [*range(0, MANY, 5)]
    assert built.tables[DEAD_LETTERS_TABLE].num_rows == built.unreadable == MANY - MANY // 5


def test_rows_that_our_own_code_makes_wrong_are_set_aside_alone_and_said() -> None:
    def value_of(commit: int) -> Any:
        return str(commit) if commit % 2 else commit

    with capture_logs() as said:
        built = builder(value_of).build([record(n, n) for n in range(MANY)], {})
    assert built.tables["commits"]["commit"].to_pylist() == [*range(0, MANY, 2)]
    assert built.unreadable == MANY // 2
    assert [(line["topic"], line["records"]) for line in said] == [(topics.CHECKPOINTS, MANY // 2)]


@pytest.mark.parametrize(
    ("kind", "fits", "too_great"),
    [
        (pa.int64(), (-(2**63), 2**63 - 1, None), (2**63, -(2**63) - 1)),
        (pa.uint32(), (0, 2**32 - 1), (-1, 2**32)),
        (TIME, (0, 2**62), (2**63,)),
        (pa.list_(pa.uint32()), ((), [1, 2], None), ([1, -1],)),
        (pa.map_(pa.uint8(), pa.float32()), ({1: 0.5}, {}), ({256: 0.5},)),
        (pa.float64(), (1e300, 2**70), ()),
        (pa.string(), ("9" * 40, 2**70), ()),
    ],
)
def test_what_a_column_holds(kind: pa.DataType, fits: tuple[Any, ...], too_great: tuple[Any, ...]) -> None:
    assert [out_of_range(value, kind) for value in (*fits, *too_great)] == [False] * len(fits) + [True] * len(too_great)
