"""A hash a table: equal tables have equal hashes, whatever batches their rows came in, in whatever order.

Holds: rows count as a reader sees them (merged), without what tells how they came in: when, and from which of several records that say the
same. Sums of floats count to the seven digits that do not follow the order of additions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainhouse.projections.store.clickhouse import ClickHouse
from trainhouse.projections.store.tables import APPENDED

# Where ingestion stands is no content.
_LEFT_OUT = frozenset({"positions", "high_water", "schema_migrations", "lane_tables", "catch_ups"})
_HOW_IT_CAME = frozenset({"inserted_at", "source_topic", "source_partition", "source_offset"})
# Columns that later versions fill in, and rows of before lack until a rebuild, by table.
_FILLED_LATER = frozenset({("decisions_rows", "request_id")})
_FLOAT_SUM = re.compile(r"^SimpleAggregateFunction\(sum, (Nullable\()?Float64\)*$")


@dataclass(frozen=True)
class TableHash:
    """One table: how many rows a reader sees, and what they are, as 16 hexadecimal digits."""

    table: str
    rows: int
    digest: str


def table_hashes(clickhouse: ClickHouse) -> list[TableHash]:
    """All tables that hold what topics told, by name. Blocks: reads every row. Raises ClickHouseRequestError."""
    columns: dict[str, list[tuple[str, str]]] = {}
    merged: dict[str, bool] = {}
    for table, engine, name, column_type in clickhouse.rows(_COLUMNS):
        if (
            table in _LEFT_OUT
            or (table, name) in _FILLED_LATER
            or (name in _HOW_IT_CAME and (table not in APPENDED or name == "inserted_at"))
        ):
            continue
        columns.setdefault(str(table), []).append((str(name), str(column_type)))
        merged[str(table)] = engine != "MergeTree"
    return [_hash(clickhouse, table, columns[table], merged[table]) for table in sorted(columns)]


def differences(these: list[TableHash], those: list[TableHash]) -> list[str]:
    """Names of tables that are not the same in both, or that one of them lacks."""
    left, right = ({h.table: h for h in hashes} for hashes in (these, those))
    return sorted(name for name in left | right if left.get(name) != right.get(name))


def _hash(clickhouse: ClickHouse, table: str, columns: list[tuple[str, str]], merged: bool) -> TableHash:
    expressions = ", ".join(f"toFloat32(`{name}`)" if _FLOAT_SUM.match(kind) else f"`{name}`" for name, kind in columns)
    final = " FINAL" if merged else ""
    # Sums of hashes do not follow the order of rows, and unlike exclusive ors see two equal rows.
    ((rows, digest),) = clickhouse.rows(f"SELECT count(), hex(sum(cityHash64(tuple({expressions})))) FROM `{table}`{final}")
    return TableHash(table, int(rows), str(digest))


_COLUMNS = """
SELECT c.table, t.engine, c.name, c.type FROM system.columns AS c
INNER JOIN system.tables AS t ON t.database = c.database AND t.name = c.table
WHERE c.database = currentDatabase() AND t.engine LIKE '%MergeTree' AND NOT startsWith(c.table, '.') AND c.default_kind != 'ALIAS'
ORDER BY c.table, c.position
"""
