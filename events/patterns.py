"""Regular expressions that people write and machines run on lines that others write: which of them could take long.

Holds: pure; what passes has no repeat within a repeat, no reference back, and MAX_OPEN repeats without an end at most, so that its time on
a line of bounded length is bounded by a small power of that length.
"""

import re
from typing import Final

MAX_OPEN: Final = 2
LONG: Final = 256  # a repeat of more than so many counts as one without an end

_TOKEN: Final = re.compile(
    r"(?P<back>\\[1-9]|\(\?P=)|(?P<escape>\\.)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<open>\()|(?P<close>\))|(?P<or>\|)"
    r"|(?P<repeat>[*+]|\{(?P<least>\d*),(?P<most>\d*)\}|\{\d+\}|\?)|(?P<other>.)",
    re.DOTALL,
)


def costly(pattern: str) -> str:
    """Why a valid expression could take long on some line; empty when it cannot."""
    depth_varies = [False]  # for each open group: whether anything in it repeats or has alternatives
    closed = False  # whether the last thing was a group in which something varies
    endless = 0
    previous = ""
    for token in _TOKEN.finditer(pattern):
        kind = token.lastgroup if token.lastgroup not in ("least", "most") else "repeat"
        if kind == "back":
            return "it refers back to a group"
        if kind == "open":
            depth_varies.append(False)
        elif kind == "close" and len(depth_varies) > 1:
            closed = depth_varies.pop()
            depth_varies[-1] = depth_varies[-1] or closed
        elif kind == "or":
            depth_varies[-1] = True
        elif kind == "repeat" and previous not in ("open", "repeat"):
            many = _many(token)
            if many and previous == "close" and closed:
                return f"{token.group()!r} repeats a group in which something varies already"
            endless += many
            depth_varies[-1] = depth_varies[-1] or token.group() != "?"
        previous = str(kind)
    return f"it has {endless} repeats without an end; {MAX_OPEN} may be" if endless > MAX_OPEN else ""


def _many(token: re.Match[str]) -> bool:
    """Whether a repeat has no end, or one that is far away."""
    text = token.group()
    if text in ("*", "+"):
        return True
    most = token.group("most")
    return text.startswith("{") and "," in text and (not most or int(most) > LONG)
