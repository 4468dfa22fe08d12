"""Artifacts over HTTP: files by hash, versions of them, contents with ranges; each project's alone."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import pytest

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.gateway_world import NOW_MS, World
from trainhouse.checkpointing.artifacts.artifact_store import ArtifactStore
from trainhouse.cli.artifacts.storage_room import check_room
from trainhouse.cli.shared.exit_codes import CliError
from trainhouse.client.sql import Table
from trainhouse.events.model.artifact import ArtifactRecorded, ArtifactStored
from trainhouse.events.model.artifact_keys import name_key, object_key, reference_key
from trainhouse.events.model.project import ProjectApplied
from trainhouse.events.model.tracking import TrackedRunBegun, TrackedRunChanged
from trainhouse.events.wire import topics

SHA = "ab" * 32


@pytest.fixture
def objects(gateway_world: World, monkeypatch: pytest.MonkeyPatch) -> MemoryObjectStore:
    stored = MemoryObjectStore()
    monkeypatch.setattr(gateway_world.client.app.state, "code_store", stored, raising=False)  # type: ignore[attr-defined]
    return stored


def sent(world: World, content: bytes, project: str = "vision", **headers: Any) -> dict[str, Any]:
    sha256 = hashlib.sha256(content).hexdigest()
    answer = world.client.put(f"/v1/artifacts/files/{sha256}", params={"project": project}, content=content, headers=headers["headers"])
    assert answer.status_code == 200, answer.text
    return {"path": f"{sha256[:4]}.bin", "bytes": len(content), "sha256": sha256}


def test_files_make_a_version_that_is_listed_read_and_deleted(gateway_world: World, objects: MemoryObjectStore) -> None:
    world, ana, of_vision = gateway_world, gateway_world.token(), {"project": "vision"}
    contents = [b"first" * 1000, b"", random.Random(1).randbytes(300_000)]
    files = [sent(world, content, headers=ana) for content in contents]
    made = world.client.post("/v1/artifacts/bpe", params=of_vision, json={"kind": "tokenizer", "files": files}, headers=ana)
    assert made.status_code == 201, made.text
    version = made.json()
    again = world.client.post("/v1/artifacts/bpe", params=of_vision, json={"kind": "tokenizer", "files": files[::-1]}, headers=ana)
    assert again.json()["sha256"] == version["sha256"], "whatever order the files come in"
    events = world.bus.of(ArtifactStored)
    assert [(e.name, e.kind, e.project, e.files, e.user, e.deleted) for e in events] == [
        ("bpe", "tokenizer", "vision", 3, "ana", False)
    ] * 2
    world.tables.put(topics.TRACKING, [events[0]], NOW_MS)
    [row] = world.client.get("/v1/artifacts", params={"kind": "tokenizer"}, headers=ana).json()["items"]
    assert (row["name"], row["sha256"], row["size_bytes"]) == ("bpe", version["sha256"], 305_000)
    place = f"/v1/artifacts/bpe/{version['sha256']}"
    shown = world.client.get(place, params=of_vision, headers=ana).json()
    assert sorted(file["sha256"] for file in shown["files"]) == sorted(file["sha256"] for file in files)
    for file, content in zip(files, contents, strict=True):
        got = world.client.get(f"{place}/files/{file['path']}", params=of_vision, headers=world.token(role="viewer"))
        assert got.content == content and got.headers["content-disposition"] == "attachment"
        assert got.headers["x-content-type-options"] == "nosniff"
    part = world.client.get(f"{place}/files/{files[2]['path']}", params=of_vision, headers=ana | {"Range": "bytes=10-19"})
    assert (part.status_code, part.content, part.headers["content-range"]) == (206, contents[2][10:20], "bytes 10-19/300000")
    for wrong in ("bytes=300000-", "bytes=5-2", "bytes=0-1,3-4", "lines=1-2", "bytes=-", "bytes=" + "9" * 30 + "-"):
        refused = world.client.get(f"{place}/files/{files[2]['path']}", params=of_vision, headers=ana | {"Range": wrong})
        assert refused.status_code == 416, wrong
    deleted = world.client.delete(place, params=of_vision, headers=ana)
    assert deleted.status_code == 200 and world.bus.of(ArtifactStored)[-1].deleted
    assert world.client.get(place, params=of_vision, headers=ana).status_code == 404
    world.tables.put(topics.TRACKING, [world.bus.of(ArtifactStored)[-1]], NOW_MS)
    assert world.client.get("/v1/artifacts", params={"name": "bpe"}, headers=ana).json()["items"] == []


def test_another_projects_artifact_does_not_exist_whichever_hash_is_claimed(gateway_world: World, objects: MemoryObjectStore) -> None:
    world, admin = gateway_world, gateway_world.admin()
    file = sent(world, b"of speech alone", "speech", headers=admin)
    made = world.client.post("/v1/artifacts/secret", params={"project": "speech"}, json={"kind": "model", "files": [file]}, headers=admin)
    sha256, ana, reached = made.json()["sha256"], world.token(), 0
    world.tables.put(topics.TRACKING, world.bus.of(ArtifactStored)[-1:], NOW_MS)
    for project in ("speech", "vision", "default", "../speech", "speech/", "Speech"):
        for path in (f"/secret/{sha256}", f"/secret/{sha256}/files/{file['path']}"):
            answer = world.client.get(f"/v1/artifacts{path}", params={"project": project}, headers=ana)
            reached += answer.status_code not in (404, 422)
        claimed = world.client.post("/v1/artifacts/mine", params={"project": project}, json={"kind": "model", "files": [file]}, headers=ana)
        reached += claimed.status_code not in (404, 422)
        reached += world.client.delete(f"/v1/artifacts/secret/{sha256}", params={"project": project}, headers=ana).status_code not in (
            404,
            422,
        )
        put = world.client.put(f"/v1/artifacts/files/{file['sha256']}", params={"project": project}, content=b"x", headers=ana)
        reached += put.status_code not in (404, 422)
    assert not reached and world.client.get("/v1/artifacts", headers=ana).json()["items"] == []
    unknown = {"path": "x", "bytes": 15, "sha256": "cd" * 32}
    told = [
        world.client.post("/v1/artifacts/mine", params={"project": "vision"}, json={"kind": "model", "files": [each]}, headers=ana).json()
        for each in (file | {"path": "x"}, unknown)
    ]
    assert told[0]["detail"] == told[1]["detail"], "a hash that another project has is as one that nobody has"


def test_what_is_refused(gateway_world: World, objects: MemoryObjectStore) -> None:
    world, ana, of_vision = gateway_world, gateway_world.token(), {"project": "vision"}
    wrong = world.client.put(f"/v1/artifacts/files/{SHA}", params=of_vision, content=b"x", headers=ana)
    assert wrong.status_code == 422 and "nothing was stored" in wrong.json()["detail"] and not list(objects.list(""))
    file = sent(world, b"x", headers=ana)
    for paths in (["../x"], ["/x"], ["a", "A"], ["a", "a/b"], ["a\0b"], ["x" * 1025], []):
        body = {"kind": "file", "files": [file | {"path": path} for path in paths]}
        assert world.client.post("/v1/artifacts/a", params=of_vision, json=body, headers=ana).status_code == 422, paths
    for body in ({"kind": "A b", "files": [file]}, {"kind": "file", "files": [file | {"bytes": 2}]}, {"files": [file]}):
        assert world.client.post("/v1/artifacts/a", params=of_vision, json=body, headers=ana).status_code == 422, body
    many = {"kind": "file", "files": [file | {"path": str(number)} for number in range(10_001)]}
    assert world.client.post("/v1/artifacts/a", params=of_vision, json=many, headers=ana).status_code == 422
    assert world.client.post("/v1/artifacts/..%2Fa", params=of_vision, json={"kind": "file", "files": [file]}, headers=ana).status_code in (
        404,
        405,
        422,
    )
    viewer = world.token(role="viewer")
    assert world.client.post("/v1/artifacts/a", params=of_vision, json={"kind": "file", "files": [file]}, headers=viewer).status_code == 403
    assert world.client.get("/v1/artifacts").status_code == 401
    made = world.client.post("/v1/artifacts/a", params=of_vision, json={"kind": "file", "files": [file]}, headers=ana).json()
    objects.put(reference_key("vision", made["sha256"], f"dataset.{SHA}"), b"")
    held = world.client.delete(f"/v1/artifacts/a/{made['sha256']}", params=of_vision, headers=ana)
    assert held.status_code == 409 and f"is kept by dataset.{SHA}" in held.json()["detail"]
    objects.put(object_key("vision", file["sha256"]), b"y")
    damaged = world.client.get(f"/v1/artifacts/a/{made['sha256']}/files/{file['path']}", params=of_vision, headers=ana)
    assert damaged.status_code == 422 and "has other contents than its hash says" in damaged.json()["detail"]
    assert ArtifactStore(objects, "vision").names()


def limited(world: World, storage_gib: float | None, version: int) -> None:
    """Declares project vision with this limit."""
    about = {"name": "vision", "members": {"ana": "submitter"}, "limits": {"storage_gib": storage_gib}}
    applied = ProjectApplied.model_validate({"project": about, "version": version, "user": "ops", "applied_at_ms": NOW_MS})
    world.gateway.projects.put(applied)
    world.tables.put(topics.PROJECTS, [applied], NOW_MS)


def test_a_full_project_stores_no_file_and_no_more_than_its_room(gateway_world: World, objects: MemoryObjectStore) -> None:
    world, ana = gateway_world, gateway_world.token()

    def put(content: bytes) -> Any:
        world.gateway.storage._read_s = float("-inf")
        sha256 = hashlib.sha256(content).hexdigest()
        return world.client.put(f"/v1/artifacts/files/{sha256}", params={"project": "vision"}, content=content, headers=ana)

    limited(world, 0.001, 1)
    try:
        larger = put(b"x" * 1_100_000)
        assert larger.status_code == 429 and not list(objects.list("")), larger.text
        assert "has 0 GiB in the object store and may have 0.001, and 0.00102 more were to come" in larger.json()["detail"]
        assert "delete artifacts" in larger.json()["detail"] and larger.headers["retry-after"] == "60"
        assert put(b"x" * 900_000).status_code == 200
        stored = {"name": "a", "kind": "file", "sha256": "0f" * 32, "project": "vision", "bytes": 1_073_700, "files": 1, "at_ms": NOW_MS}
        world.tables.put(topics.TRACKING, [ArtifactStored.model_validate(stored)], NOW_MS)
        full = put(b"y" * 100)
        assert full.status_code == 429 and "has 0.001 GiB" in full.json()["detail"]
        world.tables.put(topics.TRACKING, [ArtifactStored.model_validate(stored | {"deleted": True, "at_ms": NOW_MS + 1})], NOW_MS + 1)
        assert put(b"y" * 100).status_code == 200, "what was deleted makes room"
    finally:
        limited(world, None, 2)


def test_a_file_of_no_declared_size_is_held_to_the_room_too(gateway_world: World, objects: MemoryObjectStore) -> None:
    world, content = gateway_world, b"z" * 1_100_000
    limited(world, 0.001, 3)
    try:
        world.gateway.storage._read_s = float("-inf")
        world.gateway.storage._unnamed.clear()
        sha256, pieces = hashlib.sha256(content).hexdigest(), iter([content[:600_000], content[600_000:]])
        answer = world.client.put(
            f"/v1/artifacts/files/{sha256}", params={"project": "vision"}, content=pieces, headers=gateway_world.token()
        )
        assert answer.status_code == 429 and "may have 0.001, and 0.00102 more" in answer.json()["detail"] and not list(objects.list(""))
    finally:
        limited(world, None, 4)


def test_files_that_no_version_names_yet_count_also_at_another_gateway_until_one_does(
    gateway_world: World, objects: MemoryObjectStore
) -> None:
    world, ana, of_vision = gateway_world, gateway_world.token(), {"project": "vision"}

    def put(content: bytes, is_known: bool = False) -> Any:
        if not is_known:  # as a gateway that has read nothing yet
            world.gateway.storage._unnamed.clear()
        sha256 = hashlib.sha256(content).hexdigest()
        return world.client.put(f"/v1/artifacts/files/{sha256}", params=of_vision, content=content, headers=ana)

    limited(world, 0.001, 6)
    try:
        for is_known in (False, True):
            first, second = (bytes([65 + is_known, n]) * 200_000 for n in range(2))
            assert put(first).status_code == 200
            assert put(second, is_known).status_code == 200
            refused = put(b"z" * 300_000, is_known)
            assert refused.status_code == 429
            assert "800000 bytes of these are files that nothing names yet: make a version" in refused.json()["detail"]
            assert put(first, is_known).status_code == 429, "what is there is no room either"
            files = [{"path": f"{n}", "bytes": len(c), "sha256": hashlib.sha256(c).hexdigest()} for n, c in enumerate((first, second))]
            made = world.client.post("/v1/artifacts/m", params=of_vision, json={"kind": "file", "files": files}, headers=ana)
            assert made.status_code == 201, made.text
            assert ArtifactStore(objects, "vision").unnamed_bytes() == 0
            world.gateway.storage._unnamed.clear()
            assert put(b"z" * 300_000).status_code == 200
            ArtifactStore(objects, "vision").settle_files({hashlib.sha256(b"z" * 300_000).hexdigest()})
            objects.delete(object_key("vision", hashlib.sha256(b"z" * 300_000).hexdigest()))
    finally:
        limited(world, None, 7)


class SqlOfTables:
    """The tables, as the command line asks them."""

    def __init__(self, world: World) -> None:
        self.world = world

    def table(self, query: str, values: Any = None) -> Table:
        rows = self.world.tables.ask(query, values)
        return Table(tuple(rows[0]), tuple(tuple(row.values()) for row in rows)) if rows else Table((), ())


def test_the_command_line_holds_a_project_to_the_same_limit(gateway_world: World) -> None:
    world, tables = gateway_world, SqlOfTables(gateway_world)
    check_room(tables, "vision", 1 << 40)  # type: ignore[arg-type]
    limited(world, 0.001, 8)
    every_other = {"name": "*", "limits": {"storage_gib": 0.5}}
    applied = ProjectApplied.model_validate({"project": every_other, "version": 1, "user": "ops", "applied_at_ms": NOW_MS})
    world.tables.put(topics.PROJECTS, [applied], NOW_MS)
    try:
        check_room(tables, "vision", 1_000_000)  # type: ignore[arg-type]
        for project, limit in (("vision", "0.001"), ("undeclared", "0.5")):
            with pytest.raises(CliError, match=f"project {project} has 0 GiB in the object store and may have {limit}, and 1 more were to"):
                check_room(tables, project, 1 << 30)  # type: ignore[arg-type]
    finally:
        limited(world, None, 9)


def test_the_artifacts_of_a_job_are_those_that_it_stored_and_used(gateway_world: World) -> None:
    world, ana = gateway_world, gateway_world.token()
    world.submit("maker-1", "vision")
    world.submit("other-1", "speech")
    facts = {"kind": "model", "bytes": 12, "files": 2, "attempt": 0, "epoch": 1, "rank": 0, "node_id": "n1"}
    told = [("maker-1", "stored", "out", SHA, 5), ("maker-1", "used", "bpe", "cd" * 32, 3), ("other-1", "stored", "bpe", "cd" * 32, 1)]
    events = [
        ArtifactRecorded.model_validate(facts | {"job_id": job, "action": action, "name": name, "sha256": sha256, "at_ms": NOW_MS + at})
        for job, action, name, sha256, at in told
    ]
    world.tables.put(topics.ENVIRONMENTS, events, NOW_MS)
    items = world.client.get("/v1/training-jobs/maker-1/artifacts", headers=ana).json()["items"]
    seen = [(row["action"], row["name"], row["sha256"], row["kind"], row["project"], row["size_bytes"], row["files"]) for row in items]
    assert seen == [("stored", "out", SHA, "model", "vision", 12, 2), ("used", "bpe", "cd" * 32, "model", "vision", 12, 2)]
    listed = world.client.get("/v1/artifacts", headers=ana).json()["items"]
    assert [row["name"] for row in listed] == ["out"], "one that was used alone is no version of this project"
    assert world.client.get("/v1/training-jobs/other-1/artifacts", headers=ana).status_code == 404


def bytes_of(world: World) -> int:
    """Bytes of vision's artifacts."""
    return sum(row["artifact_bytes"] for row in world.tables.ask("SELECT artifact_bytes FROM project_storage WHERE project = 'vision'", {}))


