"""A model's versions in service, as its page shows them: observations, live quality beside offline, drift, freshness, open alerts.

Holds: a model of a project that its asker may not see does not exist for it. The tables are asked once; which versions there are, and their
stages, is the registry's word.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import orjson
from fastapi import APIRouter, Query

from trainhouse.events.model.default_project import DEFAULT_PROJECT
from trainhouse.events.model.model_names import ModelStage
from trainhouse.gateway.answers import Json
from trainhouse.gateway.auth.authentication import Viewer
from trainhouse.gateway.context import Here, now_ms
from trainhouse.gateway.models.model_routes import NamePath, ProjectQuery, visible_model
from trainhouse.gateway.models.service_figures import drift_of, quality_of
from trainhouse.gateway.problems import not_found
from trainhouse.gateway.queries.redacting import redacted
from trainhouse.projections.alerts.query import moment
from trainhouse.scheduler.core.registry.registry_state import ModelEntry, Version

router = APIRouter(tags=["models"])

Row = dict[str, Any]

DAY_MS: Final = 86_400_000
MOST_SHADOWS: Final = 4
"""Versions in staging that are shown, the newest of those that were observed."""
MOST_UNKNOWN: Final = 20
"""Versions that the model does not have, whose observations are counted, the lowest; anyone who observes may name any."""
MOST_WINDOWS: Final = 48
"""Windows whose drift is shown, the newest."""
MOST_QUALITY_ROWS: Final = 5_000
_OF: Final = "project = {project:String} AND model = {model:String}"
_NAMED: Final = "project = {project:String} AND name = {model:String}"
_SHOWN: Final = f"""(version IN {{versions:Array(UInt32)}} OR version IN (
    SELECT version FROM model_windows_rows WHERE {_NAMED} AND window_end > {{since:DateTime64(3, 'UTC')}}))"""
_IN_SERVICE: Final = f"{_SHOWN} AND (version IN {{versions:Array(UInt32)}} OR stage = 'staging')"
_FIGURES: Final = "psi, psi_limit, ks, ks_limit, wasserstein, wasserstein_limit, predictions, reference, reference_count"
_OFFLINE: Final = "offline, offline_low, offline_high, evaluation_id, suite"
_WINDOW: Final = "toUnixTimestamp64Milli(window_start) AS start_ms, toUnixTimestamp64Milli(window_end) AS end_ms"

_PARTS: Final[dict[str, tuple[str, str]]] = {
    "observed": (
        "version, windows, predictions, labels, newest_end_ms, received_ms, refused",
        f"""SELECT version, toUInt32(uniqExactIf((window_start, window_end), notEmpty(fields))) AS windows,
            sum(o.predictions) AS predictions, sum(o.labels) AS labels, toUnixTimestamp64Milli(max(window_end)) AS newest_end_ms,
            toUnixTimestamp64Milli(max(o.received_at)) AS received_ms, toUInt32(countIf(refusal != '')) AS refused
        FROM model_observations AS o WHERE {_OF} AND window_end > {{since:DateTime64(3, 'UTC')}} GROUP BY version""",
    ),
    "references": (
        "version, source, samples, recorded_ms",
        f"""SELECT version, source, samples, toUnixTimestamp64Milli(at) AS recorded_ms FROM model_references_rows FINAL
        WHERE {_NAMED} AND {_SHOWN}""",
    ),
    "quality": (
        f"version, metric, lower_is_better, start_ms, end_ms, labels, live, low, high, {_OFFLINE}",
        f"""SELECT version, metric, lower_is_better, {_WINDOW}, labels, live, live_low AS low, live_high AS high, {_OFFLINE}
        FROM model_quality WHERE {_OF} AND {_IN_SERVICE} AND window_end > {{since:DateTime64(3, 'UTC')}}
        ORDER BY window_end DESC, window_start DESC LIMIT {MOST_QUALITY_ROWS}""",
    ),
    "drifted": (
        "version, end_ms, compared, drifted",
        f"""SELECT version, toUnixTimestamp64Milli(d.window_end) AS end_ms, toUInt32(count()) AS compared,
            toUInt32(countIf(verdict = 'DRIFTED')) AS drifted
        FROM drift AS d WHERE {_OF} AND {_IN_SERVICE} GROUP BY version, d.window_start, d.window_end
        ORDER BY d.window_end DESC, d.window_start DESC LIMIT 1 BY version""",
    ),
    "drift": (
        f"start_ms, end_ms, side, field, verdict, reason, {_FIGURES}, measured_at_ms",
        f"""SELECT {_WINDOW}, side, field, verdict, reason, {_FIGURES}, toUnixTimestamp64Milli(measured_at) AS measured_at_ms
        FROM drift WHERE {_OF} AND version = {{version:UInt32}} AND (window_start, window_end) IN (
            SELECT DISTINCT window_start, window_end FROM model_drift_rows WHERE {_NAMED} AND version = {{version:UInt32}}
            ORDER BY window_end DESC, window_start DESC LIMIT {MOST_WINDOWS}
        )""",
    ),
    "freshness": (
        "version, age_days, data, data_age_days, versions_behind, behind_since_ms",
        f"""SELECT version, age_days, data, data_age_days, versions_behind, toUnixTimestamp64Milli(behind_since) AS behind_since_ms
        FROM model_freshness WHERE {_OF} AND {_IN_SERVICE} ORDER BY version DESC, data""",
    ),
    "alerts": (
        "rule, severity, summary, since_ms, version",
        """SELECT rule, severity, summary, toUnixTimestamp64Milli(since) AS since_ms, labels['version'] AS version FROM alerts_open
        WHERE labels['project'] = {project:String} AND labels['model'] = {model:String} AND rule != 'model-emergency'
        ORDER BY since DESC, rule LIMIT 50""",
    ),
}
# Half of the work of the same questions as columns of one row.
_SQL: Final = "\nUNION ALL\n".join(
    f"SELECT '{name}' AS part, toJSONString(groupArray(tuple({columns}))) AS found FROM ({question})"
    for name, (columns, question) in _PARTS.items()
)


@router.get("/v1/models/{name}/live")
async def live(
    name: NamePath,
    here: Here,
    principal: Viewer,
    project: ProjectQuery = DEFAULT_PROJECT,
    version: Annotated[
        str | None,
        Query(description="Version whose drift is shown: its ordinal, semver or champion; default: the champion.", max_length=64),
    ] = None,
    days: Annotated[int, Query(description="Windows count that ended within so many days.", ge=1, le=90)] = 7,
) -> Json:
    """A model in service: the champion and observed versions in staging, with their observations and references; live quality by metric and
    version beside the offline figure, and the champion's in the same windows; drift of one version by field over its newest windows, with
    limits; age of versions and data; open alerts about all that."""
    model = await visible_model(here, principal, project, name)
    chosen = _chosen(model) if version is None else model.find(version)
    if version is not None and chosen is None:
        raise not_found(f"version {version} of model {name}")
    named = sorted({each for each in (model.champion, _newest_staging(model), chosen.version if chosen else None) if each is not None})
    asked = {"project": project, "model": name, "versions": named, "version": chosen.version if chosen else 0}
    rows = await here.reader.rows(_SQL, asked | {"since": moment(now_ms() - days * DAY_MS)})
    parts = {row["part"]: _dicts(row["part"], row["found"]) for row in rows}
    await redacted(here.reader, principal, parts["alerts"], ("summary",))
    return Json({"days": days} | answer_of(model, chosen, named, parts))


def answer_of(model: ModelEntry, chosen: Version | None, named: list[int], parts: dict[str, list[Row]]) -> dict[str, Any]:
    """The answer from the tables' rows by part, of which each column has its name. `named`: versions that are shown in any case. Pure."""
    by_version = {part: {each["version"]: each for each in parts[part]} for part in ("observed", "references", "drifted")}
    shown = _shown(model, named, by_version["observed"])
    order = {each.version: n for n, each in enumerate(shown)}
    rows = [row for row in parts["quality"] if row["version"] in order]
    cut = parts["quality"][-1]["end_ms"] if len(parts["quality"]) == MOST_QUALITY_ROWS else None
    if cut is not None:  # of the oldest window, rows may be missing
        rows = [row for row in rows if row["end_ms"] > cut]
    unknown = sorted((each for each in parts["observed"] if model.get(each["version"]) is None), key=lambda each: int(each["version"]))
    return {
        "champion": model.champion,
        "version": chosen.version if chosen else None,
        "versions": [_version_row(each, by_version) for each in shown],
        "unknown": [{"version": each["version"], "observations": each["refused"]} for each in unknown[:MOST_UNKNOWN]],
        "unknown_more": max(0, len(unknown) - MOST_UNKNOWN),
        "quality": quality_of(rows, model.champion, _margins(model), list(order)),
        "quality_after_ms": cut,
        "drift": drift_of(chosen.version, parts["drift"]) if chosen else None,
        "freshness": sorted((row for row in parts["freshness"] if row["version"] in order), key=lambda row: order[row["version"]]),
        "alerts": parts["alerts"],
    }


