"""Position of a rank in its collectives when its flight recorder was dumped, as one line in the reason of its end.

Holds: `AtCollective.found_in` reads back what `line` writes; the agent writes such lines, and blame reads them.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

LEAD: Final = "flight recorder:"
MAX_WHAT_CHARS: Final = 120
MAX_MEMBERS_CHARS: Final = 500
MAX_MEMBERS: Final = 100_000

_LINE: Final = re.compile(
    r"flight recorder: rank (\d{1,18}) is at collective (\d{1,18}) of group (\S{1,100}) \(ranks ([\d,-]{0,500})\): (.{1,200}?)"
    r"; begun (-?\d{1,18}), done (-?\d{1,18})"
)


@dataclass(frozen=True)
class AtCollective:
    """One rank in one process group. `at`: the collective that it waited in, or had done last; `what`: its operation and shapes.

    `begun` and `done` count the group's collectives; -1: none. `members`: the ranks of the group, as far as they are known, and as many of
    them as a line has room for.
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
        members = spans(self.members)
        if len(members) > MAX_MEMBERS_CHARS:
            members = members[:MAX_MEMBERS_CHARS].rpartition(",")[0]
        where = f"collective {self.at} of group {group} (ranks {members})"
        return f"{LEAD} rank {self.rank} is at {where}: {what}; begun {self.begun}, done {self.done}"

    @staticmethod
    def found_in(text: str) -> tuple["AtCollective", ...]:
        """All of them that a text holds, in its order."""
        return tuple(AtCollective(int(m[1]), m[3], int(m[2]), m[5], int(m[6]), int(m[7]), _members(m[4])) for m in _LINE.finditer(text))


def runs(ranks: Iterable[int]) -> list[str]:
    """Ranks in short, in their order: `0-3`, `7`."""
    known = set(ranks)
    starts = sorted(r for r in known if r - 1 not in known)
    ends = sorted(r for r in known if r + 1 not in known)
    return [str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True)]


def spans(ranks: Iterable[int]) -> str:
    """Sorted ranks in short: `0-3,7`."""
    return ",".join(runs(ranks))


def _members(text: str) -> tuple[int, ...]:
    """The ranks that `spans` wrote; of a text that names more than MAX_MEMBERS the first ones, since anybody can write one."""
    ranks: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if first.isdecimal() and (not last or last.isdecimal()):
            ranks.extend(islice(range(int(first), int(last or first) + 1), MAX_MEMBERS - len(ranks)))
    return tuple(ranks)
