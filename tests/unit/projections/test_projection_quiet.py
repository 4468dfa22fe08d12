"""A lane keeps records that make no row back, and loses none of them: what is written then is what a replay would read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Event
from typing import Any

import pyarrow as pa

from tests.support.fakes.memory_source import MemoryLog, MemorySource
from trainhouse.projections.ingest import lane as lane_module
from trainhouse.projections.ingest.builders.row_batch import Built
from trainhouse.projections.ingest.lane import Lane, Pace
from trainhouse.projections.record import Record

TOPIC = "journal"


class Inserts:
    """A ClickHouse that only notes what is inserted."""

    def __init__(self) -> None:
        self.made: list[tuple[str, pa.Table]] = []

    def command(self, sql: str) -> None:
        raise AssertionError(sql)

    def rows(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        return []

    def insert(self, table: str, data: pa.Table, token: str) -> None:
        self.made.append((table, data))

    def close(self) -> None:
        pass

    def tables(self) -> list[str]:
        return [table for table, _ in self.made]

    def begun(self) -> list[tuple[int, int]]:
        """The offsets of all batches, as they were written before their rows."""
        found = [row for table, data in self.made if table == "positions" for row in data.to_pylist()]
        return [(row["from_offset"], row["to_offset"]) for row in found if not row["done"]]

    def done(self) -> list[int]:
        """Ends of the batches that are done."""
        found = [row for table, data in self.made if table == "positions" for row in data.to_pylist()]
        return [row["to_offset"] for row in found if row["done"]]


class Counting:
    """Makes a row of `row` alone; its mark counts all records, and what is built says from which mark on."""

    def ready(self, records: Sequence[Record], stop: Event) -> bool:
        return True

    def streams(self, records: Sequence[Record]) -> list[str]:
        return [TOPIC]

    def build(self, records: Sequence[Record], marks: dict[str, int]) -> Built:
        rows = [marks[TOPIC] + i + 1 for i, record in enumerate(records) if record.value == b"row"]
        return Built({"numbers": pa.table({"n": rows})} if rows else {}, {TOPIC: marks[TOPIC] + len(records)})


class Ending(MemorySource):
    """One record a poll; sets `stop` once it has polled in vain for `idle` times."""

    def __init__(self, log: MemoryLog, stop: Event, idle: int) -> None:
        super().__init__(log, 1)
        self._stop = stop
        self._idle = idle

    def poll(self, linger_s: float) -> list[Record]:
        found = super().poll(linger_s)
        self._idle -= not found
        if self._idle < 0:
            self._stop.set()
        return found


def ran(values: list[bytes], quiet_s: float, idle: int = 0, done_s: float = 0.0) -> tuple[Inserts, Lane]:
    log, stop, inserts = MemoryLog(), Event(), Inserts()
    for value in values:
        log.append(TOPIC, value)
    lane = Lane("journal", Ending(log, stop, idle), inserts, Counting(), Pace(0, 0), quiet_s=quiet_s, done_s=done_s)
    lane.recover()
    lane.run(stop)
    return inserts, lane


def test_what_makes_no_row_goes_in_with_the_next_that_does() -> None:
    inserts, lane = ran([b"", b"", b"", b"row", b""], quiet_s=60)
    assert inserts.begun() == [(0, 4), (4, 5)]
    assert [data.to_pylist() for table, data in inserts.made if table == "numbers"] == [[{"n": 4}]]
    assert lane.next_offsets == {(TOPIC, 0): 5}


def test_without_it_each_is_written_at_once() -> None:
    inserts, _ = ran([b"", b"", b"row"], quiet_s=0)
    assert inserts.begun() == [(0, 1), (1, 2), (2, 3)]


def test_it_is_kept_for_a_while_alone() -> None:
    inserts, _ = ran([b"", b""], quiet_s=1e-9)
    assert inserts.begun() == [(0, 2)]


def test_what_is_kept_has_a_bound() -> None:
    count = lane_module.MAX_KEPT_RECORDS
    inserts, _ = ran([b""] * (2 * count + 2), quiet_s=60)
    assert inserts.begun() == [(0, count + 1), (count + 1, 2 * count + 2)]


def test_a_rows_position_is_done_though_the_rest_is_kept() -> None:
    inserts, _ = ran([b"row", b""], quiet_s=60)
    assert inserts.tables() == ["positions", "numbers", "high_water", "positions", "positions", "high_water", "positions"]


def test_the_done_of_a_batch_is_one_insert_with_the_next_intent() -> None:
    at_once, _ = ran([b"row", b"", b"row"], quiet_s=60)
    inserts, _ = ran([b"row", b"", b"row"], quiet_s=60, done_s=60)
    assert at_once.tables() == ["positions", "numbers", "high_water", "positions"] * 2
    assert inserts.tables() == ["positions", "numbers", "high_water"] * 2 + ["positions"]
    assert at_once.done() == inserts.done() == [1, 3]


def test_a_done_waits_so_long_alone() -> None:
    inserts, _ = ran([b"row", b""], quiet_s=60, done_s=1e-9)
    assert inserts.tables() == ["positions", "numbers", "high_water", "positions", "positions", "high_water", "positions"]


def test_how_far_it_has_read_counts_what_is_kept() -> None:
    log, inserts = MemoryLog(), Inserts()
    log.append(TOPIC, b"")
    stop = Event()
    seen: list[dict[tuple[str, int], int]] = []

    class Looking(Ending):
        def poll(self, linger_s: float) -> list[Record]:
            seen.append(lane.next_offsets)
            return super().poll(linger_s)

    lane = Lane("journal", Looking(log, stop, 0), inserts, Counting(), Pace(0, 0), quiet_s=60)
    lane.recover()
    lane.run(stop)
    assert seen[1] == {(TOPIC, 0): 1}