def _version_row(version: Version, by_version: dict[str, dict[int, Row]]) -> dict[str, Any]:
    found = {part: rows.get(version.version) for part, rows in by_version.items()}
    return {"version": version.version, "semver": version.semver, "stage": version.stage.value} | {
        part: None if row is None else {name: value for name, value in row.items() if name not in ("version", "refused")}
        for part, row in (("observed", found["observed"]), ("reference", found["references"]), ("drift", found["drifted"]))
    }


def _shown(model: ModelEntry, named: list[int], observed: dict[int, Row]) -> list[Version]:
    """The champion first, then the others, the newest first."""
    known = [each for each in (model.get(number) for number in observed) if each is not None and each.stage is ModelStage.STAGING]
    shadows = sorted((each.version for each in known), reverse=True)[:MOST_SHADOWS]
    numbers = sorted({*named, *shadows}, key=lambda number: (number != model.champion, -number))
    return [found for found in map(model.get, numbers) if found is not None]


def _chosen(model: ModelEntry) -> Version | None:
    return model.get(model.champion) or model.get(_newest_staging(model))


def _newest_staging(model: ModelEntry) -> int | None:
    staging = model.staging()
    return staging.version if staging is not None else None


def _margins(model: ModelEntry) -> dict[str, float]:
    """The greatest margin of each metric that the gate has, as rule `model-quality` takes it."""
    found: dict[str, float] = {}
    for suite in model.gate.suites:
        for metric, limits in suite.metrics.items():
            found[metric] = max(found.get(metric, 0.0), limits.margin or 0.0)
    return found


def _dicts(part: str, found: str) -> list[Row]:
    names = _PARTS[part][0].split(", ")
    return [dict(zip(names, values, strict=True)) for values in orjson.loads(found)]
