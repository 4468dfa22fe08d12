"""Errors of the embedded stack: each names the thing, the cause and the way out.

Always: a person reads the message on a terminal and knows the next command.  Never: a bare traceback for a busy port,
a full disk, a second `up` or a missing download.
"""


class StackError(Exception):
    """Something about the embedded stack that a person must put right."""


class PortBusyError(StackError):
    """A port that a part needs is taken by another process."""


class AlreadyRunningError(StackError):
    """A stack already runs on this data folder."""


class NotRunningError(StackError):
    """No stack runs on this data folder."""


class DiskFullError(StackError):
    """Less free space than the stack needs to start."""


class JarsMissingError(StackError):
    """Kafka's jars are not in the cache and could not be fetched."""


class NotReadyError(StackError):
    """A part did not answer in time, or ended while it was starting."""


class FolderUnusableError(StackError):
    """The data folder cannot be made or written."""


class HalfRotatedError(StackError):
    """A rotation was cut short, and what is asked for would take away what parts may still go by."""


class TooManyKeptError(StackError):
    """More keys of before are still taken than are kept."""
