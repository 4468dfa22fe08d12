"""What can go wrong in a session.

Holds: every message says what to change.
"""

EXIT_STOPPED = 75
"""Exit code of a rank that was asked to save and stop, and did: not a failure, but not done (EX_TEMPFAIL of sysexits)."""


class SessionError(Exception):
    """Base of all errors of a session."""


class InvalidUse(SessionError):
    """The script uses the session in a way that cannot work."""


class Stopped(SystemExit):
    """Raised out of `session.steps` when this rank is to end; carries the exit code. Let it pass."""
