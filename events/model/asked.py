"""Who asked for something, and what that rests on.

Holds: intake writes it anew for what comes by a project's topic; there it never says more than the topic does.
Never: proof by itself: who may write to a topic is the brokers' matter, and what an agent obeys is signed.
"""

from enum import StrEnum

from pydantic import Field

from trainhouse.events.model.base import Model


class AskedVia(StrEnum):
    """What a name rests on. GATEWAY: it verified the user's token. OPERATOR: whose Kafka credentials write to `trainhouse.jobs`, or who
    holds an operations key; the name is what they say. PROJECT: whoever may write to a project's topic; the name is a claim."""

    GATEWAY = "gateway"
    OPERATOR = "operator"
    PROJECT = "project"


class RequestedBy(Model):
    """Who asked. `role` is the gateway's word for what its user may do; `project` the topic's project, where one vouches."""

    name: str = Field(min_length=1, max_length=256)
    via: AskedVia
    role: str = Field("", max_length=32)
    project: str = Field("", max_length=128)
