"""Errors of evaluations.

Holds: every message says what is wrong with which thing, and what to do.
"""


class InvalidEvaluationError(Exception):
    """An evaluation that cannot be run, or a result that is none: NaN, labels of one class, an unknown field."""


class UnpairedResultsError(Exception):
    """Two results that are not of the same samples, so that no paired comparison of them exists."""
