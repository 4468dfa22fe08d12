"""Regular expressions that people write and machines run on lines that others write: which of them could take long.

Holds: pure; what passes has no reference back, no endless repeat of what can match in more than one way, and MOST_WAYS to match a line from
one place of it at most. So its time on a line of bounded length is bounded.
"""

import re
from dataclasses import dataclass
from math import inf, log2
from typing import Final

LINE: Final = 500  # characters of a line: a repeat without an end matches in so many ways
LONG: Final = 256  # a repeat of more than so many counts as one without an end
MOST_WAYS: Final = LINE * LINE

_TOKEN: Final = re.compile(
    r"(?P<back>\\[1-9]|\(\?P=)|(?P<escape>\\.)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<open>\()|(?P<close>\))|(?P<or>\|)"
    r"|(?P<repeat>[*+?]|\{\d*,\d*\}|\{\d+\})|(?P<other>.)",
    re.DOTALL,
)


@dataclass(slots=True)
class _Group:
    """An open group: the ways in which its parts so far match, those of the last part, and of the alternative before that has most.

    `varies`: it has alternatives, or a group in it has; `last_varies`: its last part is such a group.
    """

    ways: float = 1.0
    last: float = 1.0
    before: float = 1.0
    varies: bool = False
    last_varies: bool = False

    def add(self, ways: float, varies: bool = False) -> None:
        self.ways, self.last, self.last_varies = self.ways * self.last, ways, varies
        self.varies = self.varies or varies

    def next_alternative(self) -> None:
        self.before, self.ways, self.last, self.varies, self.last_varies = self.in_all(), 1.0, 1.0, True, False

    def repeat(self, least: int, most: float) -> bool:
        """Whether the last part may be repeated so."""
        once = max(self.last, 2.0 if self.last_varies and most > 1 else 1.0)
        if most > LONG:
            self.last = LINE
            return once == 1
        self.last = inf if most * log2(once) > 64 else (most - least + 1) * once**most
        return True

    def in_all(self) -> float:
        return max(self.before, self.ways * self.last)


def costly(pattern: str) -> str:
    """Returns the reason that a valid expression could take long on some line; empty if it cannot."""
    groups = [_Group()]
    previous = ""
    for token in _TOKEN.finditer(pattern):
        kind = str(token.lastgroup)
        if kind == "back":
            return "it refers back to a group"
        if kind == "open":
            groups.append(_Group())
        elif kind == "close" and len(groups) > 1:
            closed = groups.pop()
            groups[-1].add(closed.in_all(), closed.varies)
        elif kind == "or":
            groups[-1].next_alternative()
        elif kind == "repeat":
            # After an opening or another repeat it says what kind of group, or of repeat.
            if previous not in ("open", "repeat") and not groups[-1].repeat(*_bounds(token.group())):
                return f"{token.group()!r} repeats a group in which something varies already"
        else:
            groups[-1].add(1.0)
        previous = kind
    return f"there may be more than {MOST_WAYS} ways to match a line" if groups[0].in_all() > MOST_WAYS else ""


def _bounds(repeat: str) -> tuple[int, float]:
    """Least and greatest number of matches of a repeat."""
    if repeat in "*+?":
        return int(repeat == "+"), 1 if repeat == "?" else inf
    least, comma, most = repeat[1:-1].partition(",")
    return int(least or 0), (float(most) if most else inf) if comma else float(least)