def test_a_deleted_runs_version_says_so_and_takes_no_room(gateway_world: World) -> None:
    world, ana = gateway_world, gateway_world.token()
    run: dict[str, Any] = {
        "job_id": "run-1",
        "experiment_id": "1",
        "experiment": "vision/x",
        "project": "vision",
        "name": "r",
        "user": "ana",
    }
    before = bytes_of(world)
    begun = TrackedRunBegun.model_validate(run | {"client": "mlflow", "started_at_ms": NOW_MS})
    stored = {
        "name": "w",
        "kind": "model",
        "sha256": "1f" * 32,
        "project": "vision",
        "bytes": 7,
        "files": 1,
        "at_ms": NOW_MS,
        "job_id": "run-1",
    }
    world.tables.put(topics.TRACKING, [begun, ArtifactStored.model_validate(stored)], NOW_MS)

    def shown() -> tuple[int, int]:
        [row] = world.client.get("/v1/artifacts", params={"name": "w"}, headers=ana).json()["items"]
        return row["run_deleted"], bytes_of(world) - before

    assert shown() == (0, 7)
    for number, (deleted, expected) in enumerate([(True, (1, 0)), (False, (0, 7))], start=1):
        changed = TrackedRunChanged.model_validate({"job_id": "run-1", "deleted": deleted, "at_ms": NOW_MS + number})
        world.tables.put(topics.TRACKING, [changed], NOW_MS + number)
        assert shown() == expected


