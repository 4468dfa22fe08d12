"""Declarations of secrets for the control plane: their existence, and the projects that may use them.

Never: a value, or where one is.
"""

from typing import Annotated

from pydantic import Field

from trainhouse.events.model.base import Event
from trainhouse.events.model.labels import Label
from trainhouse.events.model.spec import (
    Variable,
)


class SecretDeclared(Event, type="trainhouse.secret.declared.v1", public_input=True):
    """A secret of a project is set; jobs of that project and of those in `grants` may name it. The newest declaration counts.

    `kind`: `kept`, or that of its reference (`file`, `env`, `vault`, `aws`).
    """

    project: Label = Field(description="project that the secret belongs to")
    name: Variable = Field(description="name of the environment variable")
    grants: tuple[Label, ...] = Field((), max_length=1024, description="other projects whose jobs may name it")
    kind: Annotated[str, Field(max_length=32, pattern=r"^[a-z]{1,32}$")] = Field(
        "kept", description="`kept`, or the kind of its reference: file, env, vault or aws"
    )


class SecretRemoved(Event, type="trainhouse.secret.removed.v1", public_input=True):
    """A secret is set no more."""

    project: Label = Field(description="project that the secret belonged to")
    name: Variable = Field(description="name of the environment variable")
