"""Grants of datasets over HTTP: seen by the dataset's project and by who has one, changed by maintainers and operators alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.dataset_versions import version
from tests.support.gateway_world import World
from trainhouse.events import (
    DatasetGranted,
    DatasetGrantRevoked,
    DatasetVersionPublished,
    GrantDataset,
    Project,
    ProjectApplied,
    RequestAccepted,
    RevokeDatasetGrant,
)
from trainhouse.events.wire import topics

NOW_MS = 1_790_000_000_000
FACES = version("lent-faces", "vision")


@pytest.fixture
def world(gateway_world: World) -> World:
    published = DatasetVersionPublished(version=FACES, semver="1.0.0", created_by="ada", published_at_ms=NOW_MS)
    gateway_world.tables.put(topics.DATASETS, [published], NOW_MS)
    return gateway_world


def granted(project: str, sha256: str | None = FACES.sha256, number: int = 1) -> DatasetGranted:
    about = {"dataset": "lent-faces", "sha256": sha256, "owner": "vision", "project": project, "purpose": "research", "user": "mia"}
    return DatasetGranted.model_validate(about | {"number": number, "granted_at_ms": NOW_MS + number})


def test_grants_are_shown_to_the_owner_and_to_each_project_its_own(world: World) -> None:
    path = "/v1/datasets/lent-faces/grants"
    assert world.client.get(path, headers=world.token("ana")).json()["items"] == []
    assert world.client.get(path, headers=world.token("eve", projects=("speech",))).status_code == 404
    over = granted("audio", number=3).model_dump(exclude={"granted_at_ms", "resent"}) | {"revoked_at_ms": NOW_MS, "number": 4}
    said = [granted("speech"), granted("robots", None, 2), granted("audio", number=3), DatasetGrantRevoked.model_validate(over)]
    world.tables.put(topics.DATASETS, said, NOW_MS)

    def seen(headers: dict[str, str], **parameters: Any) -> list[tuple[str, str, int]]:
        answer = world.client.get(path, headers=headers, params=parameters)
        assert answer.status_code == 200, answer.text
        return [(item["project"], item["version"], item["revoked"]) for item in answer.json()["items"]]

    every = [("audio", str(FACES.name), 1), ("robots", "", 0), ("speech", str(FACES.name), 0)]
    assert seen(world.token("ana")) == every and seen(world.token("ana"), limit=2) == every[:2]
    assert seen(world.token("ana"), revoked=False) == every[1:] and seen(world.token("ana"), revoked=True) == every[:1]
    assert seen(world.token("eve", projects=("speech",))) == [every[2]]
    assert world.client.get(path, headers=world.token("eve", projects=("none",))).status_code == 404
    assert world.client.get("/v1/datasets/none/grants", headers=world.admin()).status_code == 404


def test_a_maintainer_or_operator_grants_and_revokes_and_nobody_else(world: World) -> None:
    path, body = "/v1/datasets/lent-faces/grants", {"version": "1.0.0", "project": "speech", "purpose": "research", "reason": "joint work"}
    project = Project.model_validate({"name": "vision", "members": {"mia": "maintainer", "ana": "submitter"}})
    members = ProjectApplied(project=project, version=9, applied_at_ms=NOW_MS)
    world.gateway.projects.put(members)
    before = len(world.bus.of(GrantDataset))
    for headers, code in (
        (world.token("ana"), 403),
        (world.token("ana", role="viewer"), 403),
        (world.token("eve", projects=("speech",)), 404),
        (world.token("mia", projects=("speech",)), 404),
    ):
        answer = world.client.post(path, json=body, headers=headers)
        assert answer.status_code == code, answer.text
        named = {"project": "speech", "purpose": "research"}
        assert world.client.delete(path, params=named, headers=headers).status_code == code
    assert len(world.bus.of(GrantDataset)) == before
    assert world.client.post("/v1/datasets/none/grants", json=body, headers=world.admin()).status_code == 404
    assert world.client.post(path, json=body | {"version": "7.0.0"}, headers=world.admin()).status_code == 404
    assert world.client.post(path, json={"project": "speech"}, headers=world.admin()).status_code == 422

    answer = world.client.post(path, json=body, headers=world.token("mia"))
    assert answer.status_code == 202, answer.text
    asked = world.bus.of(GrantDataset)[-1]
    assert (asked.dataset, asked.sha256, asked.project, asked.purpose) == ("lent-faces", FACES.sha256, "speech", "research")
    assert (asked.user, asked.reason) == ("mia", "joint work")
    accepted = world.bus.of(RequestAccepted)[-1]
    assert accepted.event_id == answer.json()["event_id"] and accepted.project == "vision" and str(FACES.name) in accepted.target
    named = {"project": "speech", "purpose": "research", "reason": "it is out"}
    answer = world.client.delete(path, params=named, headers=world.admin())
    assert answer.status_code == 202, answer.text
    over = world.bus.of(RevokeDatasetGrant)[-1]
    assert (over.sha256, over.project, over.purpose, over.reason) == (None, "speech", "research", "it is out")
