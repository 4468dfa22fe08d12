"""Room for another study: bounds on studies and their values, shared out to projects, and in a project to users. Pure.

Holds: a name is taken for good. Ids of trials' jobs follow from it, so does the key of all that is kept of a study in topics and SQL: of a
second study by that name both would be the first one's. So an ended study is never forgotten, though nothing but its name is kept.
"""

from collections.abc import Sequence

from trainhouse.events import StudySpec
from trainhouse.scheduler.core.studies.study_state import (
    MAX_NAMES,
    MAX_OPEN,
    MAX_VALUES,
    PROJECT_SHARE,
    USER_SHARE,
    StudyEntry,
    TunerState,
    most_trials,
)


def why_no_room(state: TunerState, project: str, user: str, spec: StudySpec) -> str:
    """Returns the reason that no other study begins; empty where there is room."""
    studies = list(state.studies.values())
    of_project = [each for each in studies if each.project == project]
    of_user = [each for each in of_project if each.user == user]
    names, all_names = state.names.get(project, 0), sum(state.names.values())
    if names >= MAX_NAMES // PROJECT_SHARE or all_names >= MAX_NAMES:
        return (
            f"project {project} had {names} studies, all projects {all_names}, and no more may be, since names are taken for good: "
            "use another project, or ask an operator"
        )
    if len(of_project) >= MAX_OPEN // PROJECT_SHARE or len(studies) >= MAX_OPEN:
        return f"{len(of_project)} studies of project {project} and {len(studies)} in all have not ended; wait for one, or stop one"
    if len(of_user) >= MAX_OPEN // PROJECT_SHARE // USER_SHARE:
        return (
            f"{len(of_user)} studies of {user} in project {project} have not ended, and one user may have so many: wait for one, or stop "
            f"one, as `trainhouse study stop {of_user[0].study} --project {project}` does"
        )
    shares: tuple[tuple[str, Sequence[StudyEntry], int], ...] = (
        (f"{user} in project {project}", of_user, MAX_VALUES // PROJECT_SHARE // USER_SHARE),
        (f"project {project}", of_project, MAX_VALUES // PROJECT_SHARE),
        ("all projects", studies, MAX_VALUES),
    )
    for owner, entries, most in shares:
        left = most - sum(_values(each.spec) for each in entries)
        if _values(spec) > left:
            return (
                f"the study may come to {_values(spec)} values of parameters, and studies of {owner} have room for {left}: "
                "name a smaller budget.trials, or wait for another study to end"
            )
    return ""


def _values(spec: StudySpec) -> int:
    """Values of parameters that a study may come to, long texts as several."""
    longest = (max((len(str(choice)) for choice in each.choices), default=0) for each in spec.space.values())
    return (most_trials(spec) + len(spec.known)) * sum(1 + chars // 64 for chars in longest)
