"""What one project may keep in the registry: evidence that the gate can use, so many bytes, and a share of what there may be."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.registry_requests import OF_MODEL, Registry, compared, content_of, facts_of, observed
from trainhouse.events import (
    ModelCompared,
    ModelDescribed,
    ModelEvaluationRecorded,
    ModelRegistered,
    ModelRegistrationHeld,
    ModelRequestRefused,
)
from trainhouse.scheduler.core.registry import registry_machine, room
from trainhouse.scheduler.core.registry.registry_machine import RegistryMachine
from trainhouse.scheduler.core.registry.registry_state import HELD_FOR_MS, MAX_RESULTS_ALIKE


def refusal(decisions: Sequence[object]) -> str:
    """The reason of a refusal, which is all that came of a request."""
    (refused,) = decisions
    assert isinstance(refused, ModelRequestRefused), refused
    return refused.reason


def with_results() -> Registry:
    """Two versions, each with a result."""
    registry = Registry()
    for number in (1, 2):
        registry.register(number)
        registry.evaluate(number)
    return registry


def test_of_comparisons_with_one_version_by_one_suite_the_newest_is_kept() -> None:
    registry = with_results()
    for at_ms in range(3):
        registry.ask(compared(2, 1, "better", "evaluation-2-0.8", "evaluation-1-0.8", at_ms))
    assert [each.compared_at_ms for each in registry.model.versions[1].comparisons] == [2]


def test_of_results_alike_the_newest_are_kept_whatever_the_order_in_which_they_come() -> None:
    registry = Registry()
    registry.register(1)
    registry.evaluate(1, 0.99)
    registry.now_ms += 1000
    for k in range(MAX_RESULTS_ALIKE):
        assert isinstance(registry.evaluate(1, k / 10)[0], ModelEvaluationRecorded)
    registry.evaluate(1, 0.5, suite="robustness")
    registry.now_ms -= 5000
    registry.evaluate(1, 0.7)
    kept = registry.model.versions[0].evaluations
    assert [each.metrics["top1"].value for each in kept] == [0.0, 0.1, 0.2, 0.3, 0.5]


def test_a_comparison_has_a_bounded_number_of_groups() -> None:
    one = compared(2, 1, "better", "a", "b", 0).model_dump()
    with pytest.raises(ValueError, match="metrics"):
        ModelCompared.model_validate(one | {"metrics": one["metrics"] * 257})


@pytest.mark.parametrize(
    ("bound", "what"), [("MAX_MODEL_BYTES", "model vision"), ("MAX_PROJECT_BYTES", "project"), ("MAX_STATE_BYTES", "all")]
)
def test_a_budget_of_bytes_refuses_what_would_be_more(monkeypatch: pytest.MonkeyPatch, bound: str, what: str) -> None:
    registry = with_results()
    monkeypatch.setattr(registry_machine, bound, registry.model.size_bytes + 100)
    reason = refusal(registry.evaluate(1, suite="other", evaluation_id="more"))
    assert what in reason and "fewer metrics" in reason
    assert "shorter notes" in refusal(registry.ask(ModelDescribed(**OF_MODEL, notes="x" * 200)))
    assert registry.ask(ModelDescribed(**OF_MODEL, notes="short"))
    loaded = registry.machine.load(registry.machine.dump(registry.state))
    assert loaded.used == registry.state.used and loaded.used["vision"].size_bytes == registry.model.size_bytes


def test_a_project_has_a_share_of_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_machine, "MAX_MODELS", 20)
    registry = Registry()
    for k in range(2):
        registry.ask(ModelDescribed(project="greedy", name=f"m{k}", create=True))
    assert "project greedy has 2 models" in refusal(registry.ask(ModelDescribed(project="greedy", name="m", create=True)))
    assert "project greedy has 2 models" in refusal(registry.ask(ModelRegistered(project="greedy", name="m", content=content_of(1))))
    assert isinstance(registry.ask(ModelRegistered(**OF_MODEL, content=content_of(1)))[0], ModelRegistrationHeld)


def test_registrations_that_were_held_make_no_more_models_than_the_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_machine, "MAX_MODELS", 10)
    registry = Registry()
    for name in ("a", "b"):
        registry.ask(ModelRegistered(project="vision", name=name, content=content_of(1)), name)
    assert len(registry.ask(observed("a", facts_of(1), name="a"))) == 2
    assert "has 1 models" in refusal(registry.ask(observed("b", facts_of(1), name="b")))


def test_a_project_has_a_share_of_held_registrations_and_of_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MAX_HELD", 10)
    registry = Registry()
    registry.ask(ModelRegistered(project="greedy", name="m", content=content_of(1)))
    assert "registrations of project greedy" in refusal(registry.ask(ModelRegistered(project="greedy", name="n", content=content_of(2))))
    registry.register(1)
    monkeypatch.setattr(room, "MAX_STAGES_WAITING", 10)
    assert "of project vision wait" in refusal(registry.ask(ModelDescribed(**OF_MODEL, notes="x")))
    assert registry.ask(ModelDescribed(project="speech", name="m", create=True))[0].event_type.endswith("description-changed.v1")


def test_what_is_to_be_asked_again_comes_again_under_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MAX_HELD", 10)
    registry = Registry()
    first, second = (ModelRegistered(**OF_MODEL, content=content_of(number)) for number in (1, 2))
    assert isinstance(registry.ask(first, "r1")[0], ModelRegistrationHeld)
    assert registry.ask(first, "r1") == [], "what is held is not held again"
    for _ in range(2):
        assert "ask again" in refusal(registry.ask(second, "r2"))
    assert len(registry.ask(observed("r1", facts_of(1)))) == 2
    assert registry.ask(first, "r1") == [], "it was answered for good"
    assert isinstance(registry.ask(second, "r2")[0], ModelRegistrationHeld)
    registry.now_ms += HELD_FOR_MS
    assert "ask again" in refusal(registry.tick())
    assert isinstance(registry.ask(second, "r2")[0], ModelRegistrationHeld)
    assert len(registry.ask(observed("r2", facts_of(2)))) == 2
    monkeypatch.setattr(room, "MAX_STAGES_WAITING", 10)
    change = ModelDescribed(**OF_MODEL, notes="x")
    assert "of project vision wait" in refusal(registry.ask(change, "r3"))
    registry.state.stages.clear()
    assert registry.ask(change, "r3")[0].event_type.endswith("description-changed.v1")
    assert registry.ask(change, "r3") == []


def test_below_its_level_what_is_to_be_asked_again_has_used_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MAX_HELD", 10)
    registry = Registry(RegistryMachine().at(1))
    registry.ask(ModelRegistered(**OF_MODEL, content=content_of(1)), "r1")
    second = ModelRegistered(**OF_MODEL, content=content_of(2))
    assert "ask again" in refusal(registry.ask(second, "r2"))
    assert registry.ask(second, "r2") == []


def test_a_registration_that_is_refused_for_good_counts_once() -> None:
    registry = Registry()
    neither = ModelRegistered(**OF_MODEL)
    assert "neither" in refusal(registry.ask(neither, "r1"))
    assert registry.ask(neither, "r1") == []
    registry.ask(ModelRegistered(**OF_MODEL, content=content_of(1)), "r2")
    assert "not there" in refusal(registry.ask(observed("r2", None, refusal="not there")))
    assert registry.ask(ModelRegistered(**OF_MODEL, content=content_of(1)), "r2") == []
