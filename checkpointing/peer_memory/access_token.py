"""Access tokens of an attempt for one holder: which job's chunks it may write and read, until when. Pure.

Holds: a token is made with the secret of one start of one holder, which only agents can read; so a rank can make none, one for another
holder is worth nothing, and all of them end with the holder's process.
"""

import base64
import binascii
import hashlib
import hmac
import json
from dataclasses import dataclass


class AccessRefusedError(Exception):
    """A token that gives no access, or not this one."""


@dataclass(frozen=True)
class Access:
    """Rights of one attempt. `reads`: jobs whose chunks it may read; it writes those of `job_id` alone, if `writes`."""

    job_id: str
    epoch: int
    reads: tuple[str, ...]
    writes: bool
    until_s: float


def token_of(secret: str, access: Access) -> str:
    """Returns the token of these rights."""
    claims = [access.job_id, access.epoch, list(access.reads), access.writes, access.until_s]
    content = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode()
    return f"{content}.{_mac(secret, content)}"


def access_of(secret: str, token: str, now_s: float) -> Access:
    """Returns the rights of a token. Raises AccessRefusedError."""
    content, _, mac = token.partition(".")
    if not token.isascii() or not hmac.compare_digest(mac.encode(), _mac(secret, content).encode()):
        raise AccessRefusedError("the token is not one for this holder; has it been started again?")
    try:
        job_id, epoch, reads, writes, until_s = json.loads(base64.urlsafe_b64decode(content))
    except (ValueError, binascii.Error) as error:
        raise AccessRefusedError("the token cannot be read") from error
    if now_s > until_s:
        raise AccessRefusedError(f"the token ended {now_s - until_s:.0f} s ago; are the clocks of both nodes right?")
    return Access(job_id, epoch, tuple(reads), writes, until_s)


def _mac(secret: str, content: str) -> str:
    return hmac.new(secret.encode(), content.encode(), hashlib.sha256).hexdigest()
