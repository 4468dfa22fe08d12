"""A model in service over the gateway: its observations as servers send them, measured as alerts do, in the real embedded engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.gateway_world import NOW_MS, World
from tests.support.registry_book import Book
from tests.support.registry_requests import content_of, evaluated
from tests.support.service_story import ServiceStory, labels, numbers, texts
from tests.support.tables.alert_tables import DAY_MS
from trainhouse.events import ModelGate, ModelGateApplied, ModelPromotionRequested
from trainhouse.events.model.alert import AlertFired, Severity
from trainhouse.events.model.dataset import DatasetVersionPublished
from trainhouse.events.model.model_decisions import ModelDecision
from trainhouse.events.wire import topics
from trainhouse.gateway.queries.sql_reader import SqlReader

PATH = "/v1/models/served/live"
OF: dict[str, Any] = {"project": "vision", "name": "served"}
DATA = "imagenet@sha256:" + "c" * 64


@pytest.fixture(scope="module")
def book(gateway_world: World) -> Iterator[Book]:
    """Model served: 1 is archived, 2 champion, 3 and 4 in staging; 3 is observed in shadow. Model idle: nothing was observed."""
    before, made = gateway_world.gateway.models, Book()
    gateway_world.gateway.models = made
    made.registry.now_ms = NOW_MS - 20 * DAY_MS
    gate = ModelGate.model_validate({"approvals": 0, "suites": [{"suite": "accuracy", "metrics": {"accuracy": {"margin": 0.02}}}]})
    for number in (1, 2, 3, 4):
        made.register(*OF.values(), number)
        metrics = {"accuracy": {"value": 0.9, "low": 0.88, "high": 0.92}}
        made.take(evaluated(number, 0.9, metrics=metrics, **OF))
        if number == 1:
            made.take(ModelGateApplied(**OF, gate=gate, user="ops"))
        if number < 3:
            made.take(ModelPromotionRequested(**OF, version=str(number), user="ada"))
    made.register("vision", "idle", 5, content=content_of(5))
    decided = [each for each in made.registry.decisions if isinstance(each, ModelDecision)]
    gateway_world.tables.put(topics.MODEL_HISTORY, decided)
    gateway_world.tables.put(topics.DATASETS, [published("c", 30), published("d", 10), published("e", 2)])
    serve(gateway_world)
    yield made
    gateway_world.gateway.models = before


def published(digit: str, days_ago: int) -> DatasetVersionPublished:
    version: dict[str, Any] = {"dataset": "imagenet", "project": "vision", "sha256": digit * 64, "row_count": 9, "bytes": 9}
    hashes = {"schema_hash": "b" * 64, "split_config_hash": "c" * 64, "splits": {"train": {"samples": 9, "bytes": 9, "shards": 1}}}
    about = {"version": version | hashes, "created_by": "ada", "published_at_ms": NOW_MS - days_ago * DAY_MS}
    return DatasetVersionPublished.model_validate(about)


def serve(world: World) -> None:
    """The champion's ages move in its two newest windows, and it is right less often than offline; version 3 is as good as offline."""
    rng, story = np.random.default_rng(5), ServiceStory(world.tables, *OF.values(), NOW_MS)
    city = {"Oslo": 6000, "Turku": 4000}
    for version in (2, 3):
        story.reference(version, "imagenet/train", {"json.age": numbers(rng, 40, 10, 10_000), "json.city": texts(city)}, {})
    for hours_ago in (5, 4, 3, 2):
        moved = 12 if hours_ago < 4 else 0
        inputs = {"json.age": numbers(rng, 40 + moved, 10, 1500), "json.city": texts({"Oslo": 900, "Turku": 600})}
        right = {"accuracy": labels(f"p{hours_ago}", [n % 4 > 0 for n in range(100)])}
        story.window(2, hours_ago, count=1500, inputs=inputs, outcomes=right)
    shadow = {"json.age": numbers(rng, 40, 10, 1500), "json.city": texts({"Oslo": 900, "Turku": 600})}
    right = {"accuracy": labels("s", [n % 10 > 0 for n in range(100)])}
    story.window(3, 3, count=1500, inputs=shadow, outcomes=right)
    story.window(9, 3, count=4)
    story.window(2, 24 * 8, count=70)
    story.put()
    label = {"project": "vision", "model": "served", "version": "2"}
    about = {"rule": "model-drift", "key": "vision/served@2", "severity": Severity.WARNING, "labels": label, "summary": "live data drifted"}
    others = about | {"key": "speech/served@2", "labels": label | {"project": "speech"}, "summary": "another's"}
    world.tables.put(
        topics.ALERTS, [AlertFired.model_validate(each | {"since_ms": NOW_MS, "at_ms": NOW_MS, "value": 1.0}) for each in (about, others)]
    )


