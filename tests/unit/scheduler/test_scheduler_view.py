"""The state as rows: what each says is what the records say, in a stated order, and looking changes nothing."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.core_world import Driver, admitted, registered, token
from tests.support.profiles import examples
from trainhouse.events import Event, GangAllocated, PoolCreated
from trainhouse.events.model.pool import CordonNode, DrainNode, PolicyChanged, QuarantineNode, UncordonNode
from trainhouse.scheduler.state_rows import KINDS, cluster

Kinds = dict[str, list[dict[str, Any]]]


def view(d: Driver) -> Kinds:
    before = d.machine.dump(d.state)
    found = cluster([d.state], d.now_ms)
    assert d.machine.dump(d.state) == before, "looking changed the state"
    assert set(found) == set(KINDS)
    orjson.dumps(found)
    return found


def policy(**fields: Any) -> PolicyChanged:
    return PolicyChanged.model_validate({"pool": "default", "policy": fields, "user": "ada"})


def two_nodes() -> Driver:
    d = Driver()
    d.feed(PoolCreated.model_validate({"pool": "default", "partition": 0}))
    d.feed(registered("n1", slots=2, labels={"rack": "r1"}), registered("n2", slots=2, device_type="h100"))
    d.tick()
    return d


def test_devices_are_free_held_or_closed() -> None:
    d = two_nodes()
    d.feed(admitted("j1", ranks=1, device_type="cpu"))
    d.tick()
    d.feed(CordonNode.model_validate({"pool": "default", "node_id": "n2", "user": "ada", "reason": "fan"}))
    found = view(d)
    assert found["pools"][0] | {"levels": []} == {
        "pool": "default",
        "partition": 0,
        "nodes": 2,
        "nodes_open": 1,
        "nodes_lost": 0,
        "nodes_closed": 1,
        "devices": {
            "cpu": {"total": 2, "held": 1, "free": 1, "closed": 0},
            "h100": {"total": 2, "held": 0, "free": 0, "closed": 2},
        },
        "levels": [],
        "policy": "default",
        "policy_version": 0,
        "waiting": 0,
        "running": 1,
    }
    assert "rack" in found["pools"][0]["levels"]
    first, second = found["nodes"]
    assert [h["job_id"] for h in first["holds"]] == ["j1"]
    assert (second["restriction"], second["restricted_by"], second["restricted_for"]) == ("CORDONED", "ada", "fan")
    gang = found["running"][0]
    assert (gang["job_id"], gang["ranks"], gang["nodes"]) == ("j1", 1, [{"node_id": "n1", "ranks": 1}])


def test_the_queue_is_in_the_order_of_the_policy() -> None:
    d = two_nodes()
    d.feed(policy(name="first", order="submit"))
    d.feed(admitted("big", ranks=2, device_type="cpu"))
    d.tick()
    d.feed(*(admitted(f"j{n}", ranks=2, device_type="cpu", priority=50 - n) for n in range(3)))
    assert [(r["place"], r["job_id"]) for r in view(d)["queue"]] == [(1, "j0"), (2, "j1"), (3, "j2")]
    d.feed(policy(name="by-priority", order="score"))
    found = view(d)
    assert [r["job_id"] for r in found["queue"]] == ["j2", "j1", "j0"]
    assert [(p["name"], p["version"]) for p in found["policies"]] == [("by-priority", 2)]


def test_teams_are_told_with_their_quotas_and_what_they_hold() -> None:
    d = two_nodes()
    d.feed(policy(name="x", teams=[{"name": "a", "guaranteed": {"cpu": 2}}, {"name": "b", "limit": {"cpu": 1}}]))
    d.feed(admitted("j1", ranks=2, device_type="cpu", team="a"), admitted("j2", ranks=1, device_type="cpu", team="c"))
    d.tick()
    teams = {t["team"]: t for t in view(d)["teams"]}
    assert sorted(teams) == ["a", "b", "c"]
    assert (teams["a"]["devices"], teams["a"]["guaranteed"]) == (2, {"cpu": 2})
    assert teams["b"]["limit"] == {"cpu": 1}
    assert (teams["c"]["devices"], teams["c"]["waiting"]) == (0, 1)


step = st.one_of(
    st.builds(lambda n, r: admitted(f"j{n}", ranks=r, device_type="cpu"), st.integers(0, 9), st.integers(1, 2)),
    st.sampled_from(
        [
            kind.model_validate({"pool": "default", "node_id": n})
            for kind in (CordonNode, UncordonNode, DrainNode, QuarantineNode)
            for n in ("n1", "n2")
        ]
    ),
    st.sampled_from([registered("n1", slots=2), registered("n1", slots=2, boot_id="boot-2"), registered("n3", slots=1)]),
)


@settings(max_examples=examples(40))
@given(st.lists(step, max_size=15))
def test_every_device_is_counted_once_and_every_job_is_somewhere(steps: list[Event]) -> None:
    d = two_nodes()
    for seq, event in enumerate(steps):
        d.feed(token(event, seq) if not event.event_type.startswith("trainhouse.node.registered") else event)
        d.tick(500)
    found = view(d)
    for node in found["nodes"]:
        for counts in node["devices"].values():
            assert counts["total"] == counts["held"] + counts["free"] + counts["closed"]
            assert counts["free"] == 0 or node["restriction"] == "NONE"
    in_gangs, waiting = {r["job_id"] for r in found["running"]}, [r["job_id"] for r in found["queue"]]
    assert not in_gangs & set(waiting) and len(waiting) == len(set(waiting))
    assert in_gangs | set(waiting) == set(d.state.jobs)
    gangs = {str(g.job_id): g.world_size for g in d.all(GangAllocated)}
    assert all(r["ranks"] == gangs[r["job_id"]] for r in found["running"])
