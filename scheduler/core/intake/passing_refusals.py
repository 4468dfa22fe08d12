"""Refusals of submissions that pass by themselves: of a project's rate, and of its bound on jobs that wait. Pure.

Holds: a refusal is recognised by its whole sentence, of which nothing but names and numbers is another's. All others last.
"""

import re
from typing import Final

LEAST_PAUSE_S: Final = 10
MOST_PAUSE_S: Final = 600
_QUEUE_PAUSE_S: Final = 30
_RATE: Final = re.compile(
    r"spec\.project: .{1,200} may submit \d+ jobs a minute, and has: submit again in (\d{1,6}) s, or ask an operator .*"
)
_QUEUE: Final = re.compile(r"spec\.project: as many jobs of project .+ wait in pool .+ as may.*, limits\.queued is \d+: submit it again .*")


def beyond_queue(project: str, pool: str, most: int, reviewed: int) -> str:
    """The sentence for a job beyond those of its project that may wait in a pool."""
    review = f" ({reviewed} of them under review)" if reviewed else ""
    return (
        f"spec.project: as many jobs of project {project} wait in pool {pool} as may{review}, limits.queued is {most}: submit "
        "it again under a new id when some of them have started, or ask an operator to raise the project's limits.queued"
    )


def pause_s(reason: str, refused: int) -> int | None:
    """Returns the seconds after which a submission may be made again, now that it was refused so often before; None: the refusal lasts."""
    rate = _RATE.fullmatch(reason)
    if rate is None and _QUEUE.fullmatch(reason) is None:
        return None
    first_s = max(LEAST_PAUSE_S, int(rate[1])) if rate is not None else _QUEUE_PAUSE_S
    return min(MOST_PAUSE_S, first_s << min(refused, 6))
