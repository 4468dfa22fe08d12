"""The tables that lanes write, as the migrations make them, without a database."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

from trainhouse.projections.store.migrate import migrations
from trainhouse.projections.store.schema import arrow_type
from trainhouse.projections.store.tables import TABLES

CREATE = re.compile(r"^CREATE TABLE IF NOT EXISTS (\w+) ?\((.*)\) ENGINE", re.DOTALL)
ALTER = re.compile(r"^ALTER TABLE (\w+) (ADD COLUMN .*)$", re.DOTALL)
COLUMN = re.compile(r"^(?:ADD COLUMN IF NOT EXISTS )?(\w+) (.+?)(?: (?:CODEC|DEFAULT|AFTER|TTL)\b.*)?$", re.DOTALL)
MADE = re.compile(r" (MATERIALIZED|ALIAS) |^(INDEX|PROJECTION|CONSTRAINT) ")


def split(text: str) -> Iterator[str]:
    """The parts between commas that are in no parentheses."""
    depth = begin = 0
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            yield text[begin:place].strip()
            begin = place + 1
    yield text[begin:].strip()


def columns() -> dict[str, pa.Schema]:
    """The Arrow schema of each table, as `read_schemas` reads it."""
    found: dict[str, dict[str, pa.Field]] = {}
    for statement in (s for migration in migrations() for s in migration.statements):
        match = CREATE.match(statement) or ALTER.match(statement)
        if match is None or match[1] not in TABLES:
            continue
        for column in (COLUMN.match(part) for part in split(match[2]) if not MADE.search(part)):
            assert column is not None, statement
            field = pa.field(column[1], arrow_type(column[2]), nullable="Nullable(" in column[2])
            found.setdefault(match[1], {})[column[1]] = field
    return {table: pa.schema(list(fields.values())) for table, fields in found.items()}
