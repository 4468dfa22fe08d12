"""Replace secrets by `***` in a stream of bytes that arrives in pieces.

Holds: a secret never comes out, also when it is split over any number of pieces; everything else comes out unchanged and in order.
At most `longest secret - 1` bytes are held back, until more comes or `flush`.
Never: looks at time or files.
"""

import re
from collections.abc import Iterable

MASK = b"***"
SHORTEST = 4


class Masker:
    """`feed` pieces, write what it returns, `flush` at the end. Secrets under 4 bytes are not masked: they would eat ordinary text."""

    def __init__(self, secrets: Iterable[str]) -> None:
        raw = {line for s in secrets for line in (s.encode(), *s.encode().splitlines()) if len(line) >= SHORTEST}
        self._secrets = sorted(raw, key=lambda s: (-len(s), s))
        self._pattern = re.compile(b"|".join(re.escape(s) for s in self._secrets)) if self._secrets else None
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """The part that is safe to show by now."""
        if self._pattern is None:
            return piece
        text = self._held + piece
        keep = self._possible_start(text)
        safe = self._pattern.sub(MASK, text[:keep])
        self._held = text[keep:]
        return safe

    def flush(self) -> bytes:
        """What was held back, when nothing more comes."""
        rest, self._held = self._held, b""
        return rest if self._pattern is None else self._pattern.sub(MASK, rest)

    def _possible_start(self, text: bytes) -> int:
        """Where the earliest suffix begins that may still grow into a secret (outside of whole ones), else the end."""
        assert self._pattern is not None
        last = max(self._pattern.finditer(text), key=re.Match.end, default=None)
        whole = last.end() if last else 0
        longest = len(self._secrets[0]) - 1
        starts = range(max(whole, len(text) - longest), len(text))
        return next((s for s in ([last.start()] if last else []) + list(starts) if self._grows(text[s:])), len(text))

    def _grows(self, tail: bytes) -> bool:
        return any(len(tail) < len(secret) and secret.startswith(tail) for secret in self._secrets)
