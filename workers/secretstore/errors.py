"""Errors of secrets.

Never: a value in a message.
"""


class SecretError(Exception):
    """A secret cannot be had; the message says which, why, and the way out. `retryable`: another try, or another node, may do."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


class SealError(SecretError):
    """A sealed value cannot be opened: another key, or it was changed."""
