"""Bound on the checkpoint from which a job with a diverged loss restarts.

Holds: never to a checkpoint from after the last good one; as far as it is remembered, if it should go further than that. The bound stays
until an attempt that obeyed it made a checkpoint of its own: what lies above it in the chain is never begun from.
"""

from trainhouse.events.model.phases import Allotment
from trainhouse.scheduler.core.state.records import Job

BEGINNING = 0
"""Of a chain; the first entry is a claim, never a checkpoint, so nothing is restored."""


def last_good(allotment: Allotment) -> int | None:
    """The newest commit from before the loss went wrong, as the session reported; None: there is none."""
    divergence = allotment.evidence.diverged
    return divergence.good_commit if divergence is not None else None


def bound_after_divergence(job: Job, allotment: Allotment) -> int:
    """The newest commit that the next attempt may begin from: divergence.checkpoints back from where it was."""
    good = last_good(allotment)
    if good is None:
        return BEGINNING
    known = [*(c for c in job.commits if c < good), good]
    return known[max(0, len(known) - job.spec.divergence.checkpoints)]
