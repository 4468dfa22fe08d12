"""Attempts whose spec asks for checkpoints and whose ranks have no session when the first was due: one warning each.

Holds: rank 0's node warns; a restarted agent warns again under the same event id. A session warns by itself
(`workers/session/steps/untracked`).
"""

from collections.abc import Callable, Iterable
from typing import Final

from trainhouse.events import CheckpointSkipped
from trainhouse.workers.agent.core import AttemptKey
from trainhouse.workers.agent.core.agent_state import LocalAttempt, Running
from trainhouse.workers.agent.launch.rank_sessions import has_session
from trainhouse.workers.launcher import AttemptPaths

SESSION_S: Final = 60.0  # a program that imports or loads for long may open its session late
REASON: Final = (
    "a checkpoint was due, but no rank has opened a session, so nothing is saved: use Session.start() and session.track(...) "
    "in the code, or remove `checkpoint` from the spec"
)


class UnsavedWatch:
    """Looks at attempts again and again; costs a few `stat` for each that asks for checkpoints and has no warning yet."""

    def __init__(self, paths_of: Callable[[AttemptKey], AttemptPaths]) -> None:
        self._paths_of = paths_of
        self.warned: set[AttemptKey] = set()

    def look(self, attempts: Iterable[LocalAttempt], now_ms: int) -> list[CheckpointSkipped]:
        """The warnings that are due now."""
        attempts = list(attempts)
        self.warned &= {a.key for a in attempts}
        due = [a for a in attempts if a.key not in self.warned and self._due(a, now_ms)]
        self.warned |= {a.key for a in due}
        return [self._warning(a, now_ms) for a in due]

    def _due(self, attempt: LocalAttempt, now_ms: int) -> bool:
        policy, ranks = attempt.allocation.spec.checkpoint, attempt.placement.ranks
        if not (policy.asked and isinstance(attempt.phase, Running) and 0 in ranks and 0 not in attempt.exited):
            return False
        paths = self._paths_of(attempt.key)
        try:
            began_ms = paths.rank(0).pid.stat().st_mtime * 1000
        except FileNotFoundError:
            return False
        return now_ms - began_ms >= max(policy.longest_s, SESSION_S) * 1000 and not has_session(paths, ranks)

    def _warning(self, attempt: LocalAttempt, now_ms: int) -> CheckpointSkipped:
        of = attempt.allocation
        return CheckpointSkipped(job_id=of.job_id, attempt=of.attempt, epoch=of.epoch, at_ms=now_ms, step=0, reason=REASON)
