"""The end of an agent: what its operations still answer gets to the brokers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.workers.agent.test_agent_outbox import FakeProducer
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.events import GangAllocated, JobSpec, NodeAccess, NodePlacement, OperationReplied, ProfileRanks, decode
from trainhouse.events.model.node_audit import Outcome
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import NODE_AUDIT, OPERATION_REPLIES
from trainhouse.workers.agent import main
from trainhouse.workers.agent.core import AttemptKey, LocalAttempt
from trainhouse.workers.agent.core.agent_state import Running
from trainhouse.workers.agent.launch.launching import paths_of
from trainhouse.workers.agent.settings import AgentSettings
from trainhouse.workers.launcher.processes import write_process


def test_a_profile_under_way_has_its_end_with_the_brokers_when_the_agent_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = FakeProducer()
    monkeypatch.setattr(main, "Producer", lambda config: producer)
    settings = AgentSettings.model_validate({"node_id": "n", "dir": tmp_path / "agent"}).resolved()
    agent, inbox = main.build(settings, KafkaSettings(bootstrap="127.0.0.1:1"), StoreSettings())
    spec = JobSpec.model_validate({"runtime": {"command": ["python"]}})
    place = NodePlacement.model_validate({"node_id": "n", "boot_id": "b", "address": "127.0.0.1", "first_rank": 0, "devices": ("d",)})
    ids = {"job_id": "j", "attempt": 1, "epoch": 3, "pool": "p", "spec": spec, "spec_sha256": spec.sha256()}
    allocation = GangAllocated.model_validate({**ids, "placements": (place,), "master_address": "127.0.0.1", "master_port": 1})
    rank = paths_of(settings.dir, AttemptKey("j", 3)).rank(0)
    rank.folder.mkdir(parents=True)
    rank.spool.touch()
    write_process(rank.pid, os.getpid())
    agent.state.attempts[AttemptKey("j", 3)] = LocalAttempt(allocation, place, Running())
    # the rank is this process: it lives, and answers nothing
    fields = {"request_id": "r", "node_id": "n", "job_id": "j", "expires_at_ms": main.now_ms() + 60_000, "ranks": (0,), "steps": 5}
    parts = agent._p
    parts.operations.ask(ProfileRanks.model_validate(fields), agent.state, main.now_ms())
    agent._end_operations()
    parts.outbox.poll()
    told = [(topic, decode(value).event) for topic, value in producer.taken]
    (end,) = [event for topic, event in told if topic == OPERATION_REPLIES and isinstance(event, OperationReplied) and event.done]
    assert end.text.startswith("rank 0: this node's agent stops; a trace that it records is stored all the same")
    accesses = [event.outcome for topic, event in told if topic == NODE_AUDIT and isinstance(event, NodeAccess)]
    assert accesses == [Outcome.GRANTED, Outcome.ENDED] and inbox.empty()
