"""Parts of a study that pages draw: its history, a sample of its trials, its rungs, the importance of its parameters.

Holds: an answer has a bounded size, however many trials there are: they are put together or sampled here, and the sample is the same each
time. A study of a project that its asker may not see does not exist for it.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query

from trainhouse.events.model.spec import MetricMode
from trainhouse.events.model.study import EarlyStopping
from trainhouse.gateway.answers import Json
from trainhouse.gateway.auth.authentication import Viewer
from trainhouse.gateway.context import Here
from trainhouse.gateway.errors import ProblemError
from trainhouse.gateway.queries.sql_reader import Row
from trainhouse.gateway.studies.part_answers import StudyHistory, StudyImportance, StudyRungs, StudySample
from trainhouse.gateway.studies.visible_study import NamePath, ProjectQuery, visible_study
from trainhouse.projections.study_listing import OF_STUDY, TRIAL_COLUMNS, trial_row
from trainhouse.scheduler.core.studies.stopping import rung_step

router = APIRouter(prefix="/v1/hpo/studies", tags=["studies"])

MetricQuery = Annotated[str | None, Query(max_length=256, description="One of the study's metrics; default: the first one.")]
MOST_RUNGS: Final = 64
MOST_JUDGED: Final = 20_000
"""Complete trials over which importance is computed: more change nothing in the second digit."""
_FIGURE = "figures[indexOf(metrics, {metric:String})]"
_ENDED = f"FROM study_facts FINAL WHERE {OF_STUDY} AND fact = 'trial-ended' AND has(metrics, {{metric:String}}) AND isFinite({_FIGURE})"

# Costs are values whose least one is the best.
_HISTORY = f"""
SELECT min(h.place) AS place, argMin(h.trial, h.cost) AS trial, min(h.figure) AS least, max(h.figure) AS greatest, avg(h.figure) AS mean,
    min(h.so_far) AS best, any(h.total) AS ended, any(h.width) AS width
FROM (
    SELECT trial, figure, cost, total, row_number() OVER (ORDER BY at, number) AS place, min(cost) OVER (ORDER BY at, number) AS so_far,
        toUInt32(greatest(1, ceil(total / {{points:UInt32}}))) AS width
    FROM (
        SELECT trial, at, number, {_FIGURE} AS figure, {{sign:Float64}} * figure AS cost, count() OVER () AS total
        {_ENDED} AND state IN ('COMPLETE', 'STOPPED')
    )
) AS h
GROUP BY intDiv(h.place - 1, h.width) ORDER BY place"""

_CHOSEN = f"""
SELECT trial, count() OVER () AS total FROM (SELECT trial, {_FIGURE} AS figure {_ENDED} AND state IN ('COMPLETE', 'STOPPED'))
ORDER BY (has({{best:Array(UInt32)}}, toUInt32(trial)) OR rank() OVER (ORDER BY {{sign:Float64}} * figure, trial) <= {{top:UInt32}}) DESC,
    cityHash64(trial) LIMIT {{limit:UInt32}}"""
_SAMPLE = f"SELECT {TRIAL_COLUMNS} FROM trials WHERE {OF_STUDY} AND trials.trial IN {{chosen:Array(Int32)}} ORDER BY trials.trial"

# A trial's value at a rung is its first one at the rung's step or beyond it.
_AT_RUNGS = f"""
SELECT trial, toUInt32(rung) AS rung, argMin(figure, number) AS value
FROM (
    SELECT trial, number, step, {_FIGURE} AS figure FROM study_facts FINAL
    WHERE {OF_STUDY} AND fact = 'value' AND has(metrics, {{metric:String}})
)
ARRAY JOIN {{steps:Array(UInt64)}} AS rung_step, arrayEnumerate({{steps:Array(UInt64)}}) AS rung
WHERE step >= rung_step GROUP BY trial, rung"""
_FATES = f"""
SELECT trial, multiIf(stops AND ended IN ('', 'STOPPED'), 'STOPPED', ended = '', 'RUNNING', ended) AS state,
    arrayCount(s -> s <= looked_at, {{steps:Array(UInt64)}}) AS stopped_at
FROM (
    SELECT t.trial AS trial, countIf(t.fact = 'trial-stopping' AND t.early) > 0 AS stops, anyIf(t.state, t.fact = 'trial-ended') AS ended,
        anyIf(t.step, t.fact = 'trial-stopping' AND t.early) AS looked_at
    FROM study_facts AS t FINAL WHERE {OF_STUDY} AND fact IN ('trial-started', 'trial-stopping', 'trial-ended') GROUP BY trial
)"""
_RUNGS = f"""
SELECT rung, count() AS reached, countIf(f.state = 'STOPPED' AND f.stopped_at = rung) AS stopped,
    minIf({{sign:Float64}} * value, isFinite(value)) AS best,
    quantileExactIf(0.5)(value, isFinite(value)) AS median, countIf(isFinite(value)) AS finite
