"""A model and its evidence over the gateway, as the commands on evidence have it over Kafka: by the gateway's own rows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.registry_requests import NAME, PROJECT, Registry
from trainhouse.client.gateway.exchange import GatewayAnswer, Request
from trainhouse.client.models.registry_access import GatewayRegistry, KnownModel, UnknownModelError, _of_entry
from trainhouse.events import ModelStage
from trainhouse.gateway.answers import Json
from trainhouse.gateway.models.model_routes import _status, version_row


class Way:
    """A gateway that answers pages of two versions, and keeps what it was asked."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.asked: list[Request] = []

    def run(self, flow: Any) -> Any:
        try:
            request = next(flow)
            while True:
                self.asked.append(request)
                request = flow.send(self.answer(request))
        except StopIteration as end:
            return end.value

    def answer(self, request: Request) -> GatewayAnswer:
        if request.method == "POST":
            return GatewayAnswer(200, b"{}", {})
        if not request.path.endswith(f"/{NAME}"):
            return GatewayAnswer(404, b'{"detail": "there is none"}', {})
        model = self.registry.model
        below = int(request.params.get("cursor", len(model.versions) + 1))
        chosen = model.versions[max(0, below - 3) : below - 1][::-1]
        more = str(chosen[-1].version) if chosen[-1].version > 1 else None
        page = _status(model) | {"versions": [version_row(each) for each in chosen], "next_cursor": more}
        return GatewayAnswer(200, bytes(Json(page).body), {})


@pytest.fixture
def registry() -> Registry:
    """A model with three versions, two of them with a result."""
    registry = Registry()
    for number in (1, 2, 3):
        registry.register(number)
    for number in (1, 2):
        registry.evaluate(number)
    return registry


def test_a_model_is_the_same_over_the_gateway_as_over_kafka(registry: Registry) -> None:
    way: Any = Way(registry)
    found = GatewayRegistry(way).model(PROJECT, NAME)
    assert found == _of_entry(registry.model)
    assert [len(each.evaluations) for each in found.versions] == [1, 1, 0]
    assert [request.params["project"] for request in way.asked] == [PROJECT, PROJECT]


def test_evidence_is_posted_without_what_the_token_says(registry: Registry) -> None:
    way: Any = Way(registry)
    [evaluated] = registry.model.versions[0].evaluations
    GatewayRegistry(way).record(evaluated, 10)
    [request] = way.asked
    assert (request.method, request.path, request.params) == ("POST", f"/v1/models/{NAME}/evaluations", {"project": PROJECT})
    assert request.body is not None and not {"user", "requested_by", "project", "name"} & request.body.keys()
    assert request.body["document"] == evaluated.document


def test_what_is_not_there_is_named(registry: Registry) -> None:
    way: Any = Way(registry)
    with pytest.raises(UnknownModelError, match=f"project {PROJECT} has no model other"):
        GatewayRegistry(way).model(PROJECT, "other")
    model: KnownModel = _of_entry(registry.model)
    assert (model.find("staging").version, model.find("2").semver) == (3, model.versions[1].semver)
    assert model.find("3").stage is ModelStage.STAGING
    for selector in ("champion", "9", "9.0.0"):
        with pytest.raises(UnknownModelError, match="lists them"):
            model.find(selector)
