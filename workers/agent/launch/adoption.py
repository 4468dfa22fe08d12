"""Adoption of a launch that an earlier agent began.

Holds: a launch counts only if every rank had a process; of a launch that was cut off, nothing is left running.
"""

import time

from trainhouse.workers.agent.launch.attempt_dirs import FoundAttempt
from trainhouse.workers.launcher import AttemptPaths, attempt_alive, kill_keeper, kill_tree

PATIENCE_S = 3.0
LOOK_AGAIN_S = 0.05


def launch_was_whole(found: FoundAttempt, node_id: str, boot_id: str) -> bool:
    """Returns whether every rank on the node got a process. Waits up to PATIENCE_S for a busy keeper, then ends it. Blocks."""
    placement = found.allocation.on_node(node_id)
    if placement is None:
        return False
    deadline = time.monotonic() + PATIENCE_S
    while True:
        if all(found.paths.rank(r).pid.exists() for r in placement.ranks):
            return True
        if found.boot_id != boot_id or not _may_be_at_it(found) or time.monotonic() > deadline:
            break
        time.sleep(LOOK_AGAIN_S)
    _end(found.paths)
    return False


def _may_be_at_it(found: FoundAttempt) -> bool:
    """A keeper runs, or the launch is so young that it may be about to."""
    age_s = time.time() - found.paths.allocation.stat().st_mtime
    return age_s < PATIENCE_S or attempt_alive(found.paths)


def _end(paths: AttemptPaths) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while attempt_alive(paths) and time.monotonic() < deadline:
        kill_tree(paths)
        kill_keeper(paths)
        time.sleep(LOOK_AGAIN_S)
