"""The session that training code uses; see `session.py`."""

from trainhouse.workers.session.context import Context
from trainhouse.workers.session.errors import EXIT_DIVERGED, EXIT_STOPPED, InvalidUseError, SessionError, Stopped
from trainhouse.workers.session.session import Session

__all__ = ["EXIT_DIVERGED", "EXIT_STOPPED", "Context", "InvalidUseError", "Session", "SessionError", "Stopped"]
