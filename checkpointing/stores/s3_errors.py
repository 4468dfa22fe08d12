"""Classification of boto3's errors: absent, taken, or worth a retry.

Holds: every error is put into exactly one of those, or is final.
"""

from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError, IncompleteReadError, ResponseStreamingError
from urllib3.exceptions import HTTPError

# The store was not reached, or its answer broke off: nothing is known of what it did.
TRANSPORT: tuple[type[Exception], ...] = (ConnectionError, HTTPClientError, IncompleteReadError, ResponseStreamingError, HTTPError)
_CONFLICTS = {"ConditionalRequestConflict", "OperationAborted"}
_BUSY = {"SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling", "TooManyRequests", "RequestTimeTooSkewed"}


def is_retryable(error: BaseException) -> bool:
    """Returns whether the same call may succeed a little later."""
    if isinstance(error, TRANSPORT):
        return True
    if not isinstance(error, ClientError):
        return False
    return _code(error) in _BUSY | _CONFLICTS or _status(error) >= 500 or _status(error) == 429


def is_absent(error: ClientError) -> bool:
    """There is no such object, or upload in parts (a bucket that is missing is another matter)."""
    return _code(error) in {"NoSuchKey", "NoSuchUpload", "404", "NotFound"}


def is_taken(error: ClientError) -> bool:
    """If-None-Match found an object, or If-Match another one than it names."""
    return _status(error) == 412


def is_conflict(error: ClientError) -> bool:
    """Another conditional put of the same key was under way."""
    return _status(error) == 409


def why(error: BaseException) -> str:
    """One line for a person."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else 'no message'}" if isinstance(error, BotoCoreError | ClientError) else str(error)


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
