"""Activity of a rank: its kind, its start, and the waiting time in all.

Holds: what is known is one frozen value, replaced as a whole, so another thread that reads it never sees half of a change; totals count
the wait that is still going on. One thread changes it.
Never: reads a clock.
"""

from dataclasses import dataclass, replace

from trainhouse.events import RankActivity


@dataclass(frozen=True, slots=True)
class Doing:
    """One activity. `began_s` is by the monotonic clock; the totals are those of before it."""

    kind: RankActivity = RankActivity.STARTING
    began_s: float = 0.0
    since_ms: int = 0
    limit_s: float | None = None
    name: str = ""
    data_wait_s: float = 0.0
    save_stall_s: float = 0.0
    busy_s: float = 0.0

    def upto(self, now_s: float) -> "Doing":
        """The same with its totals as of now."""
        passed_s = max(0.0, now_s - self.began_s)
        match self.kind:
            case RankActivity.WAITING_FOR_DATA:
                return replace(self, began_s=now_s, data_wait_s=self.data_wait_s + passed_s)
            case RankActivity.SAVING:
                return replace(self, began_s=now_s, save_stall_s=self.save_stall_s + passed_s)
            case RankActivity.BUSY:
                return replace(self, began_s=now_s, busy_s=self.busy_s + passed_s)
            case _:
                return self

    @property
    def stepless_s(self) -> float:
        """Time in which no step was expected."""
        return self.save_stall_s + self.busy_s


class Activity:
    """The activity of this rank."""

    def __init__(self, now_s: float = 0.0, now_ms: int = 0) -> None:
        self.now = Doing(began_s=now_s, since_ms=now_ms)

    def begin(self, kind: RankActivity, now_s: float, now_ms: int, limit_s: float | None = None, name: str = "") -> Doing:
        """From now on it is this; returns what it was, for `resume`."""
        before = self.now
        self.now = replace(before.upto(now_s), kind=kind, began_s=now_s, since_ms=now_ms, limit_s=limit_s, name=name)
        return before

    def resume(self, before: Doing, now_s: float, now_ms: int) -> None:
        """Back to what it was. Something announced with a limit goes on since its own beginning."""
        since_ms = now_ms if before.limit_s is None else before.since_ms
        to_now = self.now.upto(now_s)
        self.now = replace(to_now, kind=before.kind, began_s=now_s, since_ms=since_ms, limit_s=before.limit_s, name=before.name)
