"""The topics of one project: where its people ask for jobs, and where they read what became of them.

Holds: the topic alone says whose a record is; a project's name is safe in a topic and holds no '.', so that `PROJECT.` begins the ids
of its jobs and of no other's.
Never: made by a broker on its own; `trainhouse project topics create` makes both.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from trainhouse.events.wire import topics
from trainhouse.events.wire.topics import Topic

JOBS_PREFIX = f"{topics.JOBS}."
STATUS_PREFIX = f"{topics.STATUS}."
MAX_PROJECT_CHARS = 100
_NAME = rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{MAX_PROJECT_CHARS - 1}}}"
# From then on after its making, everything that is published for a topic is on it.
TOPICS_COUNT_AFTER_S = 1.0
JOBS_PATTERN = rf"^{re.escape(JOBS_PREFIX)}{_NAME}$"
_PROJECT = re.compile(rf"^{_NAME}$")


def may_have_topics(project: str) -> bool:
    """Whether a project of this name can have topics of its own."""
    return _PROJECT.fullmatch(project) is not None


def jobs_topic(project: str) -> str:
    """Topic of a project's job requests: submissions, cancellations, changes."""
    return JOBS_PREFIX + project


def status_topic(project: str) -> str:
    """Topic of a project's job statuses, and of no other's."""
    return STATUS_PREFIX + project


def project_of(topic: str) -> str | None:
    """The project whose topic for requests this is; None for every other topic."""
    project = topic.removeprefix(JOBS_PREFIX)
    return project if project != topic and may_have_topics(project) else None


def rows_of(names: Iterable[str]) -> list[Topic]:
    """The rows of those of these topics that are a project's own."""
    found: list[Topic] = []
    for name in sorted(names):
        project = name.removeprefix(JOBS_PREFIX if name.startswith(JOBS_PREFIX) else STATUS_PREFIX)
        if project != name and may_have_topics(project):
            found += [row for row in topics_of(project) if row.name == name]
    return found


def topics_of(project: str) -> tuple[Topic, Topic]:
    """The rows of both topics. Raises ValueError for a name that cannot have any."""
    if not may_have_topics(project):
        raise ValueError(
            f"project {project[:140]!r} cannot have topics: use 1 to {MAX_PROJECT_CHARS} letters, digits, '_' or '-', "
            "starting with a letter or digit"
        )
    jobs, status = (topics.topic(name) for name in (topics.JOBS, topics.STATUS))
    return (
        replace(jobs, name=jobs_topic(project), carries="JobSubmitted, CancelJob, ChangeJob, ReviewJob of this project"),
        replace(status, name=status_topic(project), carries="JobStatus: as on the status topic, of this project's jobs alone"),
    )
