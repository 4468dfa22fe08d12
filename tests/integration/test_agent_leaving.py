"""A node that goes away, for real: an agent, ranks with a session, a store; whoever asks them, they save and leave in time."""

import signal
import threading
import time
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.agent_stage import Stage, T, now_ms, script
from tests.integration.agent_stage import stage as stage
from tests.integration.session_support import store_environment
from tests.support.waiting import until
from trainhouse.deploy.local.servers.kafka_broker import KafkaServer
from trainhouse.events import (
    AttemptStopped,
    CheckpointCompleted,
    CheckpointRequested,
    GangAllocated,
    NodeNoticed,
    NodeRegistered,
    ProgressReported,
    RankExited,
)
from trainhouse.events.bus.admin import create_topics
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import CONTROL
from trainhouse.workers.session import EXIT_STOPPED

if TYPE_CHECKING:
    from trainhouse.deploy.local.servers.seaweedfs import StoreServer

pytestmark = pytest.mark.stack

TRAIN = """
import time, torch
from trainhouse.workers import Session
session = Session.start()
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
session.track(model=model, optimizer=optimizer)
for step in session.steps(1_000_000):
    loss = model(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    session.log(loss=loss)
    time.sleep(0.02)
"""
NEVER_BY_ITSELF = {"checkpoint": {"every_steps": 1_000_000}}
DEADLINE_S = 90


def ask_to_leave(stage: Stage, gang: GangAllocated, told: NodeNoticed) -> None:
    """What the scheduler does when it hears of a notice."""
    fields = {"job_id": gang.job_id, "attempt": gang.attempt, "epoch": gang.epoch, "pool": stage.pool, "reason": "its node goes away"}
    nodes = tuple(p.node_id for p in gang.placements)
    stage.command(CheckpointRequested.model_validate(fields | {"node_ids": nodes, "deadline_ms": told.deadline_ms, "then_stop": True}))


def left_in_time(stage: Stage, job: str, epoch: int, ranks: int, deadline_ms: int) -> None:
    """The gang saved what it had done, and is gone before its node."""

    def of(kind: type[T]) -> list[T]:
        return [e for e in stage.events(kind, job, CONTROL) if getattr(e, "epoch", None) == epoch]

    exits = stage.wait(lambda: of(RankExited), ranks)
    assert [e.exit_code for e in exits] == [EXIT_STOPPED] * ranks, [e.reason for e in exits]
    assert max(e.exited_at_ms for e in exits) < deadline_ms
    (saved,) = stage.wait(lambda: of(CheckpointCompleted))
    reached = max(p.step for p in of(ProgressReported))
    assert saved.step >= reached > 0 and saved.at_ms < deadline_ms
    stage.wait(lambda: of(AttemptStopped))


def again_and_empty(told: NodeRegistered, first: NodeRegistered) -> bool:
    """Whether the node registered anew, with nothing on it."""
    return told.incarnation != first.incarnation and told.running == ()


def test_a_notice_file_has_the_gang_saved_and_gone_and_its_withdrawal_opens_the_node(
    stage: Stage, object_store_endpoint: "StoreServer"
) -> None:
    stage.environment = store_environment(object_store_endpoint)
    for name in ("n1", "n2"):
        stage.start_agent(name)
    first, second = stage.registered("n1"), stage.registered("n2")
    notice = stage.folder / "n1" / "notice"

    # The scheduler does not answer: the node that goes asks its own rank, and that one all others.
    stage.allocate("silent", 0, script(TRAIN, gang=2, **NEVER_BY_ITSELF), [(first, 1), (second, 1)])
    stage.wait_for(ProgressReported, "silent")
    notice.write_text(f"{DEADLINE_S} the rack is moved")
    (told,) = stage.wait(lambda: stage.events(NodeNoticed))
    assert (told.node_id, told.incarnation, told.source, told.reason) == ("n1", first.incarnation, "file", "the rack is moved")
    left_in_time(stage, "silent", 0, 2, told.deadline_ms)
    stage.wait(lambda: stage.events(AttemptStopped, "silent"), 2)

    notice.unlink()
    # Where reports are slow, one registration may come while the agent still tells of what has ended.
    (again, *_) = stage.wait(lambda: [e for e in stage.events(NodeRegistered) if e.node_id == "n1" and again_and_empty(e, first)])

    # The scheduler answers, and the agent told it under its new incarnation.
    gang = stage.allocate("answered", 0, script(TRAIN, **NEVER_BY_ITSELF), [(again, 1)])
    stage.wait_for(ProgressReported, "answered")
    notice.write_text('{"deadline_s": 90}')
    told = stage.wait(lambda: stage.events(NodeNoticed), 2)[1]
    assert told.incarnation == again.incarnation
    ask_to_leave(stage, gang, told)
    left_in_time(stage, "answered", 0, 1, told.deadline_ms)


def test_sigterm_with_the_brokers_away_saves_and_ends_the_ranks_in_time_and_the_next_agent_tells(
    tmp_path: Path, object_store_endpoint: "StoreServer"
) -> None:
    with KafkaServer(tmp_path / "kafka") as server:
        settings = KafkaSettings(bootstrap=server.bootstrap)
        create_topics(settings)
        stage = Stage(settings, "p", tmp_path, environment=store_environment(object_store_endpoint))
        try:
            stage.create_pool()
            agent = stage.start_agent(shutdown_grace_s=40)
            node = stage.registered()
            gang = stage.allocate("cut", 0, script(TRAIN, **NEVER_BY_ITSELF), [(node, 1)])
            stage.wait_for(ProgressReported, "cut")
            server.kill()
            deadline_ms, began_s = now_ms() + 40_000, time.monotonic()
            agent.send_signal(signal.SIGTERM)
            until(stage.paths(gang).rank(0).exit.exists, stage.logs, timeout_s=60)
            assert now_ms() < deadline_ms
            assert agent.wait(90) == 0 and time.monotonic() - began_s < 80
            server.start()
            stage.start_agent()
            left_in_time(stage, "cut", 0, 1, deadline_ms)
        finally:
            stage.close()


def test_a_signal_and_a_clouds_metadata_are_notices_too_and_an_earlier_end_is_told_again(stage: Stage) -> None:
    class Metadata(BaseHTTPRequestHandler):
        said = b""

        def do_GET(self) -> None:
            self.send_response(200 if self.said else 404)
            self.send_header("Content-Length", str(len(self.said)))
            self.end_headers()
            self.wfile.write(self.said)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Metadata) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/latest/meta-data/spot/instance-action"
        agent = stage.start_agent(notice_url=url, notice_interval_s=0.2, notice_deadline_s=3600)
        stage.registered()
        agent.send_signal(signal.SIGUSR1)
        (first,) = stage.wait(lambda: stage.events(NodeNoticed, topic=CONTROL))
        assert first.source == "signal" and 3500 < (first.deadline_ms - first.at_ms) / 1000 <= 3600
        goes = datetime.fromtimestamp(time.time() // 1 + 600, UTC)
        Metadata.said = f'{{"action": "terminate", "time": "{goes:%Y-%m-%dT%H:%M:%SZ}"}}'.encode()
        second = stage.wait(lambda: stage.events(NodeNoticed, topic=CONTROL), 2)[1]
        assert (second.source, second.deadline_ms) == ("aws", round(goes.timestamp() * 1000))
        server.shutdown()
