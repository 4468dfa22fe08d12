"""Replace secrets by `***` in a stream of bytes that arrives in pieces.

Holds: a secret never comes out, nor a common encoding of one (`disguises`), also when it is split over any number of pieces or broken
into lines; everything else comes out unchanged and in order. What may still become a secret is held back until more comes or `flush`.
The cost of a piece is bounded by its size times the number of forms, at the speed of a search for bytes.
Never: looks at time or files.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from trainhouse.workers.launcher.disguises import SHORTEST, forms_of

__all__ = ["MASK", "SHORTEST", "Masker"]
MASK = b"***"
SHOWN_BYTES = 16
ANCHOR = 8  # so many bytes of a form's beginning are searched for; shorter ends are compared one by one
SHORTEST_OVER_LINES = 8  # shorter forms would be found in words that lines happen to put together
HELD_OVER_LINES = 4  # a line whose end is less of a form than this goes out at once; if the form goes on, its rest is covered
BREAKS = b"\r\n"

Span = tuple[int, int]


class Masker:
    """`feed` pieces, write what it returns, `flush` at the end. Secrets under 4 bytes are not masked: they would eat ordinary text."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets: dict[str, None] = {}
        self._forms: list[bytes] = []
        self._over_lines: list[bytes] = []
        self._held = b""
        self._shown = b""  # the end of what went out, as it came in
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        """Covers these from now on as well: a secret that was rotated."""
        before = len(self._secrets)
        self._secrets.update(dict.fromkeys(secrets))
        if len(self._secrets) > before:
            self._forms = forms_of(self._secrets)
            joined = (form.translate(None, BREAKS) for form in self._forms)
            self._over_lines = [form for form in dict.fromkeys(joined) if len(form) >= SHORTEST_OVER_LINES]

    def feed(self, piece: bytes) -> bytes:
        """The part that is safe to show by now."""
        if not self._forms:
            return piece
        text = self._shown + self._held + piece
        spans = self._spans(text)
        keep = max(len(self._shown), self._possible_start(text, spans))
        return self._out(text, spans, keep)

    def whole(self, text: bytes) -> bytes:
        """A text by itself, apart from the stream."""
        return _covered(text, self._spans(text), 0) if self._forms else text

    def flush(self) -> bytes:
        """Returns the bytes held back, when nothing more comes."""
        text = self._shown + self._held
        return self._out(text, self._spans(text), len(text)) if self._forms else self._held

    def _out(self, text: bytes, spans: list[Span], keep: int) -> bytes:
        safe = _covered(text[:keep], spans, len(self._shown))
        self._shown, self._held = text[max(0, keep - SHOWN_BYTES) : keep], text[keep:]
        return safe

    def _spans(self, text: bytes) -> list[Span]:
        """Spans of the secrets in a text, in order, overlapping spans merged."""
        found = [span for form in self._forms for span in _occurrences(text, form)]
        if b"\n" in text:
            flat = text.translate(None, BREAKS)
            at = _Places(text)
            found += [(at[a], at[b - 1] + 1) for form in self._over_lines for a, b in _occurrences(flat, form)]
        return _merged(found)

    def _possible_start(self, text: bytes, spans: list[Span]) -> int:
        """Start of the earliest suffix that may still grow into a secret, whole ones that it overlaps included; else the end."""
        end = self._earliest_tail(text, self._forms)
        if b"\n" in text or b"\r" in text:
            flat = text.translate(None, BREAKS)
            tail = self._earliest_tail(flat, self._over_lines)
            if len(flat) - tail >= HELD_OVER_LINES:
                end = min(end, _Places(text)[tail])
        return next((a for a, b in spans if a < end < b), end)

    def _earliest_tail(self, text: bytes, forms: list[bytes]) -> int:
        return min((_tail_start(text, form) for form in forms), default=len(text))


class _Places:
    """Map from a byte of a text without line breaks to its position in the text itself."""

    def __init__(self, text: bytes) -> None:
        breaks = [i for i, byte in enumerate(text) if byte in BREAKS] if len(text) < 256 else list(_breaks(text))
        self._before = [place - number for number, place in enumerate(breaks)]

    def __getitem__(self, index: int) -> int:
        return index + bisect_left(self._before, index + 1)


def _breaks(text: bytes) -> Iterator[int]:
    places = [a for one in (b"\r", b"\n") for a, _ in _occurrences(text, one)]
    yield from sorted(places)


def _occurrences(text: bytes, form: bytes) -> Iterator[Span]:
    """Every place of a form; those that overlap with the one before are told by their first and last alone."""
    at = text.find(form)
    while at >= 0:
        yield at, at + len(form)
        overlapping = text.rfind(form, at + 1, at + 2 * len(form) - 1)
        at = overlapping if overlapping > at else text.find(form, at + len(form))


def _tail_start(text: bytes, form: bytes) -> int:
    """Start of the longest suffix of a text that is a proper prefix of the form; else the text's end."""
    first = max(0, len(text) - len(form) + 1)
    anchor = form[:ANCHOR]
    at = text.find(anchor, first) if len(form) > ANCHOR else -1
    while at >= 0:
        if form.startswith(text[at:]):
            return at
        at = text.find(anchor, at + 1)
    for start in range(max(first, len(text) - ANCHOR + 1), len(text)):
        if form.startswith(text[start:]):
            return start
    return len(text)


def _merged(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for begin, end in sorted(spans):
        if merged and begin < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def _covered(text: bytes, spans: list[Span], at: int) -> bytes:
    """The text from `at` on with each span replaced, also the rest of one that began before; spans behind the end are another piece's."""
    parts = []
    for begin, end in spans:
        if begin >= len(text):
            break
        if end > at:
            parts += [text[at : max(at, begin)], MASK]
            at = end
    return b"".join([*parts, text[at:]])
