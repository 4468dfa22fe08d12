"""A model in a few figures, as lists show it; a version's comparisons, with the ordinals of the others. Pure.

Holds: the main figure of a result is the first metric that the gate has of its suite, else the first by name.
"""

from __future__ import annotations

from typing import Any

from trainhouse.events import ModelCompared, ModelEvaluated
from trainhouse.events.model.model_names import model_lineage_id
from trainhouse.gateway.models.champion_spans import ChampionSpans
from trainhouse.scheduler.core.registry.registry_state import ModelEntry, Version


def summary_of(model: ModelEntry, champions: ChampionSpans) -> dict[str, Any]:
    """Champion with the time since, staging, newest result and open emergencies of a model, without its versions."""
    champion, staging, current = model.get(model.champion), model.staging(), champions.current
    return {
        "project": model.project,
        "name": model.name,
        "number": model.number,
        "version_count": len(model.versions),
        "champion": None if champion is None else _named(champion) | {"since_ms": current.began_ms if current is not None else None},
        "staging": None if staging is None else _named(staging) | {"registered_at_ms": staging.registered_at_ms},
        "result": _result(model),
        "emergencies": emergencies_of(model),
        "tags": dict(model.tags),
    }


def emergencies_of(model: ModelEntry) -> list[dict[str, Any]]:
    """Versions whose emergency promotion waits for review, the newest first."""
    return [_named(each) | {"promoted_by": each.promoted_by} for each in reversed(model.versions) if each.emergency]


def comparisons_of(model: ModelEntry, version: Version) -> list[dict[str, Any]]:
    """Comparisons of a version, the newest first; `against_version`: ordinal of the newest version with that content."""
    found = []
    for each in reversed(version.comparisons):
        other = model.of_content(each.against)
        row = each.model_dump(mode="json", exclude={"project", "name"})
        found.append(row | {"against_version": other.version if other is not None else None})
    return found


def lineage_id_of(model: ModelEntry, version: Version) -> str:
    """Id of a version in lineage."""
    return model_lineage_id(model.project, model.name, version.version)


def _named(version: Version) -> dict[str, Any]:
    return {"version": version.version, "semver": version.semver}


def _result(model: ModelEntry) -> dict[str, Any] | None:
    """The newest result of the newest version that has one, with its verdict against the champion."""
    version = next((each for each in reversed(model.versions) if each.evaluations), None)
    if version is None:
        return None
    newest = max(version.evaluations, key=lambda each: each.evaluated_at_ms)
    metric = _main_metric(model, newest)
    figure = newest.metrics.get(metric) if metric is not None else None
    about = {"suite": newest.suite, "evaluation_id": newest.evaluation_id, "evaluated_at_ms": newest.evaluated_at_ms, "metric": metric}
    figures = {"value": figure.value, "low": figure.low, "high": figure.high} if figure is not None else {}
    return _named(version) | about | figures | {"verdict": _verdict(model, version, newest, metric)}


def _main_metric(model: ModelEntry, result: ModelEvaluated) -> str | None:
    named = [metric for suite in model.gate.suites if suite.suite == result.suite for metric in suite.metrics]
    return next((metric for metric in (*named, *sorted(result.metrics)) if metric in result.metrics), None)


def _verdict(model: ModelEntry, version: Version, result: ModelEvaluated, metric: str | None) -> str | None:
    """Verdict of the main metric over all samples, against the champion of now; None where they were not compared."""
    champion = model.get(model.champion)
    if champion is None or champion is version:
        return None
    compared = next((each for each in reversed(version.comparisons) if _compares(each, result, champion)), None)
    rows = compared.metrics if compared is not None else ()
    return next((row.verdict.value for row in rows if row.metric == metric and not row.group), None)


def _compares(compared: ModelCompared, result: ModelEvaluated, champion: Version) -> bool:
    return compared.evaluation_id == result.evaluation_id and compared.against == champion.facts.content
