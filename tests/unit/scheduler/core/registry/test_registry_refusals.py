"""A request to the registry that cannot be handled is answered under its id, and a figure of any size is handled."""

from __future__ import annotations

import pytest

from tests.support.counting_machine import proposed
from tests.support.registry_requests import OF_MODEL, Registry, content_of, facts_of
from trainhouse.events import (
    ModelApproved,
    ModelContentObserved,
    ModelGate,
    ModelGateApplied,
    ModelPromotionRequested,
    ModelRegistered,
    ModelRequestRefused,
    ModelRollbackRequested,
    envelope_of,
)
from trainhouse.events.model.model_gate import OnDrift
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.journal import InputRefused
from trainhouse.events.wire.topics import MODEL_HISTORY, MODEL_REQUESTS, REGISTRY
from trainhouse.scheduler.core.protocol.batch import Limits, Proposer, pending
from trainhouse.scheduler.core.protocol.journal import begin, fold_bytes
from trainhouse.scheduler.core.protocol.machine import Input
from trainhouse.scheduler.core.protocol.publication import outgoing
from trainhouse.scheduler.core.registry import registry_machine
from trainhouse.scheduler.core.registry.registry_machine import RegistryMachine
from trainhouse.scheduler.core.registry.registry_view import why


def test_a_figure_of_any_size_is_held_against_the_gate() -> None:
    registry = Registry()
    registry.register(1)
    limits = {"suites": [{"suite": "accuracy", "metrics": {"perplexity": {"at_most": 100}}}], "approvals": 0}
    registry.ask(ModelGateApplied(**OF_MODEL, user="ada", gate=ModelGate.model_validate(limits)))
    registry.evaluate(1, metrics={"perplexity": {"value": 5e21}})
    (refused,) = registry.promote(1)
    assert isinstance(refused, ModelRequestRefused) and "5e+21, and at most 100" in refused.reason
    (lacking,) = [each for each in why(registry.model, registry.model.versions[0], registry.now_ms) if not each.met]
    assert lacking.value == 1e15


def test_a_request_that_cannot_be_handled_is_refused_under_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(registry_machine._Turn, "approve", broken)
    machine = RegistryMachine()
    asked = envelope_of(ModelApproved(**OF_MODEL, version="1", user="bob"), id="approve-1", source="tests", now_ms=5)
    waiting = [pending(0, encode(asked), (), Limits())]
    record = proposed(Proposer(machine, "me", input_topic=MODEL_REQUESTS), begin(machine, 0), 1000, waiting, 0, tick=False)
    (refused,) = [each for each in record.decisions if isinstance(each, ModelRequestRefused)]
    assert (refused.request_id, refused.user, refused.at_ms) == ("approve-1", "bob", 1000) and "a bug" in refused.reason
    assert any(isinstance(each, InputRefused) for each in record.decisions)
    assert [each.topic for each in outgoing(machine, REGISTRY, 0, record)].count(MODEL_HISTORY) == 1
    assert fold_bytes(machine, begin(machine, 0), record.encode())[1] == record


def of(source: str, project: str, event: type[ModelRegistered | ModelPromotionRequested], **fields: object) -> Input:
    """A request with id 1 of a source."""
    asked = event.model_validate({"project": project, "name": "resnet", "user": "ada"} | fields)
    return Input(1, envelope_of(asked, id="1", source=source, now_ms=5))


def test_requests_of_one_id_from_two_senders_are_two() -> None:
    registry = Registry(now_ms=5)
    for source, project in (("a", "vision"), ("b", "speech")):
        registry.record([of(source, project, ModelRegistered, content=content_of(1))])
    inputs = [of("c", "text", ModelPromotionRequested, version="1")]
    [refused] = registry.record(inputs)
    assert [each.registered.project for each in registry.state.held.values()] == ["vision", "speech"], "another's refusal ends none"
    first, second = registry.state.held.values()
    for held in (first, second):
        facts = facts_of(1, project=held.registered.project)
        about = {"project": held.registered.project, "name": "resnet", "request_id": "1", "digest": held.digest, "facts": facts}
        registry.ask(ModelContentObserved.model_validate(about))
    assert sorted(registry.state.models) == ["speech/resnet", "vision/resnet"] and not registry.state.held
    other = refused.model_copy(update={"digest": "0" * 16})
    ids = {each.event_id for each in registry.machine.effects(1, 5, inputs, [refused, other])}
    assert len(ids) == 2


def champions(registry: Registry) -> None:
    """Versions 1 and 2, of which the second is champion after the first."""
    for number in (1, 2):
        registry.register(number)
        registry.ask(ModelGateApplied(**OF_MODEL, user="ada", gate=ModelGate(approvals=0)))
        registry.promote(number)


def test_a_gate_that_rolls_back_is_kept_from_its_level_on() -> None:
    gate = ModelGate(approvals=0, on_drift=OnDrift.ROLLBACK)
    before = Registry(RegistryMachine().at(1))
    before.register(1)
    (refused,) = before.ask(ModelGateApplied(**OF_MODEL, user="ada", gate=gate))
    assert isinstance(refused, ModelRequestRefused) and "trainhouse upgrade finish" in refused.reason
    assert "on_drift" not in before.machine.dump(before.state).decode()
    registry = Registry()
    registry.register(1)
    registry.ask(ModelGateApplied(**OF_MODEL, user="ada", gate=gate))
    assert registry.model.gate == gate
    assert registry.machine.load(registry.machine.dump(registry.state)).entry("vision", "resnet").gate == gate


def test_a_rollback_of_another_champion_than_the_one_that_it_is_about_is_refused() -> None:
    registry = Registry()
    champions(registry)
    (refused,) = registry.ask(ModelRollbackRequested(**OF_MODEL, user="trainhouse", reason="drift", champion=1))
    assert isinstance(refused, ModelRequestRefused) and "version 2 by now" in refused.reason
    registry.ask(ModelRollbackRequested(**OF_MODEL, user="trainhouse", reason="drift", champion=2), "drift-1")
    assert registry.model.champion == 1
    assert registry.ask(ModelRollbackRequested(**OF_MODEL, user="trainhouse", reason="drift", champion=2), "drift-1") == []