def test_a_delete_that_the_bus_did_not_take_can_be_repeated(
    gateway_world: World, objects: MemoryObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, ana, of_vision = gateway_world, gateway_world.token(), {"project": "vision"}
    file = sent(world, b"again", headers=ana)
    made = world.client.post("/v1/artifacts/again", params=of_vision, json={"kind": "file", "files": [file]}, headers=ana).json()

    async def away(*_: Any, **__: Any) -> Any:
        raise RuntimeError("the bus is away")

    place = f"/v1/artifacts/again/{made['sha256']}"
    with monkeypatch.context() as patch:
        patch.setattr(world.bus, "send", away)
        assert world.client.delete(place, params=of_vision, headers=ana).status_code == 500
    assert world.client.delete(place, params=of_vision, headers=ana).status_code == 200
    assert world.bus.of(ArtifactStored)[-1].deleted and not ArtifactStore(objects, "vision").versions("again")


def test_a_name_of_nothing_can_be_deleted(gateway_world: World, objects: MemoryObjectStore) -> None:
    world, ana = gateway_world, gateway_world.token()
    objects.put(name_key("vision", "none", SHA, "job.j-1"), b"")
    answer = world.client.delete(f"/v1/artifacts/none/{SHA}", params={"project": "vision"}, headers=ana)
    assert answer.status_code == 200, answer.text
    event = world.bus.of(ArtifactStored)[-1]
    assert (event.deleted, event.sha256, str(event.job_id)) == (True, SHA, "j-1") and not ArtifactStore(objects, "vision").names()


def test_deep_paths_are_refused(gateway_world: World, objects: MemoryObjectStore) -> None:
    file = {"path": "a/" * 504 + "f", "bytes": 1, "sha256": SHA}
    body = {"kind": "file", "files": [file]}
    answer = gateway_world.client.post("/v1/artifacts/a", params={"project": "vision"}, json=body, headers=gateway_world.token())
    assert answer.status_code == 422 and "is in 504 folders" in answer.json()["detail"]


def test_what_ranks_recorded_never_sums_to_nothing(gateway_world: World) -> None:
    world = gateway_world
    world.submit("vast-1", "speech")
    facts = {"kind": "model", "bytes": 1 << 60, "files": 1, "attempt": 0, "epoch": 1, "rank": 0, "node_id": "n1", "job_id": "vast-1"}
    events = [
        ArtifactRecorded.model_validate(facts | {"name": f"v{number}", "sha256": f"{number:064x}", "at_ms": NOW_MS}) for number in range(16)
    ]
    world.tables.put(topics.ENVIRONMENTS, events, NOW_MS)
    [row] = world.tables.ask("SELECT artifact_bytes, total_bytes FROM project_storage WHERE project = 'speech'", {})
    assert int(row["artifact_bytes"]) == 1 << 60 and int(row["total_bytes"]) >= 1 << 60
