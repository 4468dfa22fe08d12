"""Restart budget: whether a failure costs a job nothing, one of its restarts, or the job.

Making way and infrastructure cost nothing (but are bounded). A failure that is known to be the job's own ends it at once; so does a
doubtful one that comes again with the same traceback. Any other one costs one of limits.restarts. So does a gang that hangs again before
its next checkpoint; the first hang is free. One that hangs where it hung before is known to be
the job's own (`blame/hangs.py`). A rank that was killed from outside (SIGKILL) or only exited left no traceback: it
costs a restart, however often.

Holds: a function of its arguments.
Never: acts.
"""

from dataclasses import dataclass
from typing import Final

from trainhouse.events import FailureBlamed, FailureCategory
from trainhouse.events.model.failure_policy import Failures, Recovery
from trainhouse.events.model.phases import Allotment, StopKind
from trainhouse.scheduler.core.state.records import Job

MAX_LOSSES: Final = 100
LONG_ENOUGH_MS: Final = 60_000
MAX_DOUBLINGS: Final = 32
HOUR_MS: Final = 3_600_000
INFRASTRUCTURE: Final = frozenset(
    {FailureCategory.NODE, FailureCategory.DEVICE, FailureCategory.NETWORK, FailureCategory.STORAGE, FailureCategory.PLATFORM}
)


@dataclass(frozen=True, slots=True)
class Cost:
    """`over`: why the job ends; empty: it goes on, and so many failures, losses and hangs are counted. `free`: it is not its fault."""

    over: str = ""
    failures: int = 0
    losses: int = 0
    hangs: int = 0

    @property
    def free(self) -> bool:
        return not self.over and not self.failures


FREE: Final = Cost()


def cost_of(job: Job, allotment: Allotment, kind: StopKind, blamed: FailureBlamed | None, rules: Failures) -> Cost:
    """Returns the cost to a job of an attempt that ended by a failure."""
    if kind is StopKind.FATAL:
        return Cost(over="No other node could start it.")
    if blamed is not None and blamed.mine and kind in (StopKind.RANK_FAILED, StopKind.HUNG):
        return Cost(over="Another attempt would fail in the same way, so there is none.")
    if kind is StopKind.HUNG:
        at_fault = job.tally.hangs > 0 and (blamed is None or blamed.category is not FailureCategory.DEVICE)
        return _restart(job, hangs=1) if at_fault else _loss(job, hangs=1)
    if kind is StopKind.LOST or (blamed is not None and blamed.category in INFRASTRUCTURE):
        return _loss(job)
    left = job.tally.failures < job.limits.restarts
    if left and blamed is not None and _came_before(job, allotment, blamed, rules):
        times = rules.recovery.same_failures
        return Cost(over=f"It failed {times} times in the same way, so another attempt would too.")
    return _restart(job)


def _came_before(job: Job, allotment: Allotment, blamed: FailureBlamed, rules: Failures) -> bool:
    """Whether this failure has come so often with one traceback that it is the job's own. `job.past` has this one too."""
    # A fingerprint of more than a rule's name has the words of a failure in it: the exception and where it was raised.
    if "|" not in blamed.fingerprint or not any(e.exit_code is not None for e in allotment.evidence.ends):
        return False
    since_ms = blamed.at_ms - round(rules.blame.window_h * HOUR_MS)
    same = [f for f in job.past if f.fingerprint == blamed.fingerprint and f.at_ms >= since_ms]
    return len(same) >= rules.recovery.same_failures


def _restart(job: Job, hangs: int = 0) -> Cost:
    allowed = job.limits.restarts
    if job.tally.failures < allowed:
        return Cost(failures=1, hangs=hangs)
    return Cost(over=f"All {allowed} restarts that limits.restarts allows are used." if allowed else "limits.restarts allows none.")


def _loss(job: Job, hangs: int = 0) -> Cost:
    if job.tally.losses < MAX_LOSSES:
        return Cost(losses=1, hangs=hangs)
    return Cost(over=f"Given up after {MAX_LOSSES} losses that were not the job's fault.")


def streak_of(job: Job, now_ms: int) -> int:
    """Attempts in a row that got nowhere before this one; none if this one got somewhere."""
    return 0 if job.ran_ms(now_ms) - job.tally.ran_ms >= LONG_ENOUGH_MS else job.tally.streak


def backoff_ms(streak: int, recovery: Recovery = Recovery()) -> int:
    """The wait before a retry, after `streak` attempts in a row that got nowhere: none at first, then doubling up to a bound."""
    if streak == 0:
        return 0
    first_ms, most_ms = round(recovery.backoff_s * 1000), round(recovery.max_backoff_s * 1000)
    return min(most_ms, first_ms << min(streak - 1, MAX_DOUBLINGS))
