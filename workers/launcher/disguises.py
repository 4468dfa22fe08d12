"""The forms in which a secret may show in a program's output: as it is, encoded, escaped, reversed. Pure.

Holds: base64 is found at whichever of three places the secret begins within a group of three bytes, in both alphabets; lines of a secret
of several lines count each by itself. The number of forms is bounded: what is beyond MAX_FORMS is covered as it is, not encoded.
Never: covers what is encoded twice, compressed, or written a character at a time; see SECURITY.md.
"""

import base64
import json
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

SHORTEST = 4
MAX_FORMS = 8192


def forms_of(secrets: Iterable[str]) -> list[bytes]:
    """Every form to look for, the longest first. Secrets under SHORTEST bytes have none: they would eat ordinary text."""
    values = list(dict.fromkeys(line for secret in secrets for line in _lines(secret) if len(line) >= SHORTEST))
    found = dict.fromkeys(values)
    for value in values:
        if len(found) >= MAX_FORMS:
            break
        found.update((form, None) for form in encoded(value) if len(form) >= SHORTEST)
    return sorted(found, key=lambda form: (-len(form), form))


def encoded(value: bytes) -> Iterator[bytes]:
    """Returns the forms that programs commonly print of a value."""
    yield value[::-1]
    hexadecimal = value.hex().encode()
    yield from (hexadecimal, hexadecimal.upper())
    for before in range(3):
        inner = _base64_core(value, before)
        yield from (inner, inner.translate(_URL_SAFE))
    yield from _escaped(value)


def _lines(secret: str) -> Iterator[bytes]:
    raw = secret.encode("utf-8", "surrogateescape")
    yield raw
    yield from raw.splitlines()


def _base64_core(value: bytes, before: int) -> bytes:
    """The characters of base64 that this value alone decides, when `before` bytes of a group of three come ahead of it."""
    text = base64.b64encode(b"\0" * before + value)
    return text[-(-8 * before // 6) : 8 * (before + len(value)) // 6]


def _escaped(value: bytes) -> Iterator[bytes]:
    for safe in ("", "/"):
        yield from _both_cases(quote(value, safe=safe).encode())
    yield from _both_cases(quote_plus(value).encode())
    yield from _both_cases(b"".join(b"%%%02x" % byte for byte in value))
    text = value.decode("utf-8", "replace")
    yield text[::-1].encode()
    yield from (json.dumps(text, ensure_ascii=ascii_only)[1:-1].encode() for ascii_only in (True, False))
    yield repr(text)[1:-1].encode()
    yield "".join(f"\\x{byte:02x}" for byte in value).encode()


def _both_cases(text: bytes) -> Iterator[bytes]:
    """Percent escapes in both cases; all else as it is."""
    parts = text.split(b"%")
    yield text
    for change in (bytes.lower, bytes.upper):
        yield b"%".join([parts[0], *(change(part[:2]) + part[2:] for part in parts[1:])])


_URL_SAFE = bytes.maketrans(b"+/", b"-_")
