"""Where a rank stood in its collectives when its flight recorder was dumped, as one line in the reason of its end.

Holds: `AtCollective.found_in` reads back what `line` writes; the agent writes such lines, and blame reads them.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

LEAD: Final = "flight recorder:"
MAX_WHAT_CHARS: Final = 120

_LINE: Final = re.compile(
    r"flight recorder: rank (\d+) is at collective (\d+) of group (\S{1,100}) \(ranks ([\d,-]{0,500})\): (.{1,200}?)"
    r"; begun (-?\d+), done (-?\d+)"
)


@dataclass(frozen=True)
class AtCollective:
    """One rank in one process group. `at`: the collective that it waited in, or had done last; `what`: its operation and shapes.

    `begun` and `done` count the group's collectives; -1: none. `members`: the ranks of the group, as far as they are known.
    """

    rank: int
    group: str
    at: int
    what: str
    begun: int
    done: int
    members: tuple[int, ...] = ()

    def line(self) -> str:
        """For a person, and for `found_in`."""
        what = " ".join(self.what.split())[:MAX_WHAT_CHARS] or "unknown"
        group = "".join(self.group.split())[:100] or "default"
        where = f"collective {self.at} of group {group} (ranks {spans(self.members)})"
        return f"{LEAD} rank {self.rank} is at {where}: {what}; begun {self.begun}, done {self.done}"

    @staticmethod
    def found_in(text: str) -> tuple["AtCollective", ...]:
        """All of them that a text holds, in its order."""
        return tuple(AtCollective(int(m[1]), m[3], int(m[2]), m[5], int(m[6]), int(m[7]), _members(m[4])) for m in _LINE.finditer(text))


def spans(ranks: Iterable[int]) -> str:
    """Sorted ranks in short: `0-3,7`."""
    ordered = sorted(set(ranks))
    starts = [r for r in ordered if r - 1 not in set(ordered)]
    ends = [r for r in ordered if r + 1 not in set(ordered)]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def _members(text: str) -> tuple[int, ...]:
    ranks: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            ranks.extend(range(int(first), min(int(last or first), int(first) + 100_000) + 1))
    return tuple(ranks)
