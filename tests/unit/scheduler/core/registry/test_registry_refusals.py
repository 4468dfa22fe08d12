"""A request to the registry that cannot be handled is answered under its id, and a figure of any size is handled."""

from __future__ import annotations

import pytest

from tests.support.counting_machine import proposed
from tests.support.registry_requests import OF_MODEL, Registry
from trainhouse.events import ModelApproved, ModelGate, ModelGateApplied, ModelRequestRefused, envelope_of
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.journal import InputRefused
from trainhouse.events.wire.topics import MODEL_HISTORY, MODEL_REQUESTS, REGISTRY
from trainhouse.scheduler.core.protocol.batch import Limits, Proposer, pending
from trainhouse.scheduler.core.protocol.journal import begin, fold_bytes
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
