"""Models by their topic and the gateway are those that the registry's history gives, or are left to the whole client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import orjson
import pytest

from tests.support.registry_requests import NAME, PROJECT, Registry
from trainhouse.cli.models.registry_commands import _version_row
from trainhouse.client.errors import NotReachableError
from trainhouse.client.gateway.exchange import Flow, GatewayAnswer, Request
from trainhouse.client.quick.quick_models import FACTS, QuickModels, VersionRow
from trainhouse.client.quick.quick_topics import NotQuickError, QuickTopics
from trainhouse.events import Event, VersionFacts, encode, envelope_of
from trainhouse.events.wire.topics import MODEL_HISTORY, MODELS
from trainhouse.gateway.models.model_routes import _status, version_row
from trainhouse.scheduler.core.registry.registry_effects import registry_effects
from trainhouse.scheduler.core.registry.registry_state import ModelEntry
from trainhouse.scheduler.core.registry.registry_view import why

VERSIONS = 5


@pytest.fixture
def registry() -> Registry:
    """A model with versions, evaluations, an approval and a champion."""
    made = Registry()
    for number in range(1, VERSIONS + 1):
        made.register(number, **({"code_sha256": None} if number == 3 else {}))
        made.evaluate(number, 0.7 + number / 100)
    made.approve(2, "bo")
    made.approve(2, "cy")
    made.promote(2)
    return made


class Record:
    """A record as the library gives it."""

    def __init__(self, status: Event) -> None:
        self._status = status

    def key(self) -> bytes:
        return self._status.subject().encode()

    def value(self) -> bytes:
        return encode(envelope_of(self._status, id="e", source="test", now_ms=1))


class Topic(QuickTopics):
    """What a registry published: statuses, and decisions."""

    def __init__(self, registry: Registry) -> None:
        super().__init__({})
        published: dict[str, list[Record]] = {MODELS: [], MODEL_HISTORY: []}
        for effect in registry_effects(registry.decisions):
            published[effect.topic].append(Record(effect.event))
        object.__setattr__(self, "records", published)

    def messages(self, topic: str, since: Any = None) -> Iterator[Any]:
        yield from self.records[topic]  # type: ignore[attr-defined]


class Gateway:
    """The gateway's answers about one model, two versions a page. `is_away`: it does not answer."""

    def __init__(self, model: ModelEntry, now_ms: int, is_away: bool = False) -> None:
        self._model, self._now_ms, self._is_away = model, now_ms, is_away

    def run(self, flow: Flow[Any]) -> Any:
        try:
            request = next(flow)
            while True:
                request = flow.send(GatewayAnswer(200, orjson.dumps(self.answer(request)), {}))
        except StopIteration as end:
            return end.value

    def answer(self, request: Request) -> dict[str, Any]:
        if self._is_away:
            raise NotReachableError("it is away")
        assert request.params["project"] == PROJECT
        begin, _, rest = request.path.removeprefix("/v1/models/").partition("/")
        assert unquote(begin) == NAME
        if rest:
            version = self._model.find(unquote(rest.split("/")[1]))
            assert version is not None
            conditions = [each.model_dump(mode="json") for each in why(self._model, version, self._now_ms)]
            return {"met": True, "evidence": version.evidence, "conditions": conditions}
        below = int(request.params.get("cursor", len(self._model.versions) + 1))
        chosen = self._model.versions[max(0, below - 3) : below - 1][::-1]
        more = str(chosen[-1].version) if chosen[-1].version > 1 else None
        return _status(self._model) | {"versions": [version_row(each) for each in chosen], "next_cursor": more}


def quick(registry: Registry, **changes: Any) -> QuickModels:
    return QuickModels(Topic(registry), Gateway(registry.model, registry.now_ms, **changes))  # type: ignore[arg-type]


def test_the_statuses_are_those_of_the_history(registry: Registry) -> None:
    registry.approve(3, "bo")  # no status follows from it
    registry.promote(3)  # it is refused
    whole = registry.model.status(0).model_dump(mode="json", exclude={"updated_at_ms"})
    (found,) = quick(registry).statuses()
    assert orjson.dumps(found) == orjson.dumps(whole)


def test_the_versions_are_those_of_the_history(registry: Registry) -> None:
    model = registry.model
    whole = [VersionRow(_version_row(model, version), len(version.evaluations)) for version in model.versions]
    found = quick(registry).versions(PROJECT, NAME)
    assert found == whole and len(whole) == VERSIONS
    assert orjson.dumps([each.row for each in found]) == orjson.dumps([each.row for each in whole]), "in the same order of fields"


@pytest.mark.parametrize("selector", ["champion", "2", "1.0.0"])
def test_the_conditions_are_those_of_the_history(registry: Registry, selector: str) -> None:
    version = registry.model.find(selector)
    assert version is not None
    whole = [each.model_dump(mode="json") for each in why(registry.model, version, registry.now_ms)]
    assert quick(registry).why(PROJECT, NAME, selector) == (whole, version.evidence)


def test_a_model_without_a_status_is_known_not_to_exist(registry: Registry) -> None:
    models = quick(registry)
    assert models.versions(PROJECT, "none") is None and models.why("none", NAME, "1") is None


def test_a_gateway_that_is_behind_or_away_is_not_asked(registry: Registry) -> None:
    before = registry.model
    registry.register(VERSIONS + 1)
    behind = QuickModels(Topic(registry), Gateway(before, registry.now_ms))  # type: ignore[arg-type]
    for models in (behind, quick(registry, is_away=True), QuickModels(Topic(registry), None)):
        with pytest.raises(NotQuickError):
            models.versions(PROJECT, NAME)
        with pytest.raises(NotQuickError):
            models.why(PROJECT, NAME, "1")


def test_a_gateway_that_has_not_read_an_evaluation_or_an_approval_is_not_asked(registry: Registry) -> None:
    for act in (lambda: registry.evaluate(1, 0.9), lambda: registry.approve(1, "di")):
        before = registry.model
        assert act()
        behind = QuickModels(Topic(registry), Gateway(before, registry.now_ms))  # type: ignore[arg-type]
        with pytest.raises(NotQuickError):
            behind.versions(PROJECT, NAME)
        with pytest.raises(NotQuickError):
            behind.why(PROJECT, NAME, "1")


def test_a_first_page_of_a_gateway_that_is_behind_is_not_taken(registry: Registry) -> None:
    before = registry.model
    registry.evaluate(1, 0.9)
    pages = [Gateway(before, registry.now_ms), *[Gateway(registry.model, registry.now_ms)] * VERSIONS]

    class Several(Gateway):
        def answer(self, request: Request) -> dict[str, Any]:
            return pages.pop(0).answer(request)

    models = QuickModels(Topic(registry), Several(registry.model, registry.now_ms))  # type: ignore[arg-type]
    with pytest.raises(NotQuickError):
        models.versions(PROJECT, NAME)


def test_facts_are_those_of_the_model() -> None:
    assert tuple(name for name in VersionFacts.model_fields if name != "project") == FACTS
