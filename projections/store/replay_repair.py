"""Makes an appended table whole after the replay of a batch: counts its rows, and if they do not add up, writes them anew.

Why the tokens alone are not enough: the engine notes a block's token before the block's part appears, so a process killed between
the two leaves a token without rows, and a replay with that token inserts nothing.
Holds: safe to interrupt: until the batch is done, the next start counts again.
"""

from __future__ import annotations

import pyarrow as pa

from trainhouse.projections.errors import ProjectionError
from trainhouse.projections.store.clickhouse import ClickHouse
from trainhouse.projections.store.positions import Batch, Range
from trainhouse.projections.store.rollups import POINTS

MAX_ROUNDS = 3


def make_whole(clickhouse: ClickHouse, table: str, rows: pa.Table, batch: Batch) -> bool:
    """True when the table had to be repaired. `rows` are all that the batch gives it. Blocks. Raises ProjectionError."""
    for round_number in range(MAX_ROUNDS):
        found = _count(clickhouse, table, batch)
        if found == rows.num_rows:
            return round_number > 0
        for r in batch.ranges:
            clickhouse.command(f"ALTER TABLE {table} DELETE WHERE {_where(table, r)} SETTINGS mutations_sync = 2")
        # A fresh token: the old one may be noted already. It is derived from what was found, so that two rounds differ.
        clickhouse.insert(table, rows, batch.token(f"{table}:repair-{round_number}-{found}-{_parts(clickhouse)}"))
    found = _count(clickhouse, table, batch)
    if found == rows.num_rows:
        return True
    raise ProjectionError(f"{table}: batch {batch.number} has {found} rows instead of {rows.num_rows} after {MAX_ROUNDS} repairs")


def _count(clickhouse: ClickHouse, table: str, batch: Batch) -> int:
    where = " OR ".join(f"({_where(table, r)})" for r in batch.ranges)
    return int(clickhouse.rows(f"SELECT count() FROM {table} WHERE {where}")[0][0])


def _where(table: str, r: Range) -> str:
    # Of one table alone the rows are of several topics.
    topic = f"source_topic = '{r.topic}' AND " if table == POINTS else ""
    return f"{topic}source_partition = {r.partition} AND source_offset >= {r.start} AND source_offset < {r.end}"


def _parts(clickhouse: ClickHouse) -> str:
    return str(clickhouse.rows("SELECT toString(generateUUIDv4())")[0][0])
