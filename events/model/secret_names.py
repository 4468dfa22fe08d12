"""The names of secrets, PROJECT/NAME, and which of them a job may use. Pure.

Holds: a secret belongs to one project; jobs of another one use it only where it is granted to theirs. A name without a project, in a spec,
is that of the job's own project, else the default project's. The last part of a name is the variable in which ranks get the value.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from trainhouse.events.model.default_project import DEFAULT_PROJECT

VARIABLE = r"[A-Za-z_][A-Za-z0-9_]{0,127}"
PATTERN = rf"^(?:[^\x00-\x1f]{{1,128}}/)?{VARIABLE}$"


class SecretNameError(ValueError):
    """A text names no secret."""


class SecretRefusedError(ValueError):
    """A job may not use a secret that it names."""


@dataclass(frozen=True, order=True)
class SecretName:
    """One secret. As text, the default project is left out, as people type it."""

    project: str
    name: str

    @classmethod
    def parse(cls, text: str, project: str = DEFAULT_PROJECT) -> "SecretName":
        """Reads `PROJECT/NAME`, or `NAME` of `project`. Raises SecretNameError."""
        if not re.fullmatch(PATTERN, text):
            raise SecretNameError(
                f"{text!r} names no secret: write NAME or PROJECT/NAME, NAME as an environment variable: letters, digits, _, no digit first"
            )
        owner, slash, name = text.rpartition("/")
        return cls(owner if slash else project, name)

    def __str__(self) -> str:
        return self.name if self.project == DEFAULT_PROJECT else f"{self.project}/{self.name}"


def variable_of(wanted: str) -> str:
    """The environment variable of a secret as a spec names it."""
    return wanted.rpartition("/")[2]


def meant(project: str, wanted: str) -> tuple[SecretName, ...]:
    """Secrets that a name may mean in a job of this project; the first that exists counts."""
    if "/" in wanted:
        return (SecretName.parse(wanted),)
    return tuple(dict.fromkeys((SecretName(project, wanted), SecretName(DEFAULT_PROJECT, wanted))))


def usable(project: str, wanted: str, grants: Mapping[SecretName, Collection[str]]) -> SecretName | None:
    """The secret that a job gets, of those that are known with the projects they are granted to; None: no such secret is known.

    Raises SecretRefusedError when one is, and not for this project.
    """
    known = [name for name in meant(project, wanted) if name in grants]
    for name in known:
        if name.project == project or project in grants[name]:
            return name
    if known:
        raise SecretRefusedError(
            f"the secret {known[0]} belongs to project {known[0].project} and is not granted to project {project}: "
            f"`trainhouse secrets grant {known[0]} --to {project}` grants it, "
            f"`trainhouse secrets set {SecretName(project, known[0].name)}` sets one of the project's own"
        )
    return None
