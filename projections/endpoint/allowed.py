"""Functions, table functions, formats and system tables that a query may name, as `allowed.toml` lists them.

Holds: names are compared without case; what the engine knows and the list does not is refused.
Never: asks an engine; what one knows is given.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources

SYSTEM_DATABASES = frozenset({"system", "information_schema"})


@dataclass(frozen=True)
class Allowed:
    """The lists, in lower case; formats as they are written."""

    functions: frozenset[str]
    aggregates: frozenset[str]
    combinators: tuple[str, ...]
    table_functions: frozenset[str]
    formats: frozenset[str]
    system_tables: frozenset[str]

    def function(self, name: str) -> bool:
        """Returns whether a call of this function may run: it is listed, or it is a listed aggregate with suffixes of aggregates."""
        lower = name.lower()
        return lower in self.functions or self._aggregate(lower)

    def _aggregate(self, lower: str) -> bool:
        if lower in self.aggregates:
            return True
        return any(lower.endswith(suffix) and self._aggregate(lower.removesuffix(suffix)) for suffix in self.combinators)


@dataclass(frozen=True)
class Known:
    """Names of the engine that a query may not use: functions (also by a bare name: `arrayMap(file, …)` calls it), table functions,
    system tables. `views`: its views, which may be called with bound values."""

    functions: frozenset[str]
    table_functions: frozenset[str]
    system_tables: frozenset[str]
    views: frozenset[str]

    @classmethod
    def of(cls, rows: Iterable[tuple[str, str]]) -> Known:
        """From pairs of a kind (function, table function, system table, view) and a name."""
        lists = allowed()
        found: dict[str, set[str]] = {kind: set() for kind in ("function", "table function", "system table", "view")}
        for kind, name in rows:
            found[kind].add(name)
        # An outside name may also be a harmless function's: that one is not called from a table's place.
        outside = {name.lower() for name in found["table function"]} - lists.table_functions
        return cls(
            frozenset(name.lower() for name in found["function"] if not lists.function(name)),
            frozenset(name for name in outside if not lists.function(name)),
            frozenset(name.lower() for name in found["system table"]) - lists.system_tables,
            frozenset(name for name in found["view"] if name.lower() not in outside),
        )


_NAMES = "arrayStringConcat(groupArray(name), ' ')"
CATALOGUE = (
    f"SELECT 'function', {_NAMES} FROM system.functions UNION ALL SELECT 'table function', {_NAMES} FROM system.table_functions"
    f" UNION ALL SELECT 'system table', {_NAMES} FROM system.tables WHERE lower(database) IN ('system', 'information_schema')"
    f" UNION ALL SELECT 'view', {_NAMES} FROM system.tables WHERE database = currentDatabase() AND engine = 'View'"
)
"""What an engine knows, as a line a kind: the kind, a tab, the names."""


def known(catalogue: str) -> Known:
    """From the answer to CATALOGUE as tab-separated text."""
    lines = [line.partition("\t") for line in catalogue.splitlines()]
    return Known.of((kind, name) for kind, _, names in lines for name in names.split())


@functools.cache
def allowed() -> Allowed:
    """The lists."""
    found = tomllib.loads(resources.files("trainhouse.projections.endpoint").joinpath("allowed.toml").read_text())

    def lower(*names: str) -> frozenset[str]:
        return frozenset(entry.lower() for name in names for entry in found[name])

    return Allowed(
        functions=lower("functions", "parsed"),
        aggregates=lower("aggregates"),
        combinators=tuple(sorted(lower("combinators"))),
        table_functions=lower("table_functions"),
        formats=frozenset(found["formats"]),
        system_tables=lower("system_tables"),
    )
