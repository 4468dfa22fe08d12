"""Position of a rank when its gang was found to hang, as one line in the reason of its end: the innermost frames of its main thread.

Holds: `found_in` reads back what `line` writes; the agent writes such lines, and blame reads them.
"""

import re
from collections.abc import Sequence
from typing import Final

LEAD: Final = "stack at the verdict:"
MAX_FRAMES: Final = 3
MAX_FRAME_CHARS: Final = 100
_LINE: Final = re.compile(r"stack at the verdict: rank (\d{1,9}) in (.{1,400})")


def line(rank: int, frames: Sequence[str]) -> str:
    """For a person, and for `found_in`. `frames`: innermost first."""
    shown = " < ".join(" ".join(frame.split())[:MAX_FRAME_CHARS] for frame in frames[:MAX_FRAMES])
    return f"{LEAD} rank {rank} in {shown}"


def found_in(text: str) -> dict[int, str]:
    """The frames that a text tells, by rank."""
    return {int(match[1]): match[2] for match in _LINE.finditer(text)}
