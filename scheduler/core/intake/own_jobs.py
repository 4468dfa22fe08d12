"""Jobs that a machine submits by itself, as evaluations of models and trials of studies are. Pure."""

import re
from typing import Final

_CONTROL: Final = re.compile(r"[\x00-\x1f]")


def submission_of(job_id: str) -> str:
    """Id of the event that submits a job: of all refusals that name the job, the one under this id alone is of the job itself."""
    return f"{job_id}:submitted"


def user_of_job(name: str) -> str:
    """The name of a person as a spec's user has it."""
    return _CONTROL.sub(" ", name)[:128] or "unknown"
