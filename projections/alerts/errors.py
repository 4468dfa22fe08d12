"""Errors of alerts.

Holds: every message names the thing, the cause and the way out.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from trainhouse.projections.errors import ProjectionError


class EndpointUnavailableError(ProjectionError):
    """ClickHouse does not answer; nothing can be said of any rule until it does."""


class RuleFailedError(ProjectionError):
    """ClickHouse refused a rule's query, or its answer is not what the rule promises. The other rules go on."""


class RuleTooExpensiveError(RuleFailedError):
    """ClickHouse gave up on a rule's query: it took too long, or too much memory."""


class WatcherReplacedError(ProjectionError):
    """Another process watches now, or the brokers lost track of this one: it ends, and its next start reads back what was told."""


@dataclass(frozen=True, slots=True)
class FaultLine:
    """One fault of a rules file with its place; line 0: the file as a whole."""

    file: str
    line: int
    field: str
    problem: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.field}: {self.problem}"


class InvalidRulesError(ProjectionError):
    """A file has rules that cannot be taken. `faults` has a line for each."""

    def __init__(self, faults: Iterable[FaultLine]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(map(str, self.faults)))
