"""Errors of a session.

Holds: every message says what to change.
"""

EXIT_STOPPED = 75
"""Exit code of a rank that was asked to save and stop, and did: not a failure, but not done (EX_TEMPFAIL of sysexits)."""

EXIT_DIVERGED = 76
"""Exit code of a rank that stopped because the loss was no number any more, or exploded: see LossDiverged for what is known."""

EXIT_BAD_DATA = 77
"""Exit code of a rank that saved and stopped because too many samples are bad: see TooManyBadSamples; the job is NEEDS_REVIEW then."""


class SessionError(Exception):
    """Base of the errors of a session's use; data have `InvalidDataError`, which a dataset raises without a session, too."""


class InvalidUseError(SessionError):
    """The script uses the session in a way that cannot work."""


class Stopped(SystemExit):
    """Raised out of `session.steps` when this rank is to end; carries the exit code. Let it pass."""
