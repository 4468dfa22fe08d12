"""Room for what waits for the object store: why nothing more may wait, and how many registrations of jobs may be sent. Pure.

Holds: registrations that jobs ask for take at most one part in JOBS_SHARE of the room of a project, so that people have the rest.
"""

from typing import Final

from trainhouse.events.model.model_key import model_key
from trainhouse.scheduler.core.registry.registry_state import (
    MAX_HELD,
    MAX_STAGES_OF_MODEL,
    MAX_STAGES_WAITING,
    PROJECT_SHARE,
    RegistryState,
)

JOBS_SHARE: Final = 2


def why_stages_wait(state: RegistryState, project: str, name: str) -> str:
    """The reason that a request of a model must wait for changes of stages; empty where there is none."""
    waiting, most = len(state.stages), MAX_STAGES_WAITING // PROJECT_SHARE
    if waiting >= most and sum(each.project == project for each in state.stages.values()) >= most:
        return f"{most} changes of stages of project {project} wait for the object store; ask again once it answers"
    if waiting >= MAX_STAGES_WAITING:
        return f"{waiting} changes of stages wait for the object store; ask again once it answers"
    if waiting >= MAX_STAGES_OF_MODEL:
        of_model = sum((each.project, each.name) == (project, name) for each in state.stages.values())
        if of_model >= MAX_STAGES_OF_MODEL:
            key = model_key(project, name)
            return f"{of_model} changes of stages of model {key} wait for the object store; see intake's log for what fails"
    return ""


def why_registrations_wait(state: RegistryState, project: str) -> str:
    """The reason that no registration of a project is held besides; empty where there is none."""
    most = MAX_HELD // PROJECT_SHARE
    if held_of(state, project) >= most:
        return f"{most} registrations of project {project} wait for the object store; ask again once it answers"
    if len(state.held) >= MAX_HELD:
        return f"{MAX_HELD} registrations wait for the object store; ask again once it answers"
    return ""


def held_of(state: RegistryState, project: str) -> int:
    """Number of registrations of a project that wait."""
    return sum(each.registered.project == project for each in state.held.values())


class JobsRoom:
    """Room for registrations that jobs ask for, as of a state."""

    def __init__(self, state: RegistryState) -> None:
        self._state = state
        self._all = MAX_HELD // JOBS_SHARE - len(state.held)
        self._of_project: dict[str, int] = {}
        self._stages_wait: dict[tuple[str, str], bool] = {}

    def has(self, project: str, name: str) -> bool:
        """Whether one more may be sent."""
        if (project, name) not in self._stages_wait:
            self._stages_wait[project, name] = bool(why_stages_wait(self._state, project, name))
        return not self._stages_wait[project, name] and self._all > 0 and self._left(project) > 0

    def take(self, project: str) -> None:
        """Counts one that was sent, and is not held yet."""
        self._of_project[project] = self._left(project) - 1
        self._all -= 1

    def _left(self, project: str) -> int:
        if project not in self._of_project:
            self._of_project[project] = MAX_HELD // PROJECT_SHARE // JOBS_SHARE - held_of(self._state, project)
        return self._of_project[project]
