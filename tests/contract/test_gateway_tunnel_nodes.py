"""Requests for tunnels over the real tables: which nodes may answer one, and that a node's refusal reaches the user."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.gateway_world import NOW_MS, SPEC, World, world_in
from tests.support.waiting import until
from trainhouse.events import GangAllocated, JobStatus, JobSubmitted, NodeAccess, NodeKeyed, OpenTunnel
from trainhouse.events.security.signing import SigningKey
from trainhouse.events.wire import topics
from trainhouse.gateway.tunnels import tunnel_routes

JOBS = "/v1/training-jobs"
REASON = "no known key signed it, and http://gateway is no gateway of this node's settings (none)"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_in(tmp_path_factory.mktemp("world"), url="http://gateway") as made:
        yield made


def session(world: World, job_id: str, node: str) -> None:
    """An interactive job of ana's that runs on a node."""
    spec = SPEC | {"project": "vision", "user": "ana", "interactive": {}}
    submitted = JobSubmitted.model_validate({"job_id": job_id, "spec": spec})
    world.tables.put(topics.JOBS, [submitted], NOW_MS)
    fields = {"job_id": job_id, "status_seq": 1, "state": "RUNNING", "name": "gpt", "project": "vision", "user": "ana", "pool": "default"}
    more = {"submitted_at_ms": NOW_MS, "updated_at_ms": NOW_MS, "spec_sha256": submitted.spec.sha256(), "epoch": 1}
    world.tables.put(topics.STATUS, [JobStatus.model_validate(fields | more)], NOW_MS)
    place = {"boot_id": "b", "address": "127.0.0.1", "devices": ["0"], "node_id": node, "first_rank": 0}
    about = {"job_id": job_id, "attempt": 0, "epoch": 1, "pool": "default", "spec": spec, "spec_sha256": "0", "placements": [place]}
    gang = GangAllocated.model_validate(about | {"master_address": "127.0.0.1", "master_port": 1234})
    world.tables.put(topics.ALLOCATIONS, [gang], NOW_MS)


def keyed(world: World, node: str, public_key: str) -> None:
    event = NodeKeyed.model_validate({"node_id": node, "pool": "default", "public_key": public_key, "at_ms": NOW_MS})
    world.tables.put(topics.NODE_KEYS, [event], NOW_MS)


def asked(world: World, job_id: str) -> Any:
    return world.client.post(f"{JOBS}/{job_id}/tunnels", headers=world.token("ana"))


def refused_by(world: World, event: OpenTunnel, outcome: str = "refused") -> None:
    """The node's audit, without its signature."""
    about = {
        "at_ms": NOW_MS,
        "since_ms": NOW_MS,
        "access": "exec",
        "action": "OpenTunnel",
        "job_id": event.job_id,
        "node_id": event.node_id,
    }
    access = NodeAccess.model_validate(about | {"access_id": event.request_id, "outcome": outcome, "reason": REASON, "ranks": (0,)})
    world.tables.put(topics.NODE_AUDIT, [access], NOW_MS)


def sent_to(world: World, node: str) -> OpenTunnel:
    return until(lambda: next((e for e in world.bus.of(OpenTunnel) if e.node_id == node), None), f"nothing was asked of {node}")


def test_a_node_without_a_key_and_one_whose_key_was_forgotten_are_not_asked(world: World) -> None:
    session(world, "shell-1", "keyless")
    session(world, "shell-2", "forgotten")
    keyed(world, "forgotten", SigningKey.made().public_key)
    keyed(world, "forgotten", "")
    for job, node in (("shell-1", "keyless"), ("shell-2", "forgotten")):
        answer = asked(world, job)
        assert answer.status_code == 409, answer.text
        assert f"node {node} of job {job} has no known key, so nothing shows that a call is its own" in answer.json()["detail"]
    assert not world.bus.of(OpenTunnel) and not len(world.gateway.tunnels)


def test_a_refusal_of_a_node_that_may_sign_nothing_reaches_the_user(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = world.gateway.settings.model_copy(update={"tunnels_to_unsigned_nodes": True})
    monkeypatch.setattr(world.gateway, "settings", settings)
    session(world, "shell-3", "unsigned")
    with ThreadPoolExecutor(1) as beside:
        answer = beside.submit(asked, world, "shell-3")
        refused_by(world, sent_to(world, "unsigned"))
        found = answer.result()
    assert found.status_code == 409 and found.json()["detail"] == f"job shell-3: node unsigned refused: {REASON}"
    assert not len(world.gateway.tunnels)


def test_a_refusal_in_the_name_of_a_node_with_a_key_is_believed_with_its_signature_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnel_routes, "NODE_S", 5.0)
    session(world, "shell-4", "keyed")
    keyed(world, "keyed", SigningKey.made().public_key)
    with ThreadPoolExecutor(1) as beside:
        answer = beside.submit(asked, world, "shell-4")
        refused_by(world, sent_to(world, "keyed"))
        found = answer.result()
    assert found.status_code == 504 and "did not call back" in found.json()["detail"]
