"""Memory of a node that is set aside for other nodes' checkpoints."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from trainhouse.checkpointing.peer_memory.holder_choice import Place
from trainhouse.checkpointing.peer_memory.holder_records import rack_of
from trainhouse.events.model.ids import NodeId
from trainhouse.events.model.spec import CheckpointPolicy
from trainhouse.workers.agent.errors import InvalidSettingError
from trainhouse.workers.agent.main import own_place, peer_memory_bytes
from trainhouse.workers.agent.settings import AgentSettings

MACHINE_BYTES = 64 * 2**30


def test_a_node_holds_nothing_unless_it_is_asked_to() -> None:
    assert peer_memory_bytes(AgentSettings(), MACHINE_BYTES) == 0
    assert peer_memory_bytes(AgentSettings(peer_memory_gib=1.5), MACHINE_BYTES) == 1.5 * 2**30
    with pytest.raises(ValidationError):
        AgentSettings(peer_memory_gib=-1)


def test_more_than_half_of_the_machine_is_refused() -> None:
    with pytest.raises(InvalidSettingError, match=r"TRAINHOUSE_AGENT_PEER_MEMORY_GIB is 33, and this machine has 64.0 GiB"):
        peer_memory_bytes(AgentSettings(peer_memory_gib=33), MACHINE_BYTES)


def test_a_node_without_a_label_is_in_no_rack() -> None:
    assert own_place(AgentSettings(node_id=NodeId("n1"))) == Place("n1")
    assert own_place(AgentSettings(node_id=NodeId("n1"), labels={"rack": "r 7"})) == Place("n1", rack_of("r 7"))


def test_a_spec_says_nothing_of_it_unless_it_wants_none() -> None:
    assert "peer_memory" not in CheckpointPolicy().model_dump(mode="json")
    assert CheckpointPolicy(peer_memory=False).model_dump(mode="json")["peer_memory"] is False
