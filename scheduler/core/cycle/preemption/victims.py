"""Preemption victims: the running gangs that may be asked to leave, and the cost of stopping each.

Holds: a cost is an integer (device-milliseconds), so that no comparison depends on a platform; a protected gang is never a victim.
Never: looks at the gang that asks (`standing` does), nor at the victim's nodes (`choosing` does).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from trainhouse.events.model.policy import Preemption, Victims
from trainhouse.scheduler.core.cluster.shape import WHOLE, Placement
from trainhouse.scheduler.core.queue.entries import Running

SECOND_MS = 1000


def milliseconds(seconds: float) -> int:
    """Seconds of a policy in whole milliseconds, rounded to the nearest."""
    return round(seconds * SECOND_MS)


@dataclass(frozen=True, slots=True)
class Victim:
    """A running gang that may be asked to leave. `lost`: device-milliseconds of work that this loses; `cost`: what the choice goes by."""

    running: Running
    cost: int
    lost: int

    @property
    def job_id(self) -> str:
        return self.running.job.job_id


def device_milli(placement: Placement) -> int:
    """Devices that a placement holds, in thousandths."""
    milli = 0
    for part in placement:
        milli += part.devices.bit_count() * part.milli
    return milli


def lost_work(running: Running, now_ms: int, restart_ms: int) -> int:
    """Device-milliseconds that stopping it now costs: what was not saved, and the restart, on each of its devices."""
    unsaved_ms = max(0, now_ms - running.saved_ms)
    return (unsaved_ms + restart_ms) * device_milli(running.placement) // WHOLE


def protected(running: Running, now_ms: int, min_run_ms: int) -> bool:
    """Whether it may not be stopped now: it is leaving already, is not preemptible, or has not had its undisturbed run time."""
    if running.leaving_ms is not None or not running.job.preemptible:
        return True
    return now_ms - running.started_ms < min_run_ms


def victims_of(running: Iterable[Running], rules: Preemption, now_ms: int) -> list[Victim]:
    """Returns those of `running` that may be asked to leave now, the cheapest first; ties: the latest submitted first.

    The policy defines the cost: lost work, or the milliseconds since the start.
    """
    min_run_ms, restart_ms = milliseconds(rules.min_run_s), milliseconds(rules.restart_cost_s)
    recent = rules.victims is Victims.MOST_RECENT
    chosen = []
    for each in running:
        if not protected(each, now_ms, min_run_ms):
            lost = lost_work(each, now_ms, restart_ms)
            chosen.append(Victim(each, max(0, now_ms - each.started_ms) if recent else lost, lost))
    chosen.sort(key=lambda v: (v.cost, -v.running.job.number, v.job_id))
    return chosen
