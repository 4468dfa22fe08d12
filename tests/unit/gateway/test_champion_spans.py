"""Spans of champions follow the decisions, and only so many are kept."""

from __future__ import annotations

from tests.support.registry_requests import Registry
from trainhouse.events import ModelGateApplied, ModelRollbackRequested
from trainhouse.events.model.model_decisions import ModelDecision
from trainhouse.events.model.model_gate import ModelGate
from trainhouse.gateway.models.champion_spans import MOST_SPANS, ChampionSpans
from trainhouse.gateway.models.model_summary import summary_of

OF = {"project": "vision", "name": "resnet"}


def promoted(*versions: int) -> Registry:
    """A model without a gate, of which these became champion, a second apart."""
    registry = Registry()
    for version in versions:
        registry.register(version)
        registry.ask(ModelGateApplied(**OF, gate=ModelGate(approvals=0), user="ops"))
        registry.now_ms += 1000
        registry.promote(version)
    return registry


def spans_of(registry: Registry) -> ChampionSpans:
    spans = ChampionSpans()
    for each in registry.decisions:
        if isinstance(each, ModelDecision):
            spans.note(each)
    return spans


def test_a_span_ends_where_the_next_begins() -> None:
    registry = promoted(1, 2)
    registry.now_ms += 5000
    registry.ask(ModelRollbackRequested(**OF, user="bo", reason="slow"))
    spans = spans_of(registry).newest_first()
    assert [(each.version, each.how, each.by) for each in spans] == [
        (1, "rolled back", "bo"),
        (2, "promoted", "ada"),
        (1, "promoted", "ada"),
    ]
    assert spans[0].ended_ms is None and spans[1].ended_ms == spans[0].began_ms and spans[2].ended_ms == spans[1].began_ms


def test_a_model_without_a_champion_has_no_span() -> None:
    registry = Registry()
    registry.register(1)
    spans = spans_of(registry)
    assert spans.current is None and spans.newest_first() == []
    summary = summary_of(registry.model, spans)
    assert summary["champion"] is None and summary["result"] is None and summary["staging"]["version"] == 1


def test_the_newest_spans_are_kept() -> None:
    registry = promoted(1, 2)
    first, second = [each for each in registry.decisions if each.event_type == "trainhouse.model.promoted.v1"]
    spans = ChampionSpans()
    for _ in range(MOST_SPANS):
        for each in (first, second):
            assert isinstance(each, ModelDecision)
            spans.note(each)
    assert len(spans.newest_first()) == MOST_SPANS and spans.current is not None and spans.current.version == 2


def test_a_champion_that_is_archived_is_none_any_more() -> None:
    registry = promoted(1)
    spans = spans_of(registry)
    archived = next(each for each in promoted(1, 2).decisions if each.event_type == "trainhouse.model.archived.v1")
    assert isinstance(archived, ModelDecision)
    spans.note(archived)
    assert spans.current is None and spans.newest_first()[0].ended_ms == archived.at_ms
