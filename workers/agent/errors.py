"""Errors of the agent: each is an AgentError.

Holds: a message names the thing, the cause and the way out.
"""


class AgentError(Exception):
    """Base of all errors of the agent."""


class InvalidSettingError(AgentError):
    """A setting cannot work; retrying without changing it cannot help."""


class FolderBusyError(AgentError):
    """Another agent holds the folder."""


class CorruptStateError(AgentError):
    """The persisted state cannot be read: an invariant is broken, and the agent refuses to guess."""


class NotLaunchableError(AgentError):
    """An attempt's ranks cannot be started. `retryable` is False when another node would fail in the same way."""

    def __init__(self, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.retryable = retryable


class CommandsLostError(AgentError):
    """The reader of commands ended: the agent ends too, and its supervisor starts it again; ranks go on meanwhile."""
