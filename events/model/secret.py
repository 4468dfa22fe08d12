"""Declarations of secrets for the control plane: their existence, and the projects that may use them.

Never: a value, or where one is.
"""

from typing import Annotated

from pydantic import Field

from trainhouse.events.model.base import Event
from trainhouse.events.model.spec import Label, Variable


class SecretDeclared(Event, type="trainhouse.secret.declared.v1", public_input=True):
    """A secret of a project is set; jobs of that project and of those in `grants` may name it. The newest declaration counts.

    `kind`: `kept`, or that of its reference (`file`, `env`, `vault`, `aws`).
    """

    project: Label
    name: Variable
    grants: tuple[Label, ...] = Field((), max_length=1024)
    kind: Annotated[str, Field(max_length=32, pattern=r"^[a-z]{1,32}$")] = "kept"


class SecretRemoved(Event, type="trainhouse.secret.removed.v1", public_input=True):
    """A secret is set no more."""

    project: Label
    name: Variable
