"""Decisions of the registry of models to `model_facts`, and a version's edges to lineage.

Holds: an event that is read twice makes the same rows.
"""

from collections.abc import Iterator
from typing import Any, Final

import orjson

from trainhouse.events.model.model_decisions import (
    ModelApprovalRecorded,
    ModelArchived,
    ModelComparisonRecorded,
    ModelDecision,
    ModelDescriptionChanged,
    ModelEmergencyReviewed,
    ModelEvaluationEnded,
    ModelEvaluationRecorded,
    ModelEvaluationStarted,
    ModelGateChanged,
    ModelPromoted,
    ModelRequestRefused,
    ModelRolledBack,
    ModelVersionRegistered,
)
from trainhouse.events.model.model_names import model_lineage_id
from trainhouse.events.wire.envelope import Envelope
from trainhouse.projections.record import Record, Row, clamp_ms
from trainhouse.projections.rows.lineage import checkpoint_of, edge, job_of

_TEXTS: Final = ("semver", "content", "job_id", "trained_by", "framework", "reason", "notes", "gate", "conditions", "evidence")
_OF_RESULTS: Final = ("evaluation_id", "suite", "dataset", "split", "document")
_COUNTS: Final = ("version", "other", "commit", "size_bytes", "gate_version", "samples", "emergency")
_LISTS: Final = ("data", "approvers", "evaluations", "metrics", "groups", "verdicts", "figures", "lows", "highs", "p_values", "margins")


def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The rows of one decision; nothing for other events."""
    event = envelope.event
    if not isinstance(event, ModelDecision | ModelRequestRefused):
        return
    number = event.number if isinstance(event, ModelDecision) else 0
    named = {"project": event.project, "name": event.name, "number": number, "request_id": str(event.request_id), "user": event.user}
    empty: dict[str, Any] = (
        dict.fromkeys((*_TEXTS, *_OF_RESULTS), "") | dict.fromkeys(_COUNTS, 0) | {name: [] for name in _LISTS} | {"tags": {}}
    )
    yield Row("model_facts", empty | named | {"at": clamp_ms(event.at_ms)} | _values(event))
    if isinstance(event, ModelVersionRegistered):
        job_id, to = str(event.facts.job_id), model_lineage_id(event.project, event.name, event.version)
        # Of files that a client logged there is no checkpoint.
        of = checkpoint_of(job_id, event.facts.commit) if event.facts.commit else job_of(job_id)
        yield edge(of, to, "registered", clamp_ms(event.at_ms), job_id, event.project)


def _values(event: ModelDecision | ModelRequestRefused) -> dict[str, Any]:
    match event:
        case ModelVersionRegistered():
            facts = event.facts
            of_content = {"content": facts.content, "job_id": str(facts.job_id), "commit": facts.commit, "trained_by": facts.trained_by}
            more = {"data": list(facts.data), "framework": facts.framework, "size_bytes": facts.size_bytes, "tags": dict(event.tags)}
            about = {"version": event.version, "semver": event.semver, "reason": event.semver_reason, "notes": event.notes}
            return {"fact": "registered"} | about | of_content | more
        case ModelEvaluationRecorded():
            return {"fact": "evaluated", "version": event.version} | _evaluated(event)
        case ModelEvaluationStarted():
            return {"fact": "evaluation-started", "version": event.version, "suite": event.suite, "job_id": str(event.job_id)}
        case ModelEvaluationEnded():
            of_job = {"suite": event.suite, "job_id": str(event.job_id), "evaluation_id": event.evaluation_id or ""}
            return {"fact": "evaluation-ended", "version": event.version, "reason": event.reason} | of_job
        case ModelComparisonRecorded():
            return {"fact": "compared", "version": event.version, "other": event.against} | _compared(event)
        case ModelApprovalRecorded():
            word = "approved" if event.approved else "rejected"
            return {"fact": word, "version": event.version, "evidence": event.evidence, "reason": event.reason}
        case ModelPromoted():
            evidence = {"evidence": event.evidence, "evaluations": [each.evaluation_id for each in event.evaluations]}
            gate = {"gate_version": event.gate_version, "gate": event.gate.model_dump_json(), "conditions": _conditions(event)}
            by = {"approvers": list(event.approvers), "emergency": int(event.emergency), "reason": event.reason}
            about = {"version": event.version, "semver": event.semver, "content": event.content, "other": event.previous or 0}
            return {"fact": "promoted"} | about | evidence | gate | by
        case ModelArchived():
            return {"fact": "archived", "version": event.version, "other": event.successor or 0, "reason": event.reason}
        case ModelRolledBack():
            about = {"version": event.version, "semver": event.semver, "content": event.content, "other": event.previous}
            return {"fact": "rolled-back", "reason": event.reason} | about
        case ModelGateChanged():
            return {"fact": "gate", "gate_version": event.gate_version, "gate": event.gate.model_dump_json(), "reason": event.reason}
        case ModelEmergencyReviewed():
            return {"fact": "reviewed", "version": event.version, "reason": event.reason}
        case ModelDescriptionChanged():
            return {"fact": "described", "version": event.version or 0, "notes": event.notes, "tags": dict(event.tags)}
        case ModelRequestRefused():
            return {"fact": "refused", "version": event.version or 0, "reason": event.reason, "conditions": _conditions(event)}
    raise ValueError(f"{event.event_type} is no decision that has a row")


def _conditions(event: ModelPromoted | ModelRequestRefused) -> str:
    return orjson.dumps([each.model_dump(mode="json") for each in event.conditions]).decode()


def _evaluated(event: ModelEvaluationRecorded) -> dict[str, Any]:
    result = event.evaluated
    figures = sorted(result.metrics.items())
    return {
        "evaluation_id": result.evaluation_id,
        "suite": result.suite,
        "dataset": result.dataset,
        "split": result.split or "",
        "document": result.document,
        "samples": result.samples,
        "metrics": [name for name, _ in figures],
        "figures": [figure.value for _, figure in figures],
        "lows": [figure.low for _, figure in figures],
        "highs": [figure.high for _, figure in figures],
    }


def _compared(event: ModelComparisonRecorded) -> dict[str, Any]:
    compared = event.compared
    return {
        "evaluation_id": compared.evaluation_id,
        "suite": compared.suite,
        "samples": compared.samples,
        "metrics": [each.metric for each in compared.metrics],
        "groups": [each.group for each in compared.metrics],
        "verdicts": [each.verdict.value for each in compared.metrics],
        "figures": [each.difference for each in compared.metrics],
        "lows": [each.low for each in compared.metrics],
        "highs": [each.high for each in compared.metrics],
        "p_values": [each.p_value for each in compared.metrics],
        "margins": [each.margin for each in compared.metrics],
    }
