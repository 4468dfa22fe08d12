"""Cuts a piece of a rank's output into lines. Pure.

Holds: only whole lines are taken, unless nobody writes any more; an over-long line comes in pieces that say so, and a piece ends at
the same byte however the file was read. Of a line that redraws itself (carriage returns) the last drawing is kept.
"""

from dataclasses import dataclass, field

MAX_LINE_BYTES = 16 * 1024
MAX_LINES = 4_000
GOES_ON = " … [the line goes on]"


@dataclass
class LogCut:
    """Lines of `[start, end)`; `offsets[i]` is where line i begins in the file."""

    start: int
    end: int
    lines: list[str] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)


def cut_log(data: bytes, start: int, final: bool = False) -> LogCut:
    """Cuts at most MAX_LINES lines from `data`, which begins at byte `start`; `final`: a last line without its end is taken too."""
    cut = LogCut(start, start)
    position = 0
    while len(cut.lines) < MAX_LINES:
        end = data.find(b"\n", position, position + MAX_LINE_BYTES + 1)
        if end >= 0:
            _add(cut, position, _shown(data[position:end]))
            position = end + 1
        elif len(data) - position > MAX_LINE_BYTES:
            end = _whole_character(data, position, position + MAX_LINE_BYTES)
            _add(cut, position, _shown(data[position:end]) + GOES_ON)
            position = end
        else:
            if final and position < len(data):
                _add(cut, position, _shown(data[position:]))
                position = len(data)
            break
    cut.end = start + position
    return cut


def _add(cut: LogCut, position: int, line: str) -> None:
    cut.offsets.append(cut.start + position)
    cut.lines.append(line)


def _whole_character(data: bytes, begin: int, end: int) -> int:
    """An end that does not split a UTF-8 character, where the bytes are UTF-8 at all."""
    for candidate in range(end, max(begin, end - 4), -1):
        if data[candidate] & 0xC0 != 0x80:
            return candidate
    return end


def _shown(line: bytes) -> str:
    drawn = line.rstrip(b"\r")
    return drawn[drawn.rfind(b"\r") + 1 :].decode("utf-8", "replace").replace("\x00", "�")
