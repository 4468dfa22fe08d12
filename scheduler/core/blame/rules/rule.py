"""One shipped rule: a pattern for a line of output, and what such a line means.

Holds: a pattern is compiled once, when its module is imported; `.` never crosses a line; no pattern nests one unbounded repeat in another.
"""

import re
from dataclasses import dataclass, field

from trainhouse.events import FailureCategory


@dataclass(frozen=True)
class Rule:
    """`mine`: another attempt would fail the same way.

    A group named `shard` in the pattern is the piece of data that is to blame.
    """

    name: str
    pattern: str
    category: FailureCategory
    summary: str
    mine: bool = False
    regex: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "regex", re.compile(self.pattern, re.MULTILINE))
