"""Errors of a session.

Holds: every message says what to change.
"""

EXIT_STOPPED = 75
"""Exit code of a rank that was asked to save and stop, and did: not a failure, but not done (EX_TEMPFAIL of sysexits)."""

EXIT_DIVERGED = 76
"""Exit code of a rank that stopped because the loss was no number any more, or exploded: see LossDiverged for what is known."""


class SessionError(Exception):
    """Base of all errors of a session."""


class InvalidUseError(SessionError):
    """The script uses the session in a way that cannot work."""


class Stopped(SystemExit):
    """Raised out of `session.steps` when this rank is to end; carries the exit code. Let it pass."""
