"""Where a job begins from: another job's checkpoint, named in a spec's `resume_from`.

Holds: `JOB` means the newest healthy checkpoint of that job, `JOB@N` its commit N.
"""

from trainhouse.events.ids import JobId


def parse_resume_from(text: str) -> tuple[JobId, int | None]:
    """The job and the commit (None: the newest). Raises ValueError that says what to write."""
    job, at, commit = text.partition("@")
    if at and not (commit.isascii() and commit.isdigit()):
        raise ValueError(f"resume_from {text!r}: after '@' comes the number of a commit; write JOB or JOB@N")
    try:
        return JobId.parse(job), int(commit) if at else None
    except ValueError as error:
        raise ValueError(f"resume_from {text!r}: write JOB or JOB@N; {error}") from error
