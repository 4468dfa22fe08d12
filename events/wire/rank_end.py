"""The text that an agent reports with the end of a rank, and the parts of it that one line for users is made of.

Holds: `note_of` and `last_line` read what `report_text` writes; of any other text `last_line` is its last one.
"""

import re
from typing import Final

from trainhouse.events.wire.collectives import LEAD
from trainhouse.events.wire.stack_tops import LEAD as STACK_LEAD

MAX_LINE_CHARS: Final = 300
_LEADS_TO: Final = "; its standard error ends:"
_NOTHING: Final = " and wrote nothing to standard error"

_HEAD: Final = re.compile(
    r"^rank \d+ (?:exited with code -?\d+|was ended by (?:SIG\w+|signal \d+))(?: \(if nobody sent it, [^)]*\))?(?: \((?P<note>.+)\))?"
    rf"(?:{re.escape(_LEADS_TO)}|{re.escape(_NOTHING)}|: (?P<said>.+))?$"
)
_OF_RANK: Final = re.compile(r"^\[(?:default|rank)?\d+\]: ?")


def report_text(rank: int, how: str, note: str, stderr: str, recorded: str) -> str:
    """Formats a rank's end, its keeper's note, the end of its standard error, and the lines of its flight recorder."""
    noted = f" ({note})" if note else ""
    wrote = f"{_LEADS_TO}\n{stderr}" if stderr else _NOTHING
    return f"rank {rank} {how}{noted}{wrote}" + (f"\n{recorded}" if recorded else "")


def note_of(text: str) -> str:
    """Keeper's note beside the exit code or signal; empty without one."""
    head = _HEAD.match(text.partition("\n")[0])
    return (head["note"] or "") if head is not None else ""


def last_line(text: str) -> str:
    """The last line that the rank wrote to standard error, cut to MAX_LINE_CHARS; empty for none."""
    first, _, rest = text.partition("\n")
    head = _HEAD.match(first)
    lines = (rest if head is not None else text).splitlines()
    written = [line for line in lines if line.strip() and not line.startswith((LEAD, STACK_LEAD))]
    found = written[-1] if written else (head["said"] or "") if head is not None else ""
    return one_line(_OF_RANK.sub("", found))


def one_line(text: str, most_chars: int = MAX_LINE_CHARS) -> str:
    """A text on one line, cut to `most_chars`."""
    line = " ".join(text.split())
    return line if len(line) <= most_chars else line[: most_chars - 1] + "…"
