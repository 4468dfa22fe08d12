"""The kinds of jobs that run while faults happen, and how each must end whatever happens.

Holds: the example ends with the weights of an undisturbed run, bit for bit; the plain program succeeds; the one that fails by itself
fails; the one that nobody needs any more is cancelled.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from trainhouse.events import JobSpec, JobState

# In a folder of its own: a program with other modules beside it might hide one that a warm process has imported.
PLAIN = Path(__file__).parent / "programs" / "plain.py"
PLAIN_STEPS = 60
WITHOUT_END = 1000


class JobKind(StrEnum):
    """What a job does."""

    EXAMPLE = "example"
    PLAIN = "plain"
    FAILING = "failing"
    CANCELLED = "cancelled"


COMPANIONS = (JobKind.PLAIN, JobKind.FAILING, JobKind.CANCELLED)
MUST_END = {
    JobKind.EXAMPLE: JobState.SUCCEEDED,
    JobKind.PLAIN: JobState.SUCCEEDED,
    JobKind.FAILING: JobState.FAILED,
    JobKind.CANCELLED: JobState.CANCELLED,
}


@dataclass(frozen=True)
class Asked:
    """One job of a campaign."""

    job_id: str
    kind: JobKind


def spec_of(kind: JobKind, steps: int) -> JobSpec:
    """What is submitted."""
    if kind is JobKind.EXAMPLE:
        arguments = ("--steps", str(steps), "--width", "64", "--checkpoint-every", "20")
        return _spec(2, WITHOUT_END, "python", "-m", "trainhouse.workers.examples.gpt", *arguments)
    if kind is JobKind.PLAIN:
        return _spec(2, WITHOUT_END, "python", str(PLAIN), str(PLAIN_STEPS))
    if kind is JobKind.FAILING:
        return _spec(1, 1, "python", "-c", "import time; time.sleep(1); raise RuntimeError('this program is wrong')")
    return _spec(1, WITHOUT_END, "python", "-c", "import time; time.sleep(100_000)")


def _spec(gang: int, restarts: int, *command: str) -> JobSpec:
    return JobSpec.model_validate(
        {"name": "chaos", "gang": gang, "seed": 1, "runtime": {"command": command}, "limits": {"restarts": restarts}}
    )
