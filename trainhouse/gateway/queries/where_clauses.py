"""Conditions of questions: filters and the caller's projects, as bound values.

Holds: a question about jobs always carries the caller's projects, so that another project's job is as if it were not there.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from trainhouse.gateway.auth.roles import Principal


@dataclass
class Where:
    """Conditions that grow, with the values that they bind. The column names are the code's own, never a caller's."""

    conditions: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)

    def equal(self, column: str, wanted: object, kind: str = "String") -> None:
        """`column = wanted`, unless nothing is wanted."""
        if wanted is not None:
            self.add(f"{column} = {{{column}:{kind}}}", **{column: wanted})

    def among(self, column: str, wanted: Iterable[str]) -> None:
        """`column` is one of some, unless there are none."""
        chosen = list(wanted)
        if chosen:
            self.add(f"{column} IN {{{column}s:Array(String)}}", **{f"{column}s": chosen})

    def add(self, condition: str, **values: object) -> None:
        """A condition and what it binds."""
        self.conditions.append(condition)
        self.values |= values

    def visible(self, principal: Principal, column: str = "project") -> None:
        """Only what belongs to the caller's projects."""
        if not principal.everywhere:
            self.add(f"{column} IN {{visible_projects:Array(String)}}", visible_projects=list(principal.projects))

    @property
    def text(self) -> str:
        """For after WHERE."""
        return " AND ".join(self.conditions) or "1"