FROM ({_AT_RUNGS}) AS r LEFT JOIN ({_FATES}) AS f ON f.trial = r.trial GROUP BY rung ORDER BY rung"""
_CLIMBERS = f"""
SELECT c.trial AS trial, f.state AS state, c.values AS values, c.total AS total FROM (
    SELECT trial, values, count() OVER () AS total, row_number() OVER (PARTITION BY length(values) ORDER BY cityHash64(trial)) AS place
    FROM (SELECT trial, arrayMap(p -> p.2, arraySort(groupArray((rung, value)))) AS values FROM ({_AT_RUNGS}) GROUP BY trial)
    ORDER BY place, trial LIMIT {{limit:UInt32}}
) AS c LEFT JOIN ({_FATES}) AS f ON f.trial = c.trial ORDER BY trial"""

_JUDGED = f"""
SELECT figure, s.parameters_json AS parameters, e.total AS total FROM (
    SELECT trial, {_FIGURE} AS figure, count() OVER () AS total {_ENDED} AND state = 'COMPLETE'
    ORDER BY cityHash64(trial) LIMIT {{limit:UInt32}}
) AS e
INNER JOIN (SELECT trial, parameters_json FROM study_facts FINAL WHERE {OF_STUDY} AND fact = 'trial-started') AS s ON s.trial = e.trial
ORDER BY e.trial"""


@router.get("/{name}/history", response_model=StudyHistory)
async def history(
    name: NamePath,
    here: Here,
    principal: Viewer,
    project: ProjectQuery = "default",
    metric: MetricQuery = None,
    points: Annotated[int, Query(ge=10, le=2000, description="At most so many rows.")] = 500,
) -> Json:
    """Values of a metric in the order in which trials ended, with the best so far."""
    found = await visible_study(here, principal, project, name)
    chosen, mode, sign = _metric(found, metric)
    rows = await here.reader.rows(_HISTORY, _of(found) | {"metric": chosen, "sign": sign, "points": points})
    answer: dict[str, Any] = {"metric": chosen, "mode": mode}
    answer |= {"ended": rows[0]["ended"], "width": rows[0]["width"]} if rows else {"ended": 0, "width": 1}
    answer |= {column: [row[column] for row in rows] for column in ("place", "trial", "least", "greatest", "mean")}
    return Json(answer | {"best": [sign * row["best"] for row in rows]})


@router.get("/{name}/sample", response_model=StudySample)
async def sample(
    name: NamePath,
    here: Here,
    principal: Viewer,
    project: ProjectQuery = "default",
    limit: Annotated[int, Query(ge=10, le=1000, description="At most so many trials; of them up to a fifth the best.")] = 300,
) -> Json:
    """Trials that have values, by number: the best ones, and of the others a sample."""
    found = await visible_study(here, principal, project, name)
    metric, _, sign = _metric(found, None)
    best = [one["trial"] for one in found["best"]]
    values = _of(found) | {"metric": metric, "sign": sign, "best": best, "top": limit // 5, "limit": limit}
    chosen = await here.reader.rows(_CHOSEN, values)
    rows = await here.reader.rows(_SAMPLE, _of(found) | {"chosen": [row["trial"] for row in chosen]}) if chosen else []
    return Json({"items": [trial_row(row) for row in rows], "next_cursor": None, "total": chosen[0]["total"] if chosen else 0})


@router.get("/{name}/rungs", response_model=StudyRungs)
async def rungs(
    name: NamePath,
    here: Here,
    principal: Viewer,
    project: ProjectQuery = "default",
    limit: Annotated[int, Query(ge=10, le=1000, description="At most so many trials.")] = 150,
) -> Json:
    """Rungs of a study that ends trials early: how many trials reached each, how many ended there, and trials at them."""
    found = await visible_study(here, principal, project, name)
    metric, mode, sign = _metric(found, None)
    stopping = EarlyStopping.model_validate(found["spec"]["early_stopping"])
    steps = [step for rung in range(MOST_RUNGS) if (step := rung_step(stopping, rung)) is not None]
    if not steps:
        return Json({"metric": metric, "mode": mode, "rungs": [], "trials": [], "total": 0})
    values = _of(found) | {"metric": metric, "sign": sign, "steps": steps, "limit": limit}
    reached = await here.reader.rows(_RUNGS, values)
    climbers = await here.reader.rows(_CLIMBERS, values)
    made = [
        {"rung": row["rung"] - 1, "step": steps[row["rung"] - 1], "reached": row["reached"], "stopped": row["stopped"]}
        | ({"best": sign * row["best"], "median": row["median"]} if row["finite"] else {"best": None, "median": None})
        for row in reached
    ]
    trials = [{name: row[name] for name in ("trial", "state", "values")} for row in climbers]
    return Json({"metric": metric, "mode": mode, "rungs": made, "trials": trials, "total": climbers[0]["total"] if climbers else 0})


@router.get("/{name}/importance", response_model=StudyImportance)
async def importance(name: NamePath, here: Here, principal: Viewer, project: ProjectQuery = "default", metric: MetricQuery = None) -> Json:
    """Importance of parameters for a metric, by Optuna's PED-ANOVA over complete trials."""
    found = await visible_study(here, principal, project, name)
    chosen, _, _ = _metric(found, metric)
    rows = await here.reader.rows(_JUDGED, _of(found) | {"metric": chosen, "limit": MOST_JUDGED})
    answer = {"metric": chosen, "trials": len(rows), "of": rows[0]["total"] if rows else 0}
    return Json(answer | await here.importances.of(found["spec"], chosen, rows))


def _of(found: Row) -> dict[str, Any]:
    return {"project": found["project"], "study": found["study"]}


def _metric(found: Row, asked: str | None) -> tuple[str, str, float]:
    """Name of a metric of a study, its mode, and by what a value is multiplied so that the least is the best. Raises ProblemError 422."""
    name = found["metrics"][0] if asked is None else asked
    if name not in found["metrics"]:
        raise ProblemError(422, "Invalid request", f"metric: study {found['study']} has {', '.join(found['metrics'])}"[:1000])
    mode = found["modes"][found["metrics"].index(name)]
    return name, mode, MetricMode(mode).sign
