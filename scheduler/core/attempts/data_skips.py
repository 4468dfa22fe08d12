"""Data that later attempts of a job leave out, since its loss diverged over them.

Holds: a job skips so many times as its spec allows, and never at one place twice: where the loss diverges again right behind what is left
out, other data did not help.
"""

from typing import Final

from trainhouse.events import LossDiverged, SkippedData
from trainhouse.events.model.skipped_data import MOST_SKIPPED
from trainhouse.events.model.spec import DEFAULT_SKIPS
from trainhouse.scheduler.core.state.records import Job

SKIPS_SINCE: Final = 20
"""The level from which a job's data may be left out."""


def why_not_skipped(job: Job, divergence: LossDiverged) -> str:
    """Reason for which the data of a diverged loss are not left out, as a sentence; empty if they are."""
    most = job.spec.divergence.skips or DEFAULT_SKIPS
    if not divergence.data:
        return (
            "Its data cannot be left out: divergence.action skip_data needs each loader that training reads from to be a session.loader "
            "that session.track names, in a gang without roles. Use one, or divergence.action rollback."
        )
    again = next(((old, new) for old in job.skip_data for new in divergence.data if _touches(old, new)), None)
    if again is not None:
        old, new = again
        return (
            f"Positions {old.first_position} to {old.end_position - 1} of loader {old.loader} were left out already "
            f"(steps {old.first_step} to {old.end_step - 1} of attempt {max(0, old.epoch - 1)}), and it diverged again right there, at "
            f"positions {new.first_position} to {new.end_position - 1} (steps {new.first_step} to {new.end_step - 1}): these batches alone "
            "are not the cause. Raise divergence.skip_steps if more of the data there are bad, or lower the learning rate."
        )
    if job.tally.rollbacks >= most or len(job.skip_data) + len(divergence.data) > MOST_SKIPPED:
        return f"It left out data {job.tally.rollbacks} times, as often as divergence.skips allows. Look at them: data_positions has each."
    return ""


def _touches(old: SkippedData, new: SkippedData) -> bool:
    return old.loader == new.loader and new.first_position <= old.end_position and old.first_position <= new.end_position


def positions_text(data: tuple[SkippedData, ...]) -> str:
    """The positions, for a person."""
    first = data[0]
    more = f" and {len(data) - 1} more" if len(data) > 1 else ""
    return (
        f"positions {first.first_position} to {first.end_position - 1} of loader {first.loader}{more} "
        f"(steps {first.first_step} to {first.end_step - 1})"
    )
