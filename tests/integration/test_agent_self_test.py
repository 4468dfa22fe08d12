"""A node's self test on a real agent: asked by its scheduler, told to it, and the agent goes on meanwhile."""

from typing import TYPE_CHECKING

import pytest

from tests.integration.agent_stage import Stage, now_ms, script
from tests.integration.agent_stage import stage as stage
from tests.integration.session_support import store_environment
from trainhouse.events import AttemptStopped, NodeProbeAsked, NodeProbed
from trainhouse.events.wire.topics import CONTROL

if TYPE_CHECKING:
    from trainhouse.deploy.local.servers.seaweedfs import StoreServer

pytestmark = pytest.mark.stack


def test_a_node_tests_itself_when_it_is_asked(stage: Stage, object_store_endpoint: "StoreServer") -> None:
    stage.environment = store_environment(object_store_endpoint)
    stage.start_agent()
    node = stage.registered()
    asked = NodeProbeAsked(node_id=node.node_id, boot_id=node.boot_id, pool=stage.pool, probe=1, at_ms=now_ms())
    stage.command(asked.model_copy(update={"boot_id": "an-earlier-one"}))
    stage.command(asked)
    stage.allocate("meanwhile", 0, script("pass"), [(node, 1)])
    stage.wait_for(AttemptStopped, "meanwhile")
    (told,) = stage.wait(lambda: stage.events(NodeProbed, topic=CONTROL), timeout_s=150)
    assert told.passed, told.checks
    assert (told.node_id, told.boot_id, told.probe) == (node.node_id, node.boot_id, 1)
    assert [c.name for c in told.checks] == ["network", "disk", "memory", "processors", "store", "clock"]
