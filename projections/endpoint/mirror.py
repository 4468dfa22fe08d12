"""The tables and views of one engine as another process may read them: the same parts on disk, by a disk that takes no writes.

Why: one folder belongs to one engine's process. But parts never change once they are there, and a table on a read-only disk looks for
new ones every two seconds (`refresh_parts_interval`): so a second engine reads what the first one writes, and cannot write itself. Every
second would take a sixth of a core for all tables, also where nobody asks.
Never: makes a materialized view; those write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

REFRESH_S = 2
OF_THE_WRITER = (
    "SELECT name, engine, create_table_query, if(empty(data_paths), '', data_paths[1]) FROM system.tables"
    " WHERE database = currentDatabase() ORDER BY name"
)
"""What `statements` is made of."""


@dataclass(frozen=True)
class Mirror:
    """`tables` are statements to run once; `views` may need others of their kind first."""

    tables: tuple[str, ...]
    views: tuple[str, ...]


def mirror(rows: Sequence[Sequence[str]]) -> Mirror:
    """From the rows of OF_THE_WRITER."""
    tables = tuple(_read_only(name, create, path) for name, engine, create, path in rows if engine.endswith("MergeTree"))
    return Mirror(tables, tuple(create for _, engine, create, _ in rows if engine == "View"))


def _read_only(name: str, create: str, path: str) -> str:
    # The engine's own text of a table ends with its settings, if it has any.
    joint = ", " if " SETTINGS " in create else " SETTINGS "
    quoted = path.replace("\\", "\\\\").replace("'", "\\'")
    kind = "readonly = 1, type = object_storage, object_storage_type = local, metadata_type = plain"
    disk = f"disk(name = 'of_{name}', {kind}, path = '{quoted}')"
    return f"{create}{joint}disk = {disk}, table_disk = 1, refresh_parts_interval = {REFRESH_S}"
