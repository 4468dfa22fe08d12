"""Shrinking of elastic gangs: they give up ranks above their minimum, so that no gang need be stopped.

On a trial, gangs are squeezed to their minimum on their own nodes, the cheapest restart first; once the waiting gang is placed, each
squeezed one whose devices it uses gets the largest size that still fits, and the others stay as they were.

Holds: a gang is never squeezed below its minimum; what comes out places all of them together.
Never: emits actions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from trainhouse.scheduler.core.cluster.shape import Placement, ranks_of
from trainhouse.scheduler.core.cycle.backfill import nodes_of
from trainhouse.scheduler.core.cycle.preemption.victims import Victim
from trainhouse.scheduler.core.cycle.what_if_cluster import Trial, overlap


@dataclass(frozen=True, slots=True)
class Resized:
    """A running gang that restarts with other devices."""

    victim: Victim
    placement: Placement

    @property
    def ranks(self) -> int:
        return ranks_of(self.placement)


def above_minimum(victim: Victim) -> int:
    """The ranks that an elastic gang can give up; 0 for any other, and where some ranks are done."""
    running = victim.running
    shape = running.job.shape
    return running.ranks - shape.min_ranks if shape.elastic and not running.finishing else 0


def by_price(victims: Sequence[Victim]) -> list[Victim]:
    """Returns the gangs that can shrink, by the cost of their restart for each rank that it frees."""
    able = [v for v in victims if above_minimum(v) > 0]
    return sorted(able, key=lambda v: (v.cost / above_minimum(v), v.running.job.number, v.job_id))


def squeeze(trial: Trial, victim: Victim) -> Resized | None:
    """To its minimum on its own nodes, on the trial; None, and nothing changed, if that cannot be placed."""
    running = victim.running
    trial.gone(running)
    placement = trial.place(running.job.shape, running.job.shape.min_ranks, only=nodes_of(running.placement))
    if placement is None:
        trial.back(running)
        return None
    trial.cluster.take(placement, running.job.shape)
    return Resized(victim, placement)


def undo(trial: Trial, squeezed: Resized) -> None:
    """Lets a gang have its own devices again."""
    trial.cluster.give(squeezed.placement, squeezed.victim.running.job.shape)
    trial.back(squeezed.victim.running)


def settle(trial: Trial, squeezed: Sequence[Resized], wanted: Placement) -> list[Resized]:
    """Once `wanted` is taken on the trial: those that must shrink for it, each as large as it then can be; the others as they were."""
    must = []
    for each in reversed(squeezed):
        if overlap(each.victim.running.placement, wanted) or not _undone(trial, each):
            must.append(each)
    return [_regrow(trial, each) for each in reversed(must)]


def _undone(trial: Trial, squeezed: Resized) -> bool:
    """Lets a gang have its own devices again, unless one that was squeezed later is on them."""
    running = squeezed.victim.running
    trial.cluster.give(squeezed.placement, running.job.shape)
    if all(trial.cluster.idle[part.node] & part.devices == part.devices for part in running.placement):
        trial.back(running)
        return True
    trial.cluster.take(squeezed.placement, running.job.shape)
    return False


def _regrow(trial: Trial, squeezed: Resized) -> Resized:
    running = squeezed.victim.running
    shape = running.job.shape
    trial.cluster.give(squeezed.placement, shape)
    most = running.ranks - 1
    placement = trial.largest(shape, shape.min_ranks, most, only=nodes_of(running.placement)) or squeezed.placement
    trial.cluster.take(placement, shape)
    return Resized(squeezed.victim, placement)
