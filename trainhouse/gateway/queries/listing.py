"""Pages of any listing: one question for `limit` rows and one more, behind the last row that was given.

Holds: the order is by columns of the code's own choosing, ends with one that tells rows apart, and is bound in the cursor by value.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Query

from trainhouse.gateway.queries import cursors
from trainhouse.gateway.queries.sql_reader import Row, SqlReader
from trainhouse.gateway.queries.where_clauses import Where

Limit = Annotated[int, Query(ge=1, le=1000, description="At most so many items.")]
Cursor = Annotated[str | None, Query(max_length=cursors.MAX_CHARS, description="next_cursor of the answer before.")]
MOST = 1000

_TYPES = {"String": str, "Int64": int, "UInt64": int}
_RANGES = {"Int64": range(-(2**63), 2**63), "UInt64": range(2**64)}


@dataclass(frozen=True)
class Order:
    """`keys`: (expression, ClickHouse type) of what rows are ordered by; the expressions must not depend on the selected names."""

    keys: tuple[tuple[str, str], ...]
    descending: bool = False

    def clause(self) -> str:
        """ORDER BY."""
        way = " DESC" if self.descending else ""
        return "ORDER BY " + ", ".join(f"{expression}{way}" for expression, _ in self.keys)

    def columns(self) -> str:
        """The keys as columns of their own."""
        return ", ".join(f"{expression} AS _key{n}" for n, (expression, _) in enumerate(self.keys))

    def behind(self, cursor: str, where: Where) -> None:
        """Only rows behind the cursor's. Raises ProblemError 400."""
        found = cursors.decode(cursor, *(_TYPES[kind] for _, kind in self.keys))
        if any(kind in _RANGES and value not in _RANGES[kind] for (_, kind), value in zip(self.keys, found, strict=True)):
            raise cursors.bad_cursor()
        where.add(self._behind(), **{f"_key{n}": value for n, value in enumerate(found)})

    def _behind(self, first: int = 0) -> str:
        """The keys from `first` on are behind the bound ones. Spelled out: of `(a, b) > (x, y)` ClickHouse's primary index uses nothing."""
        expression, kind = self.keys[first]
        bound = f"{{_key{first}:{kind}}}"
        condition = f"{expression} {'<' if self.descending else '>'} {bound}"
        if first + 1 < len(self.keys):
            condition = f"({condition} OR {expression} = {bound} AND {self._behind(first + 1)})"
        return condition


@dataclass(frozen=True)
class Page:
    """Rows in their order, and the cursor behind the last of them."""

    rows: list[Row]
    next_cursor: str | None

    def answer(self, **more: object) -> dict[str, object]:
        """As a listing."""
        return {"items": self.rows, "next_cursor": self.next_cursor} | more


@dataclass(frozen=True)
class Source:
    """`SELECT columns FROM table` of a listing; `order`: the listing's keys in its terms; `shape`: a listing's row of one of it."""

    columns: str
    table: str
    where: Where
    order: Order
    shape: Callable[[Row], Row] = dict


async def page(reader: SqlReader, columns: str, source: str, where: Where, order: Order, limit: int, cursor: str | None) -> Page:
    """One page of `SELECT columns FROM source`. Raises ProblemError 400 for a bad cursor."""
    return await merged(reader, (Source(columns, source, where, order),), limit, cursor)


async def merged(reader: SqlReader, sources: Sequence[Source], limit: int, cursor: str | None) -> Page:
    """One page of several sources with one order, asked beside each other. Raises ProblemError 400 for a bad cursor.

    Each is a query of its own: planning a UNION ALL of wide rows costs the engine more than both of its branches.
    """
    if cursor is not None:
        for source in sources:
            source.order.behind(cursor, source.where)
    found = [pair for rows in await asyncio.gather(*(_keyed(reader, source, limit + 1) for source in sources)) for pair in rows]
    if len(sources) > 1:
        found.sort(key=lambda pair: _sortable(pair[0]), reverse=sources[0].order.descending)
    return Page([row for _, row in found[:limit]], cursors.encode(found[limit - 1][0]) if len(found) > limit else None)


async def _keyed(reader: SqlReader, source: Source, most: int) -> list[tuple[list[cursors.Key], Row]]:
    """The source's first rows with their keys."""
    order, where = source.order, source.where
    sql = f"SELECT {source.columns}, {order.columns()} FROM {source.table} WHERE {where.text} {order.clause()} LIMIT {{_limit:UInt32}}"
    rows = await reader.rows(sql, where.values | {"_limit": most})
    return [([row.pop(f"_key{n}") for n in range(len(order.keys))], source.shape(row)) for row in rows]


def _sortable(key: Sequence[cursors.Key]) -> list[object]:
    # As ClickHouse orders texts: by their bytes.
    return [value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value for value in key]


def millis(column: str) -> tuple[str, str]:
    """A time as a key of an order."""
    return f"toUnixTimestamp64Milli({column})", "Int64"
