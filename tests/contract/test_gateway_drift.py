"""Drift of datasets' versions over HTTP: versions from the tables, manifests from a store, each project's alone."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.gateway_world import World
from trainhouse.events.model.dataset import DatasetVersionDeprecated, DatasetVersionPublished, version_of
from trainhouse.events.model.dataset_keys import manifest_key
from trainhouse.events.model.version_names import VersionName
from trainhouse.events.wire import topics
from trainhouse.gateway.datasets import drift_routes
from trainhouse.workers.data.drift.version_drift import VersionDrift, drift_of
from trainhouse.workers.data.publishing.bounded_files import LocalRoot
from trainhouse.workers.data.publishing.publication import Publication, Terms
from trainhouse.workers.data.publishing.sources import source_of
from trainhouse.workers.data.publishing.split_rule import SplitRule

NOW_MS = 1_790_000_000_000


@pytest.fixture
def objects(gateway_world: World, monkeypatch: pytest.MonkeyPatch) -> MemoryObjectStore:
    stored = MemoryObjectStore()
    monkeypatch.setattr(gateway_world.client.app.state, "code_store", stored, raising=False)  # type: ignore[attr-defined]
    return stored


def published(
    world: World, objects: MemoryObjectStore, folder: Path, number: int, mean: float, name: str = "drifting", rule: str = "train=1"
) -> VersionName:
    draw = random.Random(number)
    path = folder / f"{number}.jsonl"
    path.write_bytes(b"".join(orjson.dumps({"age": draw.gauss(mean, 1), "label": draw.choice("ab")}) + b"\n" for _ in range(400)))
    manifest = Publication(source_of(LocalRoot(path)), SplitRule.parse(rule), Terms()).publish(objects, "vision")
    facts = version_of(manifest, name, "vision")
    event = DatasetVersionPublished(version=facts, semver=f"1.{number}.0", created_by="ada", published_at_ms=NOW_MS + number)
    world.tables.put(topics.DATASETS, [event], NOW_MS)
    return facts.name


def test_a_version_is_compared_with_the_one_before_it_or_any_other(
    gateway_world: World, objects: MemoryObjectStore, tmp_path: Path
) -> None:
    world, ana = gateway_world, gateway_world.token("ana")
    one, two, three = (published(world, objects, tmp_path, n, mean) for n, mean in enumerate((5.0, 5.0, 9.0)))

    def asked(**parameters: str) -> dict[str, dict[str, str]]:
        answer = world.client.get("/v1/datasets/drifting/drift", params=parameters, headers=ana)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        return {"between": (found["version"], found["against"]), **{f["field"]: f for f in found["fields"]}}

    newest = asked()
    assert newest["between"] == (str(three), str(two))
    assert newest["json.age"]["verdict"] == "DRIFTED" and newest["json.label"]["verdict"] == "STABLE"
    assert asked(version="1.1.0")["json.age"]["verdict"] == "STABLE"
    assert asked(against="1.0.0", split="train")["between"] == (str(three), str(one))
    assert asked(version=f"sha256:{one.sha256}", against="1.2.0")["between"] == (str(one), str(three))

    def status(name: str = "drifting", headers: dict[str, str] = ana, **parameters: str) -> int:
        return world.client.get(f"/v1/datasets/{name}/drift", params=parameters, headers=headers).status_code

    assert status(version="1.0.0") == 404 and status(version="9.9.9") == 404 and status("none") == 404
    assert status(split="dev") == 400 and status(version="newest") in (400, 422)
    assert status(headers=world.token("bo", projects=["speech"])) == 404

    world.tables.put(
        topics.DATASETS,
        [DatasetVersionDeprecated(dataset="drifting", sha256=two.sha256, user="cy", reason="wrong", deprecated_at_ms=NOW_MS + 9)],
        NOW_MS,
    )
    assert asked()["between"] == (str(three), str(one))
    objects.delete(manifest_key("vision", one.sha256))
    assert status() == 409


def test_a_split_that_one_version_lacks_is_refused_with_those_that_both_have(
    gateway_world: World, objects: MemoryObjectStore, tmp_path: Path
) -> None:
    for number, rule in enumerate(("train=0.5,dev=0.5", "train=0.5,test=0.5")):
        published(gateway_world, objects, tmp_path, number, 5.0, "split", rule)
    for split in ("dev", "test", "none"):
        answer = gateway_world.client.get("/v1/datasets/split/drift", params={"split": split}, headers=gateway_world.token("ana"))
        assert answer.status_code == 400 and f"no split '{split}' is in both versions; both have: train" in answer.text, answer.text


def test_versions_are_compared_beside_the_event_loop(
    gateway_world: World, objects: MemoryObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        published(gateway_world, objects, tmp_path, number, 5.0, "beside")
    compared = 0

    def compare(*arguments: Any, **named: Any) -> VersionDrift:
        nonlocal compared
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        compared += 1
        return drift_of(*arguments, **named)

    monkeypatch.setattr(drift_routes, "drift_of", compare)
    answer = gateway_world.client.get("/v1/datasets/beside/drift", headers=gateway_world.token("ana"))
    assert (answer.status_code, compared) == (200, 1), answer.text
