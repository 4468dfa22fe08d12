"""Errors of the projections: each is a ProjectionError.

Holds: every message names the table, query or topic, the cause, and the way out.
"""


class ProjectionError(Exception):
    """Base of all errors of the projections."""


class ClickHouseRequestError(ProjectionError):
    """ClickHouse refused a statement or did not answer. `code` is its error code, 0 where it gave none."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class BrokenMigrationError(ProjectionError):
    """The migrations on disk and the ones applied do not fit together; a person must look."""


class InvalidPositionError(ProjectionError):
    """A stored position lies beyond the topic's end: the topic was deleted and made again, or belongs to another cluster."""


class QueryRefusedError(ProjectionError):
    """A query that the read-only endpoint does not run; `code` is the one of ClickHouse that says so."""

    def __init__(self, message: str, code: int = 164) -> None:
        super().__init__(message)
        self.code = code
