"""Pages of any listing: one question for `limit` rows and one more, behind the last row that was given.

Holds: the order is by columns of the code's own choosing, ends with one that tells rows apart, and is bound in the cursor by value.
"""

from __future__ import annotations

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


async def page(reader: SqlReader, columns: str, source: str, where: Where, order: Order, limit: int, cursor: str | None) -> Page:
    """One page of `SELECT columns FROM source`. Raises ProblemError 400 for a bad cursor."""
    if cursor is not None:
        order.behind(cursor, where)
    sql = f"SELECT {columns}, {order.columns()} FROM {source} WHERE {where.text} {order.clause()} LIMIT {{_limit:UInt32}}"
    rows = await reader.rows(sql, where.values | {"_limit": limit + 1})
    keys = [[row.pop(f"_key{n}") for n in range(len(order.keys))] for row in rows]
    more = len(rows) > limit
    return Page(rows[:limit], cursors.encode(keys[limit - 1]) if more else None)


def millis(column: str) -> tuple[str, str]:
    """A time as a key of an order."""
    return f"toUnixTimestamp64Milli({column})", "Int64"
