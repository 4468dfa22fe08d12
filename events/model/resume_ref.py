"""Starting point of a job: another job's checkpoint, named in a spec's `resume_from`.

Holds: one grammar for specs, the command line, the API and sessions: `JOB` is the newest healthy checkpoint of that job, `JOB@N` its commit
N, `JOB@step:N` its newest commit of step N, `JOB@best` the one with the tag `best` (`session.save_if_best` sets it) or, without such a tag,
the one with the lowest loss of those that retention left (damaged manifests aside).
"""

import re
from dataclasses import dataclass

from trainhouse.events.model.ids import JobId

GRAMMAR = "write JOB, JOB@COMMIT, JOB@step:N or JOB@best"
BEST = "best"
_COMMIT = re.compile(r"[0-9]{1,18}")
_STEP = re.compile(r"step:([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class ResumeFrom:
    """A job, and which of its checkpoints: the newest healthy one where nothing more is named."""

    job_id: JobId
    commit: int | None = None
    step: int | None = None
    best: bool = False

    def __str__(self) -> str:
        if self.best:
            return f"{self.job_id}@{BEST}"
        if self.step is not None:
            return f"{self.job_id}@step:{self.step}"
        return str(self.job_id) if self.commit is None else f"{self.job_id}@{self.commit}"

    @property
    def exact(self) -> bool:
        """Whether one checkpoint is named, for which no other one may stand in."""
        return self.commit is not None or self.step is not None or self.best


def parse_resume_from(text: str) -> ResumeFrom:
    """Parses a `resume_from`. Raises ValueError with the accepted grammar."""
    name, at, which = text.partition("@")
    try:
        job_id = JobId.parse(name)
    except ValueError as error:
        raise ValueError(f"resume_from {text[:300]!r}: {GRAMMAR}; {error}") from error
    if not at:
        return ResumeFrom(job_id)
    if which == BEST:
        return ResumeFrom(job_id, best=True)
    if step := _STEP.fullmatch(which):
        return ResumeFrom(job_id, step=int(step[1]))
    if _COMMIT.fullmatch(which):
        return ResumeFrom(job_id, commit=int(which))
    raise ValueError(f"resume_from {text[:300]!r}: {which[:100]!r} is no checkpoint of {job_id}; {GRAMMAR}")
