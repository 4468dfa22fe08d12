"""Reports and views over HTTP: versions, conflicts of people who save at once, deletion, history, names, and other projects."""

from __future__ import annotations

import itertools
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.gateway_world import NOW_MS, ListBus, World
from trainhouse.events.model.base import Event
from trainhouse.events.model.project_document import DocumentSaved, name_problem
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.envelope import envelope_of
from trainhouse.gateway.bus import Sent
from trainhouse.gateway.sharing import document_routes
from trainhouse.projections.record import Record

_OFFSETS = itertools.count(10_000)


class Log:
    """The topic of one test: what is sent gets the next offset, and the tables take it in at once."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.first: list[DocumentSaved] = []  # what others send right before the next one

    def append(self, event: Event, event_id: str) -> int:
        envelope, offset = envelope_of(event, id=event_id, source="test", now_ms=NOW_MS), next(_OFFSETS)
        self._world.tables.put_records([Record(topics.TRACKING, 0, offset, 0, envelope.subject.encode(), encode(envelope))])
        return offset

    async def send(self, topic: str, event: Event, event_id: str, *, key: str | None = None) -> Sent:
        while self.first:
            self.append(self.first.pop(0), f"other-{next(_OFFSETS)}")
        return Sent(event_id, topic, 0, self.append(event, event_id))


@pytest.fixture
def log(gateway_world: World, monkeypatch: pytest.MonkeyPatch) -> Log:
    made = Log(gateway_world)
    plain = ListBus.send

    async def send(self: ListBus, topic: str, event: Event, event_id: str, *, key: str | None = None) -> Sent:
        await plain(self, topic, event, event_id, key=key)
        return await made.send(topic, event, event_id, key=key)

    monkeypatch.setattr(ListBus, "send", send)
    return made


def saved(world: World, name: str, content: str = "# A", replaces: int = 0, **more: Any) -> Any:
    headers = more.pop("headers", None) or world.token()
    body = {"content": content, "replaces": replaces, **more}
    return world.client.put(f"/v1/reports/vision/{quote(name, safe='')}", json=body, headers=headers)


def test_a_report_is_saved_read_listed_and_deleted_and_its_history_stays(gateway_world: World, log: Log) -> None:
    world, ana = gateway_world, gateway_world.token()
    assert saved(world, "Learning rates", "# One", note="first").json()["version"] == 1
    assert saved(world, "Learning rates", "# Two", 1, headers=world.token("ben")).json()["version"] == 2
    at = "/v1/reports/vision/Learning%20rates"
    shown = world.client.get(at, headers=ana).json()
    assert (shown["content"], shown["version"], shown["saved_by"], shown["created_by"], shown["may_save"]) == (
        "# Two",
        2,
        "ben",
        "ana",
        True,
    )
    assert world.client.get(at, params={"version": 1}, headers=ana).json()["content"] == "# One"
    assert world.client.get(at, headers=world.token(role="viewer")).json()["may_save"] is True, (
        "rights of a project are told by its members"
    )
    [row] = [r for r in world.client.get("/v1/reports", headers=ana).json()["items"] if r["name"] == "Learning rates"]
    assert row["version"] == 2 and "content" not in row
    gone = world.client.delete(at, params={"replaces": 2}, headers=ana)
    assert gone.status_code == 200 and gone.json()["version"] == 3
    assert world.client.get(at, headers=ana).status_code == 404
    assert world.client.delete(at, params={"replaces": 3}, headers=ana).status_code == 404
    versions = world.client.get(f"{at}/history", headers=ana).json()["items"]
    assert [(v["version"], v["saved_by"], v["deleted"]) for v in versions] == [(3, "ana", 1), (2, "ben", 0), (1, "ana", 0)]
    assert saved(world, "Learning rates", "# Again").json()["version"] == 4, "a deleted report may be written again, behind its history"
    [sent] = [e for e in world.bus.of(DocumentSaved) if e.deleted]
    assert (sent.project, sent.kind, sent.user, sent.content) == ("vision", "report", "ana", "")


def test_a_save_made_from_an_older_version_is_a_conflict_that_names_who_saved(gateway_world: World, log: Log) -> None:
    world = gateway_world
    saved(world, "Both", "# One")
    saved(world, "Both", "# Of ben", 1, headers=world.token("ben"))
    sent = len(world.bus.of(DocumentSaved))
    refused = saved(world, "Both", "# Of ana", 1)
    assert refused.status_code == 409
    assert "ben saved version 2 of report Both" in refused.json()["detail"] and refused.json()["saved_by"] == "ben"
    assert len(world.bus.of(DocumentSaved)) == sent, "nothing is sent that cannot count"
    assert saved(world, "Both", "# New", 0).status_code == 409 and saved(world, "Both", "# Future", 7).status_code == 409
    assert saved(world, "Nowhere", "# X", 3).json()["version"] == 0
    assert world.client.delete("/v1/reports/vision/Both", params={"replaces": 1}, headers=world.token()).status_code == 409


def test_of_two_saves_that_pass_at_once_the_first_on_the_topic_counts(gateway_world: World, log: Log) -> None:
    world = gateway_world
    saved(world, "Race", "# One")
    fields = {"project": "vision", "kind": "report", "name": "Race", "version": 2, "content": "# Of ben", "user": "ben", "at_ms": NOW_MS}
    log.first = [DocumentSaved.model_validate(fields)]
    refused = saved(world, "Race", "# Of ana", 1)
    assert refused.status_code == 409 and refused.json()["saved_by"] == "ben"
    shown = world.client.get("/v1/reports/vision/Race", headers=world.token()).json()
    assert (shown["content"], shown["version"]) == ("# Of ben", 2)


def test_the_first_save_counts_also_where_a_table_takes_the_later_one_in_first(gateway_world: World, log: Log) -> None:
    world = gateway_world
    fields = {"project": "vision", "kind": "report", "name": "Order", "version": 1, "at_ms": NOW_MS}
    early, late = next(_OFFSETS), next(_OFFSETS)
    for offset, user in ((late, "late"), (early, "early")):
        envelope = envelope_of(DocumentSaved.model_validate(fields | {"user": user}), id=user, source="test", now_ms=NOW_MS)
        world.tables.put_records([Record(topics.TRACKING, 0, offset, 0, envelope.subject.encode(), encode(envelope))])
    assert world.client.get("/v1/reports/vision/Order", headers=world.token()).json()["saved_by"] == "early"


def test_another_project_has_no_documents_and_a_viewer_saves_none(gateway_world: World, log: Log) -> None:
    world, dora = gateway_world, gateway_world.token("dora", projects=["speech"])
    saved(world, "Ours")
    at = "/v1/reports/vision/Ours"
    for method, more in (("GET", {}), ("PUT", {"json": {"content": "x", "replaces": 1}}), ("DELETE", {"params": {"replaces": 1}})):
        assert world.client.request(method, at, headers=dora, **more).status_code == 404, method
    assert world.client.get(f"{at}/history", headers=dora).status_code == 404
    listed = world.client.get("/v1/reports", headers=dora).json()["items"]
    assert not listed and not world.client.get("/v1/reports", params={"project": "vision"}, headers=dora).json()["items"]
    assert saved(world, "Ours", "x", 1, headers=world.token(role="viewer")).status_code == 403
    assert world.client.get(at).status_code == 401


@pytest.mark.parametrize("name", [" blank", "..", "a\\b", "tab\tin", "x" * 121, "e\u0301", "zero\u200bwidth"])
def test_a_name_that_no_address_should_have_is_refused(gateway_world: World, log: Log, name: str) -> None:
    if name == "..":  # no client sends it as a part of an address
        assert name_problem(name)
        return
    answer = saved(gateway_world, name)
    assert answer.status_code == 422, (name, answer.text)


@pytest.mark.parametrize("name", ["Größe – Überblick", "学習率", "a.b (v2) 100%?", "emoji 🚀"])
def test_names_and_texts_of_any_language_come_back_as_they_were(gateway_world: World, log: Log, name: str) -> None:
    world, text = gateway_world, f"# {name}\n\n{'ß' * 100}"
    assert saved(world, name, text).status_code == 200
    assert world.client.get(f"/v1/reports/vision/{quote(name, safe='')}", headers=world.token()).json()["content"] == text


def test_what_is_too_large_or_no_text_is_refused(gateway_world: World, log: Log) -> None:
    world = gateway_world
    assert saved(world, "Large", "x" * 65_536).status_code == 200
    assert saved(world, "Larger", "x" * 65_537).status_code == 422
    raw = world.client.put(
        "/v1/reports/vision/Surrogate", content=b'{"content": "\\ud800"}', headers=world.token() | {"Content-Type": "application/json"}
    )
    assert raw.status_code == 422, raw.text


def test_views_are_documents_of_their_own_and_listed_with_their_content(gateway_world: World, log: Log) -> None:
    world, ana = gateway_world, gateway_world.token()
    saved(world, "Same name", "# Report")
    view = '{"place": "job", "fields": [["smooth", "0.6"]]}'
    assert world.client.put("/v1/views/vision/Same%20name", json={"content": view}, headers=ana).json()["version"] == 1
    [row] = world.client.get("/v1/views", params={"project": "vision"}, headers=ana).json()["items"]
    assert (row["name"], row["content"]) == ("Same name", view)
    assert world.client.get("/v1/reports/vision/Same%20name", headers=ana).json()["content"] == "# Report"


def test_a_save_that_cannot_be_read_yet_says_so_and_is_not_lost(gateway_world: World) -> None:
    answer = saved(gateway_world, "Behind")
    assert answer.status_code == 503 and "nothing is lost" in answer.json()["detail"]


def test_a_document_has_so_many_versions_and_a_project_so_many_saves(
    gateway_world: World, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = gateway_world
    monkeypatch.setattr(document_routes, "MOST_VERSIONS", 2)
    saved(world, "Bounded", "# One")
    assert saved(world, "Bounded", "# Two", 1).json()["version"] == 2
    sent = len(world.bus.of(DocumentSaved))
    refused = saved(world, "Bounded", "# Three", 2)
    assert refused.status_code == 422
    assert refused.json()["detail"] == "report Bounded has 2 versions, as many as one may have: save it under another name"
    gone = world.client.delete("/v1/reports/vision/Bounded", params={"replaces": 2}, headers=world.token())
    assert gone.json()["version"] == 3, "it can be deleted all the same"
    assert saved(world, "Bounded", "# Again").status_code == 422, "and is not begun anew by that"
    monkeypatch.setattr(document_routes, "MOST_SAVES", 1)
    full = saved(world, "Another", "# One")
    assert full.status_code == 422 and "project vision has 1 versions of reports and views" in full.json()["detail"]
    assert len(world.bus.of(DocumentSaved)) == sent + 1, "nothing was sent but the deletion"
