"""Requester of an action, and the evidence for that identity.

Holds: intake rewrites it for requests on a project's topic; there it never claims more than the topic proves.
Never: proof by itself: the brokers authorize writers of a topic, and requests that agents obey are signed.
"""

from enum import StrEnum

from pydantic import Field

from trainhouse.events.model.base import Model


class AskedVia(StrEnum):
    """Evidence for a requester's name. GATEWAY: it verified the user's token. OPERATOR: Kafka credentials that write to `trainhouse.jobs`,
    or an operations key; the name is a claim of their holder. PROJECT: credentials that write to a project's topic; the name is a claim."""

    GATEWAY = "gateway"
    OPERATOR = "operator"
    PROJECT = "project"


class RequestedBy(Model):
    """Requester. `role` is the gateway's word for what its user may do; `project` the topic's project, where one vouches."""

    name: str = Field(min_length=1, max_length=256, description="who asked")
    via: AskedVia = Field(description="how that is known")
    role: str = Field("", max_length=32, description="role with which a gateway let the user in")
    project: str = Field("", max_length=128, description="project of the topic that vouches for it")


def requester(requested_by: RequestedBy | None, user: str) -> str:
    """Returns the name of who asks: by the evidence for it, else as the request has it."""
    return requested_by.name if requested_by is not None else user
