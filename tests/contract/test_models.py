"""The views of models on the real engine: versions, the champion of any moment, evidence, and whose word counts."""

from __future__ import annotations

from pathlib import Path

from tests.support.registry_requests import OF_MODEL, Registry, compared
from tests.support.tables.alert_tables import tables_in
from trainhouse.events import (
    ModelArchiveRequested,
    ModelDescribed,
    ModelGate,
    ModelGateApplied,
    ModelRequestRefused,
    ModelRollbackRequested,
)
from trainhouse.events.model.model_decisions import ModelDecision
from trainhouse.events.wire import topics


def test_views_say_what_the_registry_decided(tmp_path: Path) -> None:
    registry = Registry()
    for number in (1, 2, 3):
        registry.register(number)
    gate = ModelGate.model_validate({"approvals": 1, "suites": [{"suite": "accuracy", "metrics": {"top1": {"at_least": 0.7}}}]})
    registry.ask(ModelGateApplied(**OF_MODEL, gate=gate, user="ada"))
    registry.evaluate(1)
    registry.evaluate(2, 0.81)
    registry.approve(1, "bob")
    registry.promote(1)
    first_ms = registry.now_ms
    registry.now_ms += 1000
    registry.approve(2, "bob")
    registry.ask(compared(2, 1, "better", "evaluation-2-0.81", "evaluation-1-0.8", registry.now_ms))
    registry.promote(2)
    registry.promote(2, emergency=True, reason="down")
    second_ms = registry.now_ms
    registry.now_ms += 1000
    registry.ask(ModelRollbackRequested(**OF_MODEL, reason="complaints", user="eve"))
    registry.ask(ModelDescribed(**OF_MODEL, version="3", notes="a note", tags={"a": "b"}))
    registry.approve(3, "bob")
    registry.ask(ModelArchiveRequested(**OF_MODEL, version="3", user="eve"))
    said = [each for each in registry.decisions if isinstance(each, ModelDecision | ModelRequestRefused)]
    with tables_in(tmp_path / "clickhouse") as tables:
        tables.put(topics.MODEL_HISTORY, said, registry.now_ms)
        tables.put(topics.MODEL_HISTORY, said[:4], registry.now_ms)
        versions = tables.ask("SELECT * FROM model_versions ORDER BY version", {})
        [model] = tables.ask("SELECT * FROM models", {})
        columns = "version, decided_by, approvers, emergency, evaluations"
        at = f"SELECT {columns} FROM model_stage_at(at = fromUnixTimestamp64Milli(toInt64(%d))) WHERE stage = 'champion'"
        champions = [tables.ask(at % ms, {}) for ms in (first_ms - 1, first_ms, second_ms, registry.now_ms)]
        approvals = tables.ask("SELECT version, user, approved, counts FROM model_approvals ORDER BY version", {})
        evaluations = tables.ask("SELECT version, metric, value FROM model_evaluations ORDER BY version", {})
        comparisons = tables.ask("SELECT version, against, metric, verdict, margin FROM model_comparisons", {})
        edges = tables.ask("SELECT from_id, to_id FROM lineage_edges WHERE kind = 'registered' ORDER BY to_id", {})
    assert [(row["version"], row["semver"], row["stage"], row["emergency"]) for row in versions] == [
        (1, "1.0.0", "champion", 0),
        (2, "1.0.1", "archived", 1),
        (3, "1.0.2", "archived", 0),
    ]
    assert [row["notes"] for row in versions] == ["", "", "a note"] and versions[2]["tags"] == {"a": "b"}
    assert versions[0]["lineage_id"] == "model:vision/resnet@1" and versions[0]["trained_by"] == "ada"
    assert (model["champion"], model["champion_semver"], model["versions"]) == (1, "1.0.0", 3)
    assert (model["emergencies"], model["gate_version"]) == (1, 1)
    assert champions[0] == []
    assert champions[1] == [{"version": 1, "decided_by": "ada", "approvers": ["bob"], "emergency": 0, "evaluations": ["evaluation-1-0.8"]}]
    assert [row["version"] for row in champions[2]] == [2] and champions[2][0]["emergency"] == 1
    assert [(row["version"], row["decided_by"]) for row in champions[3]] == [(1, "eve")]
    assert [(row["version"], row["user"], row["counts"]) for row in approvals] == [(1, "bob", 1), (2, "bob", 0), (3, "bob", 0)]
    assert [(row["version"], row["value"]) for row in evaluations] == [(1, 0.8), (2, 0.81)]
    assert comparisons == [{"version": 2, "against": 1, "metric": "top1", "verdict": "better", "margin": 0.0}]
    assert edges[0] == {"from_id": "checkpoint:train-1@1", "to_id": "model:vision/resnet@1"}
