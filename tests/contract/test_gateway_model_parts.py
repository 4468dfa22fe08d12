"""What pages of models ask the gateway for: brief lists, spans of champions, evidence, cards, and what was made of jobs and datasets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.gateway_world import NOW_MS, World
from tests.support.registry_book import Book
from tests.support.registry_requests import compared, content_of, evaluated
from trainhouse.events import ModelApproved, ModelEmergencyReview, ModelPromotionRequested, ModelRollbackRequested
from trainhouse.events.model.model_decisions import ModelDecision
from trainhouse.events.model.project import ProjectApplied
from trainhouse.events.wire import topics

OF: dict[str, Any] = {"project": "vision", "name": "m"}


@pytest.fixture
def book(gateway_world: World) -> Iterator[Book]:
    """Model m of project vision with three versions: 1 was promoted, then 2 as an emergency, then it went back to 1; 3 is in staging."""
    before, made = gateway_world.gateway.models, Book()
    gateway_world.gateway.models = made
    for number in (1, 2, 3):
        made.register("vision", "m", number)
    made.take(evaluated(1, 0.8, **OF))
    made.take(evaluated(3, 0.81, evaluated_at_ms=5, **OF))
    made.take(compared(3, 1, "not worse", "evaluation-3-0.81", "evaluation-1-0.8", 6, 0.02).model_copy(update=OF))
    made.take(ModelApproved(**OF, version="1", user="eve"))
    made.take(ModelPromotionRequested(**OF, version="1", user="ada"))
    made.registry.now_ms += 1000
    made.take(ModelPromotionRequested(**OF, version="2", user="bo", emergency=True, reason="down"))
    made.registry.now_ms += 2000
    made.take(ModelRollbackRequested(**OF, user="bo", reason="complaints"))
    yield made
    gateway_world.gateway.models = before


def got(world: World, path: str, who: tuple[str, str] = ("ana", "submitter"), projects: tuple[str, ...] = ("vision",), **query: Any) -> Any:
    answer = world.client.get(path, params=query, headers=world.token(*who, list(projects)))
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_list_has_the_newest_result_and_its_verdict(gateway_world: World, book: Book) -> None:
    [row] = got(gateway_world, "/v1/models", brief=True)["items"]
    assert "versions" not in row and row["version_count"] == 3
    assert (row["champion"]["version"], row["champion"]["semver"]) == (1, "1.0.0")
    assert row["champion"]["since_ms"] == book.registry.now_ms, "since it came back"
    assert row["staging"]["version"] == 3
    assert (row["result"]["version"], row["result"]["metric"], row["result"]["value"]) == (3, "top1", 0.81)
    assert row["result"]["verdict"] == "not worse", "against version 1, which is champion"
    assert [each["version"] for each in row["emergencies"]] == [2]
    assert got(gateway_world, "/v1/models", projects=("speech",), brief=True)["items"] == []


def test_champions_have_their_spans(gateway_world: World, book: Book) -> None:
    items = got(gateway_world, "/v1/models/m/champions", project="vision")["items"]
    now_ms = book.registry.now_ms
    found = [(each["version"], each["began_ms"], each["ended_ms"], each["how"], each["emergency"]) for each in items]
    assert found == [
        (1, now_ms, None, "rolled back", False),
        (2, now_ms - 2000, now_ms, "promoted", True),
        (1, now_ms - 3000, now_ms - 2000, "promoted", False),
    ]
    assert [each["by"] for each in items] == ["bo", "bo", "ada"] and items[2]["approvers"] == ["eve"]
    assert [each["version"] for each in got(gateway_world, "/v1/models/m/champions", project="vision", limit=1)["items"]] == [1]


def test_a_version_has_its_evidence(gateway_world: World, book: Book) -> None:
    found = got(gateway_world, "/v1/models/m/versions/3", project="vision")
    assert found["lineage_id"] == "model:vision/m@3" and found["evaluations"][0]["metrics"]["top1"]["value"] == 0.81
    [row] = found["comparisons"]
    assert row["against_version"] == 1 and row["metrics"][0]["verdict"] == "not worse"
    assert got(gateway_world, "/v1/models/m/versions/champion", project="vision")["version"] == 1
    headers = gateway_world.token("eve", "viewer", ["speech"])
    for part in ("champions", "versions/3", "versions/3/card"):
        hidden = gateway_world.client.get(f"/v1/models/m/{part}", params={"project": "vision"}, headers=headers)
        assert hidden.status_code == 404, "another project's model does not exist"
    assert (
        gateway_world.client.get("/v1/models/m/versions/9", params={"project": "vision"}, headers=gateway_world.admin()).status_code == 404
    )


@pytest.mark.parametrize(
    ("who", "may"),
    [
        (("ana", "submitter"), ["promote", "rollback", "archive"]),
        (("eve", "approver"), ["approve", "reject", "review", "emergency"]),
        (("olga", "operator"), ["promote", "rollback", "archive", "emergency"]),
        (("root", "admin"), ["promote", "rollback", "archive", "approve", "reject", "review", "emergency"]),
        (("vic", "viewer"), []),
    ],
)
def test_a_model_says_what_its_asker_may(gateway_world: World, book: Book, who: tuple[str, str], may: list[str]) -> None:
    assert got(gateway_world, "/v1/models/m", who, project="vision", brief=True)["may"] == may


def test_who_is_only_a_viewer_of_a_project_may_nothing(gateway_world: World, book: Book) -> None:
    about = {"name": "shown", "members": {"ana": "viewer"}}
    applied = ProjectApplied.model_validate({"project": about, "version": 1, "user": "ops", "applied_at_ms": NOW_MS})
    gateway_world.gateway.projects.put(applied)
    book.register("shown", "m", 1)
    assert got(gateway_world, "/v1/models/m", ("ana", "submitter"), ("shown",), project="shown")["may"] == []


def test_an_emergency_is_listed_until_it_is_reviewed(gateway_world: World, book: Book) -> None:
    [one] = got(gateway_world, "/v1/models/m", project="vision")["emergencies"]
    assert (one["version"], one["promoted_by"]) == (2, "bo")
    book.take(ModelEmergencyReview(**OF, version="2", user="cem"))
    assert got(gateway_world, "/v1/models/m", project="vision")["emergencies"] == []


def test_many_versions_are_brief(gateway_world: World, book: Book) -> None:
    for number in range(4, 61):
        book.register("vision", "m", number, data=())
    page = got(gateway_world, "/v1/models/m", project="vision", brief=True, limit=50)
    assert [each["version"] for each in page["versions"]] == list(range(60, 10, -1)) and page["next_cursor"]
    assert "evaluations" not in page["versions"][0] and page["version_count"] == 60


def test_what_was_made_of_a_job_and_of_a_dataset(gateway_world: World, book: Book) -> None:
    gateway_world.submit("train-3", "vision")
    decided = [each for each in book.registry.decisions if isinstance(each, ModelDecision)]
    gateway_world.tables.put(topics.MODEL_HISTORY, decided)
    [row] = got(gateway_world, "/v1/training-jobs/train-3/models")["items"]
    assert (row["project"], row["model"], row["version"], row["stage"]) == ("vision", "m", 3, "staging")
    made = got(gateway_world, "/v1/datasets/imagenet/models")["items"]
    assert {each["version"] for each in made} == {1, 2, 3}, "the newest three of each model"
    assert got(gateway_world, "/v1/datasets/image/models")["items"] == [], "a name is no beginning of another one"
    assert got(gateway_world, "/v1/datasets/imagenet/models", projects=("speech",))["items"] == []


def test_a_card_of_content_that_is_gone_says_so(gateway_world: World, book: Book) -> None:
    gateway_world.client.app.state.code_store = MemoryObjectStore()  # type: ignore[attr-defined]
    try:
        answer = gateway_world.client.get("/v1/models/m/versions/3/card", params={"project": "vision"}, headers=gateway_world.admin())
    finally:
        del gateway_world.client.app.state.code_store  # type: ignore[attr-defined]
    assert answer.status_code == 409 and content_of(3) in answer.json()["detail"] and "register the version again" in answer.text
