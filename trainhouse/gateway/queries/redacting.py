"""Texts that a caller may read, without the names of jobs that do not exist for it.

Holds: whoever sees all projects reads texts as they are; for others each name of another project's job becomes "another job".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from trainhouse.gateway.auth.roles import Principal
from trainhouse.gateway.queries.sql_reader import Row, SqlReader

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
HIDDEN = "another job"
NAMES_AT_ONCE = 900  # of 128 characters: within the 128 KiB that ClickHouse takes as one value


async def redacted(reader: SqlReader, principal: Principal, rows: Sequence[Row], columns: Iterable[str]) -> None:
    """Rewrites these columns of the rows, texts or lists of texts."""
    if principal.everywhere or not rows:
        return
    chosen = list(columns)
    names = set().union(*(names_in(row.get(column)) for row in rows for column in chosen))
    hidden = await _hidden(reader, principal, names)
    if not hidden:
        return
    for row in rows:
        for column in chosen:
            if column in row:
                row[column] = without(row[column], hidden)


def names_in(value: Any) -> set[str]:
    """Possible job ids in a text or a list of texts."""
    if isinstance(value, str):
        return {name for found in _NAME.findall(value) for name in (found, found.rstrip(".:-_"))}
    return set().union(*(names_in(one) for one in value)) if isinstance(value, list) else set()


def without(value: Any, hidden: set[str]) -> Any:
    """A text or a list of texts without these names."""
    if isinstance(value, list):
        return [without(one, hidden) for one in value]
    return _NAME.sub(lambda match: _covered(match[0], hidden), value) if isinstance(value, str) else value


def _covered(name: str, hidden: set[str]) -> str:
    bare = name.rstrip(".:-_")
    if name in hidden:
        return HIDDEN
    return HIDDEN + name[len(bare) :] if bare in hidden else name


async def _hidden(reader: SqlReader, principal: Principal, names: set[str]) -> set[str]:
    hidden: set[str] = set()
    ordered = sorted(names)
    for first in range(0, len(ordered), NAMES_AT_ONCE):
        rows = await reader.rows(
            "SELECT job_id FROM jobs WHERE job_id IN {names:Array(String)} AND project NOT IN {visible_projects:Array(String)}",
            {"names": ordered[first : first + NAMES_AT_ONCE], "visible_projects": list(principal.projects)},
        )
        hidden |= {row["job_id"] for row in rows}
    return hidden
