"""Cursors of listings: where the next page goes on, as text that means nothing to its holder.

Holds: a cursor is the order's key of the last row given, so that pages neither repeat nor skip what stays in place; a damaged
one is refused, and what it holds is bound as values, never pasted.
"""

import base64
import binascii
from collections.abc import Sequence

import orjson

from trainhouse.gateway.errors import ProblemError

MAX_CHARS = 1024
Key = str | int | float | None


def encode(key: Sequence[Key]) -> str:
    """A cursor of a row's key."""
    return base64.urlsafe_b64encode(orjson.dumps(list(key))).decode().rstrip("=")


def decode(cursor: str, *types: type) -> list[Key]:
    """The key in a cursor, which must have these types. Raises ProblemError 400."""
    try:
        if len(cursor) > MAX_CHARS:
            raise ValueError("too long")
        found = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error) as error:
        raise bad_cursor() from error
    if not isinstance(found, list) or len(found) != len(types):
        raise bad_cursor()
    if not all(type(value) is kind for value, kind in zip(found, types, strict=True)):
        raise bad_cursor()
    return found


def bad_cursor() -> ProblemError:
    """Returns the problem of a cursor that no answer held."""
    return ProblemError(
        400, "Bad cursor", "this cursor is none of this listing: leave it out to begin anew, or take next_cursor from an answer"
    )
