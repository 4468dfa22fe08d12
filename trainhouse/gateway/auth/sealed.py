"""Small texts that only a gateway makes and only a gateway reads: sessions of the pages, codes to sign in.

Holds: encrypted and signed by a key that follows from the gateway's own and from what the text is for, so that one kind never passes for
another, nor for a token; every gateway with the key reads it. What it says ends by itself.
"""

from __future__ import annotations

import base64
import hmac
import zlib
from typing import TypeVar

from cryptography.fernet import Fernet, InvalidToken
from pydantic import BaseModel, ValidationError

from trainhouse.gateway.errors import InvalidTokenError, UnknownKeyError

M = TypeVar("M", bound="Sealed")
MAX_CHARS = 8192
MAX_BYTES = 64 * 1024


class Sealed(BaseModel):
    """Least content of a sealed text: until when it counts, in seconds since 1970."""

    until_s: int


def seal(key: bytes, purpose: str, content: Sealed) -> str:
    """As text that fits into a URL and a cookie."""
    return _fernet(key, purpose).encrypt(zlib.compress(content.model_dump_json().encode())).decode()


def unseal(key: bytes, purpose: str, text: str, form: type[M], now_s: int) -> M:
    """Opens a sealed text. Raises InvalidTokenError, UnknownKeyError where another key made it."""
    try:
        if len(text) > MAX_CHARS:
            raise ValueError("too long")
        packed = zlib.decompressobj()
        content = packed.decompress(_fernet(key, purpose).decrypt(text.encode()), MAX_BYTES)
        found = form.model_validate_json(content)
    except (InvalidToken, ValueError, zlib.error, ValidationError) as error:
        raise UnknownKeyError(f"the {purpose} is not one of this Trainhouse, or the key that made it was retired") from error
    if now_s > found.until_s:
        raise InvalidTokenError(f"the {purpose} has expired")
    return found


def _fernet(key: bytes, purpose: str) -> Fernet:
    return Fernet(base64.urlsafe_b64encode(hmac.digest(key, b"trainhouse " + purpose.encode(), "sha256")))
