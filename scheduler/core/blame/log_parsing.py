"""Parsing of a rank's last output: lines, the exception that ended it, the frames of its own code.

Holds: what is read of a text is bounded in lines and in their length, so that no pattern can take long.
Never: knows what a line means (rules do).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MAX_LINES: Final = 300
MAX_LINE_CHARS: Final = 1000
MAX_FRAMES: Final = 3
SHORT_LINES: Final = 100
SHORT_CHARS: Final = 500

_OF_RANK: Final = re.compile(r"^\[(?:default|rank)?\d+\]: ?")
_NAME: Final = re.compile(r"^([A-Za-z_]\w*(?:\.[A-Za-z_]\w*){0,9})(?:: (.*)|:?$)")
_LAST_PART: Final = re.compile(
    r"(?:Error|Exception|Interrupt|Exit|Failed|Exceeded|Invalid|Refused|Unavailable|Missing|Damaged|Epoch|Use|NoSuch\w+)$"
)
_LINKS: Final = ("The above exception was the direct cause", "During handling of the above exception")
_FRAME: Final = re.compile(r'^\s*File "([^"]+)"(?:, line \d+)?,?(?: line \d+)? in (.+)$')
_LIBRARY: Final = re.compile(
    r"(?:site|dist)-packages/|/lib(?:64)?/python\d|^<frozen |/(?:workers/(?:session|launcher)|checkpointing)/\w+\.py$|^<string>"
)
_NOISE: Final = (
    (re.compile(r"0x[0-9a-fA-F]+"), "0x"),
    (re.compile(r"\b[0-9a-f]{8,}\b"), "#"),
    (re.compile(r"\d+(?:\.\d+)?"), "#"),
)


@dataclass(frozen=True)
class Raised:
    """The exception that a text ends with: its type's last name, its message, and the innermost frames of the program's own code.

    `own`: it was raised in the program's own code, not in a library. `chain`: its line, and those of what it was raised from.
    """

    kind: str
    message: str
    frames: tuple[str, ...]
    chain: tuple[str, ...]
    own: bool


@dataclass(frozen=True)
class Words:
    """A text, read once. `short` is what patterns of others are tried on."""

    text: str
    short: tuple[str, ...]
    raised: Raised | None
    frames: tuple[str, ...]


def read(text: str) -> Words:
    """Reads a text's last MAX_LINES lines, each up to MAX_LINE_CHARS."""
    lines = tuple(_OF_RANK.sub("", line[:MAX_LINE_CHARS]) for line in text.splitlines()[-MAX_LINES:])
    short = tuple(line[:SHORT_CHARS] for line in lines[-SHORT_LINES:])
    return Words("\n".join(lines), short, _raised(lines), _frames(lines))


def plain(text: str, most: int = 80) -> str:
    """A text without numbers and addresses, for a fingerprint."""
    for pattern, instead in _NOISE:
        text = pattern.sub(instead, text)
    return text[:most]


def exception_lines(lines: Sequence[str]) -> list[int]:
    """Returns the indexes of the lines that begin an exception, the last first."""
    names = ((at, _NAME.match(_OF_RANK.sub("", line))) for at, line in enumerate(lines))
    return [at for at, name in names if name is not None and _LAST_PART.search(name.group(1))][::-1]


def _raised(lines: tuple[str, ...]) -> Raised | None:
    """The last exception of the text."""
    began = 0
    chain: tuple[str, ...] = ()
    found: Raised | None = None
    in_frames = False
    for at, line in enumerate(lines):
        if line.startswith("Traceback (most recent call last)"):
            in_frames = True
            continue
        if line.startswith(_LINKS):
            in_frames = False
            continue
        if line[:1] in (" ", "\t", ""):
            in_frames = in_frames or bool(_FRAME.match(line))
            continue
        name = _NAME.match(line)
        if name is not None and (in_frames or _LAST_PART.search(name.group(1))) and not name.group(1).endswith("Warning"):
            before = lines[began:at]
            chain = (*(chain if _linked(before) else ()), line)
            found = Raised(name.group(1).rpartition(".")[2], name.group(2) or "", _frames(before), chain, _in_own_code(before))
            began = at
        in_frames = False
    return found


def _linked(lines: tuple[str, ...]) -> bool:
    return any(line.startswith(_LINKS) for line in lines)


def _in_own_code(lines: tuple[str, ...]) -> bool:
    innermost = next((m for line in reversed(lines) if (m := _FRAME.match(line))), None)
    return innermost is not None and not _LIBRARY.search(innermost.group(1))


def _frames(lines: tuple[str, ...]) -> tuple[str, ...]:
    """`file:function` of the program's own frames, innermost last in a traceback, MAX_FRAMES of them."""
    own: list[str] = []
    for line in lines:
        frame = _FRAME.match(line)
        if frame is not None and not _LIBRARY.search(frame.group(1)):
            own.append(f"{frame.group(1).rpartition('/')[2]}:{frame.group(2).strip()}")
    return tuple(own[-MAX_FRAMES:])