def got(world: World, path: str = PATH, projects: tuple[str, ...] = ("vision",), **query: Any) -> Any:
    headers = world.token("vic", "viewer", list(projects))
    answer = world.client.get(path, params={"project": "vision"} | query, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_champion_and_shadow_stand_beside_the_offline_figure(gateway_world: World, book: Book) -> None:
    found = got(gateway_world)
    assert (found["champion"], found["version"], found["days"]) == (2, 2, 7)
    assert [(each["version"], each["stage"]) for each in found["versions"]] == [(2, "champion"), (4, "staging"), (3, "staging")]
    champion, newest, shadow = found["versions"]
    assert (champion["observed"]["windows"], champion["observed"]["predictions"], champion["observed"]["labels"]) == (4, 6000, 400)
    assert champion["reference"]["source"] == "imagenet/train" and champion["drift"]["drifted"] == 1 and champion["drift"]["compared"] == 2
    assert shadow["drift"]["drifted"] == 0 and newest["observed"] is newest["reference"] is newest["drift"] is None
    assert found["unknown"] == [{"version": 9, "observations": 1}]
    worse, alike = found["quality"]
    assert (worse["version"], worse["live"], worse["labels"], worse["offline"]) == (2, 0.75, 400, 0.9)
    assert worse["against_offline"] == "worse than offline" and worse["margin"] == 0.02 and worse["champion_live"] is None
    assert worse["low"] == pytest.approx(0.75 - 1.96 * np.std([0.0, *[1.0] * 3] * 100, ddof=1) / 20)
    assert (alike["version"], alike["live"], alike["champion_live"], alike["against_offline"]) == (3, 0.9, 0.75, "as offline")
    assert len(worse["series"]["live"]) == 4 and found["quality_after_ms"] is None


def test_drift_has_its_fields_over_windows_with_limits_and_verdicts(gateway_world: World, book: Book) -> None:
    drift = got(gateway_world)["drift"]
    assert (drift["version"], drift["reference"], len(drift["windows"])) == (2, "imagenet/train", 4)
    age, city = drift["fields"]
    assert (age["side"], age["field"], age["verdict"]) == ("input", "json.age", "DRIFTED")
    assert age["verdicts"] == ["STABLE", "STABLE", "DRIFTED", "DRIFTED"] and "PSI" in age["reason"]
    for measure in ("psi", "ks", "wasserstein"):
        beyond = [value > limit for value, limit in zip(age[measure], age[f"{measure}_limit"], strict=True)]
        assert beyond == [False, False, True, True], measure
    assert (city["field"], city["verdict"]) == ("json.city", "STABLE")
    assert got(gateway_world, version="3")["drift"]["fields"][0]["verdicts"] == ["STABLE"]
    unseen = got(gateway_world, version="1")
    assert unseen["drift"] is None and unseen["versions"][-1]["stage"] == "archived", "whichever is asked for is shown"


def test_freshness_and_open_alerts_are_those_of_the_model(gateway_world: World, book: Book) -> None:
    found = got(gateway_world)
    champion, *_ = [each for each in found["freshness"] if each["version"] == 2]
    assert (champion["data"], champion["versions_behind"]) == (DATA, 2)
    assert champion["data_age_days"] == pytest.approx(30, abs=0.1) and champion["behind_since_ms"] == NOW_MS - 10 * DAY_MS
    assert champion["age_days"] == pytest.approx(20, abs=0.1) and {each["version"] for each in found["freshness"]} == {2, 3, 4}
    assert [(each["rule"], each["summary"], each["version"]) for each in found["alerts"]] == [("model-drift", "live data drifted", "2")]


def test_days_bound_what_counts(gateway_world: World, book: Book) -> None:
    assert got(gateway_world, days=30)["versions"][0]["observed"]["predictions"] == 6070
    for days in (0, 91):
        answer = gateway_world.client.get(PATH, params={"project": "vision", "days": days}, headers=gateway_world.admin())
        assert answer.status_code == 422


def test_what_was_never_observed_is_empty_and_not_missing(gateway_world: World, book: Book) -> None:
    found = got(gateway_world, "/v1/models/idle/live")
    assert (found["champion"], found["version"], found["quality"], found["drift"], found["alerts"]) == (None, 1, [], None, [])
    assert [(each["version"], each["observed"], each["reference"]) for each in found["versions"]] == [(1, None, None)]
    assert [each["version"] for each in found["freshness"]] == [1]


def test_another_projects_model_does_not_exist(gateway_world: World, book: Book) -> None:
    headers = gateway_world.token("eve", "operator", ["speech"])
    hidden = gateway_world.client.get(PATH, params={"project": "vision"}, headers=headers)
    assert hidden.status_code == 404 and "served" in hidden.text
    unknown = gateway_world.client.get(PATH, params={"project": "vision", "version": "9"}, headers=gateway_world.admin())
    assert unknown.status_code == 404 and "version 9" in unknown.text
    assert gateway_world.client.get(PATH, params={"project": "vision"}).status_code == 401
    paths = gateway_world.client.get("/openapi.json").json()["paths"]
    assert {each["name"] for each in paths["/v1/models/{name}/live"]["get"]["parameters"]} == {"name", "project", "version", "days"}


def test_the_tables_are_asked_once(gateway_world: World, book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    raw = SqlReader.raw

    async def counted(self: SqlReader, sql: str, values: Any = None, **settings: str) -> bytes:
        asked.append(sql)
        return await raw(self, sql, values, **settings)

    monkeypatch.setattr(SqlReader, "raw", counted)
    answer = gateway_world.client.get(PATH, params={"project": "vision"}, headers=gateway_world.admin())
    assert answer.status_code == 200 and len(asked) == 1
