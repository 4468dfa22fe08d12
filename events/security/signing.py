"""Signatures of records: Ed25519 over the topic and the record's bytes, in a header of the record.

Holds: a signature covers every byte of the value, so an envelope's id, time and data; and the topic, so that a record is nothing elsewhere.
Never: says who may do what; who reads a record knows the public keys that count.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from trainhouse.events.model.errors import EventError
from trainhouse.events.wire.codec import Headers

HEADER = "trainhouse-signature"
KEY_BYTES = 32
SIGNATURE_BYTES = 64
_CONTEXT = b"trainhouse-record-v1\0"


class InvalidKeyError(EventError):
    """A key that cannot be used."""


@dataclass(frozen=True, slots=True)
class Signature:
    """Signature of a record's header: the public key, and the signature by it."""

    public_key: str
    value: bytes

    def holds(self, topic: str, value: bytes) -> bool:
        """Whether the holder of the key signed these bytes for this topic."""
        try:
            _public(self.public_key).verify(self.value, _covered(topic, value))
        except (InvalidSignature, InvalidKeyError):
            return False
        return True


class SigningKey:
    """A private key."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public_key = _text(private.public_key().public_bytes_raw())

    @classmethod
    def made(cls) -> "SigningKey":
        """A new one."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def parsed(cls, text: str) -> "SigningKey":
        """The one in a text. Raises ValueError."""
        return cls(Ed25519PrivateKey.from_private_bytes(base64.b64decode(text.strip(), validate=True)))

    def private_text(self) -> str:
        """The private key itself, as `parsed` reads it."""
        return _text(self._private.private_bytes_raw())

    def header(self, topic: str, value: bytes) -> tuple[str, bytes]:
        """The header that goes with a record."""
        signature = self._private.sign(_covered(topic, value))
        return HEADER, f"ed25519 {self.public_key} {_text(signature)}".encode()


def signature_of(headers: Headers) -> Signature | None:
    """Signature of a record's headers; None if it is not signed, or not in a way that could hold."""
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers or ())
    found = [value for name, value in pairs if name == HEADER]
    # In CloudEvents' binary mode the type stands in headers, which no signature covers.
    if len(found) != 1 or any(name.lower().startswith("ce_") for name, _ in pairs) or not isinstance(found[0], bytes):
        return None
    try:
        kind, key, text = found[0].decode("ascii").split(" ")
        value = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return None
    return Signature(key, value) if kind == "ed25519" and len(value) == SIGNATURE_BYTES else None


def checked_public_key(text: str) -> str:
    """A public key as it is compared. Raises InvalidKeyError."""
    _public(text)
    return text


_KNOWN: dict[str, Ed25519PublicKey] = {}
_MAX_KNOWN = 20_000


def _public(text: str) -> Ed25519PublicKey:
    """Parsed once a key: most records come from those that sent some before."""
    known = _KNOWN.get(text)
    if known is None:
        try:
            raw = base64.b64decode(text, validate=True)
            known = Ed25519PublicKey.from_public_bytes(raw)
        except ValueError as error:
            raise InvalidKeyError(f"{text[:60]!r} is no public key: it is {KEY_BYTES} bytes in base64") from error
        if _text(raw) != text:
            raise InvalidKeyError(f"{text[:60]!r} is no public key as one is written")
        if len(_KNOWN) >= _MAX_KNOWN:
            _KNOWN.clear()
        _KNOWN[text] = known
    return known


def _covered(topic: str, value: bytes) -> bytes:
    return _CONTEXT + topic.encode() + b"\0" + value


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
