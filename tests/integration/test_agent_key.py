"""A node whose disk is new: its agent's key was refused, and counts without a restart once the old one is forgotten."""

import time

import pytest

from tests.integration.agent_stage import Stage
from tests.integration.agent_stage import stage as stage
from trainhouse.events import NodeKeyed, NodeRegistered
from trainhouse.events.wire.topics import NODE_KEYS

pytestmark = pytest.mark.stack
OTHER = "b" * 43


def keyed(stage: Stage, public_key: str) -> None:
    """What the scheduler says of the node's key."""
    about = {"node_id": "n1", "pool": stage.pool, "public_key": public_key, "at_ms": time.time_ns() // 1_000_000}
    stage._say(NODE_KEYS, NodeKeyed.model_validate(about), partition=0)


def registrations(stage: Stage) -> int:
    return len([e for e in stage.events(NodeRegistered) if e.node_id == "n1"])


def test_an_agent_whose_key_was_refused_announces_it_when_the_old_one_is_forgotten(stage: Stage) -> None:
    stage.start_agent()
    first = stage.registered()
    keyed(stage, OTHER)
    keyed(stage, "")
    again = stage.registered(nth=2)
    assert again.public_key == first.public_key != OTHER and again.incarnation != first.incarnation
    keyed(stage, again.public_key)
    keyed(stage, "")
    stage.listen(2.0)
    assert registrations(stage) == 2, "a key that counted and was forgotten may be stolen"
