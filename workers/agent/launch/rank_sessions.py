"""The sessions inside an attempt's ranks, as files: whether there are any, and what is asked of them.

Holds: a session makes its rank's spool when it starts, and looks at the attempt's request from then on.
"""

from collections.abc import Iterable

import orjson

from trainhouse.events import CheckpointRequested
from trainhouse.events.runtime.clock import steady_s
from trainhouse.workers.agent.atomic_files import write_atomically
from trainhouse.workers.launcher import AttemptPaths


def has_session(paths: AttemptPaths, ranks: Iterable[int]) -> bool:
    """Returns whether any of the ranks has a session by now. One `stat` a rank."""
    return any(paths.rank(rank).spool.exists() for rank in ranks)


def ask_session(paths: AttemptPaths, request: CheckpointRequested, now_ms: int) -> None:
    """Puts a request where the ranks' sessions look; its deadline by the machine's steady clock too, which nobody sets."""
    content = {
        "id": f"{request.job_id}:{int(request.epoch)}:{request.deadline_ms}",
        "kind": "checkpoint",
        "reason": request.reason,
        "deadline_ms": request.deadline_ms,
        "deadline_steady_s": steady_s() + (request.deadline_ms - now_ms) / 1000,
        "then_stop": request.then_stop,
    }
    write_atomically(paths.request, orjson.dumps(content), durable=False)
