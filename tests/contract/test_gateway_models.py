"""Who may do what to models over the gateway, with the registry's machine behind it; how much its answers and its memory hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.gateway_world import NOW_MS, World
from tests.support.registry_book import Book, record
from trainhouse.events import ModelPromotionRequested, PredictionsObserved
from trainhouse.events.model.model_decisions import ModelDecision
from trainhouse.events.model.project import ProjectApplied
from trainhouse.gateway.models import model_book


@pytest.fixture
def book(gateway_world: World) -> Iterator[Book]:
    """Model m of an undeclared and of a declared project, of which mia is a maintainer."""
    before, made = gateway_world.gateway.models, Book()
    gateway_world.gateway.models = made
    about = {"name": "ruled", "members": {"mia": "maintainer", "ana": "submitter", "eve": "submitter"}}
    applied = ProjectApplied.model_validate({"project": about, "version": 1, "user": "ops", "applied_at_ms": NOW_MS})
    gateway_world.gateway.projects.put(applied)
    for project in ("free", "ruled"):
        made.register(project, "m", 1)
    yield made
    gateway_world.gateway.models = before


def asked(world: World, word: str, project: str, who: tuple[str, str], **fields: Any) -> Any:
    """The answer to a request about model m."""
    of = {"project": project}
    return world.client.post(f"/v1/models/m/{word}", params=of, json=fields, headers=world.token(*who, ["free", "ruled"]))


OPERATOR = ("olga", "operator")


@pytest.mark.parametrize("project", ["free", "ruled"])
def test_a_gate_is_changed_by_who_looks_after_the_project(gateway_world: World, book: Book, project: str) -> None:
    refused = asked(gateway_world, "gate", project, ("ana", "submitter"), gate={"approvals": 0})
    assert refused.status_code == 403 and "operators" in refused.json()["detail"]
    maintainer = asked(gateway_world, "gate", project, ("mia", "submitter"), gate={"approvals": 0})
    assert maintainer.status_code == (200 if project == "ruled" else 403), maintainer.text
    replaces = 1 if project == "ruled" else 0
    applied = asked(gateway_world, "gate", project, OPERATOR, gate={"approvals": 2}, replaces=replaces)
    assert applied.status_code == 200, applied.text


@pytest.mark.parametrize("who", [("eve", "approver"), ("mia", "submitter"), OPERATOR])
def test_an_emergency_needs_more_than_to_submit(gateway_world: World, book: Book, who: tuple[str, str]) -> None:
    emergency = {"version": "1", "emergency": True, "reason": "down"}
    refused = asked(gateway_world, "promote", "ruled", ("ana", "submitter"), **emergency)
    assert refused.status_code == 403 and "emergency" in refused.json()["detail"]
    assert asked(gateway_world, "promote", "free", ("mia", "submitter"), **emergency).status_code == 403
    assert asked(gateway_world, "promote", "ruled", ("eve", "approver"), version="1").status_code == 403, "no right to promote besides"
    assert asked(gateway_world, "promote", "ruled", ("ana", "submitter"), version="1").status_code == 409, "the gate says so"
    assert asked(gateway_world, "promote", "ruled", who, **emergency).status_code == 200


def test_mlflows_words_for_a_promotion_ask_the_gate_and_skip_nothing(gateway_world: World, book: Book) -> None:
    headers = gateway_world.token("ana", "submitter", ["ruled"])
    alias = {"name": "m", "alias": "champion", "version": "1", "emergency": True}
    answer = gateway_world.client.post("/api/2.0/mlflow/registered-models/alias", json=alias, headers=headers)
    assert answer.status_code == 400 and "0 of 1 approvals" in answer.text
    stage = {"name": "m", "stage": "Production", "version": "1", "emergency": True}
    answer = gateway_world.client.post("/api/2.0/mlflow/model-versions/transition-stage", json=stage, headers=headers)
    assert answer.status_code == 400 and "0 of 1 approvals" in answer.text


def test_a_version_that_is_no_number_is_none(gateway_world: World, book: Book) -> None:
    for version in ("²", "١", "9" * 64):
        answer = gateway_world.client.get(f"/v1/models/m/versions/{version}/why", params={"project": "free"}, headers=gateway_world.admin())
        assert answer.status_code == 404, answer.text


def test_versions_history_and_models_come_in_pages(gateway_world: World, book: Book) -> None:
    for number in (2, 3):
        book.register("free", "m", number)

    def pages(path: str, part: str) -> list[list[Any]]:
        found, cursor = [], None
        while True:
            query: dict[str, str | int] = {"project": "free", "limit": 2}
            if cursor:
                query["cursor"] = cursor
            answer = gateway_world.client.get(f"/v1/models{path}", params=query, headers=gateway_world.admin())
            assert answer.status_code == 200, answer.text
            found.append(answer.json()[part])
            cursor = answer.json()["next_cursor"]
            if cursor is None:
                return found

    assert [[each["version"] for each in page] for page in pages("/m", "versions")] == [[3, 2], [1]], "the newest first"
    assert [len(page) for page in pages("/m/history", "items")] == [2, 1]
    for n in range(2):
        book.register("free", f"n{n}", 1)
    assert [[each["name"] for each in page] for page in pages("", "items")] == [["m", "n0"], ["n1"]]
    bad = gateway_world.client.get("/v1/models/m", params={"project": "free", "cursor": "x"}, headers=gateway_world.admin())
    assert bad.status_code == 400


def test_refusals_of_models_that_do_not_exist_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_book, "MOST_EARLY_MODELS", 3)
    book = Book()
    for n in range(10):
        for _ in range(model_book.MOST_EARLY + 2):
            book.take(ModelPromotionRequested(project="free", name=f"none-{n}", version="1"))
    assert not book._history and len(book._early) == 3
    book.register("free", "none-9", 1)
    assert [each.event_type.split(".")[2] for _, each in book.history("free", "none-9")] == ["request-refused"] * model_book.MOST_EARLY + [
        "version-registered"
    ], "what was refused before it was there is part of its history"
    assert len(book._early) == 2


def test_a_decision_that_cannot_be_folded_takes_no_other_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    book, source = Book(), Book()
    for name in ("bad", "good"):
        source.register("free", name, 1)
    take = book.view.take

    def failing(event: Any) -> None:
        if event.name == "bad":
            raise ValueError("no such thing")
        take(event)

    monkeypatch.setattr(book.view, "take", failing)
    decided = [each for each in source.registry.decisions if isinstance(each, ModelDecision)]
    book._take([record(each) for each in decided])
    assert book.view.find("free", "good") is not None


def window(**fields: Any) -> dict[str, Any]:
    """An observation of version 1, an hour of the past."""
    numbers = {"least": 1.0, "most": 1.0, "mean": 1.0, "shift": 0, "bins": [4607182418800017408], "counts": [3]}
    about = {"version": 1, "count": 3, "window_start_ms": NOW_MS - 7_200_000, "window_end_ms": NOW_MS - 3_600_000}
    return about | {"inputs": {"json.age": {"samples": 3, "numbers": numbers}}} | fields


def test_an_observation_is_taken_in_its_senders_name_and_once_a_key(gateway_world: World, book: Book) -> None:
    headers = gateway_world.token("ana", "submitter", ["ruled"]) | {"Idempotency-Key": "hour-1"}
    before = len(gateway_world.bus.of(PredictionsObserved))

    def sent(**fields: Any) -> str:
        body = window(user="eve", **fields)
        answer = gateway_world.client.post("/v1/models/m/observations", params={"project": "ruled"}, json=body, headers=headers)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["event_id"])

    assert sent() == sent(), "one event, sent again"
    assert sent(outcomes={"accuracy": {"p-1": 1.0}}) != sent(), "another window under the same key is no repeat"
    observed = gateway_world.bus.of(PredictionsObserved)[before:]
    assert {(each.project, each.name, each.user, each.requested_by.name) for each in observed} == {("ruled", "m", "ana", "ana")}


@pytest.mark.parametrize(
    ("fields", "status", "part"),
    [
        ({"window_end_ms": NOW_MS + 86_400_000}, 422, "ahead of now"),
        ({"version": 7}, 404, "version 7"),
        ({"outcomes": {"accuracy": {"p-1": "NaN"}}}, 422, "outcomes.accuracy.p-1"),
        ({"outcomes": {"accuracy": {f"p-{n}": 1.0 for n in range(5001)}}}, 422, "5000"),
        ({"count": 1}, 422, "count every prediction"),
        ({"window_start_ms": NOW_MS}, 422, "ends after it begins"),
    ],
)
def test_an_observation_that_cannot_be_is_refused_with_what_to_do(
    gateway_world: World, book: Book, fields: dict[str, Any], status: int, part: str
) -> None:
    before = len(gateway_world.bus.of(PredictionsObserved))
    answer = asked(gateway_world, "observations", "free", ("ana", "submitter"), **window(**fields))
    assert (answer.status_code, part in answer.text) == (status, True), answer.text
    assert len(gateway_world.bus.of(PredictionsObserved)) == before


def test_observations_of_another_project_do_not_count(gateway_world: World, book: Book) -> None:
    headers = gateway_world.token("ana", "submitter", ["vision"])
    for word, body in (("observations", window()), ("references", {"version": 1, "count": 3, "source": "x", "inputs": window()["inputs"]})):
        answer = gateway_world.client.post(f"/v1/models/m/{word}", params={"project": "free"}, json=body, headers=headers)
        assert answer.status_code == 404, answer.text
        viewer = gateway_world.token("vic", "viewer", ["free"])
        assert gateway_world.client.post(f"/v1/models/m/{word}", params={"project": "free"}, json=body, headers=viewer).status_code == 403
        taken = gateway_world.client.post(f"/v1/models/m/{word}", params={"project": "free"}, json=body, headers=gateway_world.admin())
        assert taken.status_code == 202, taken.text
