"""Versions of datasets: what was published, by name.

Holds: a dataset of a project that its asker may not see does not exist for it.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from trainhouse.gateway.answers import Json
from trainhouse.gateway.auth.authentication import Viewer
from trainhouse.gateway.context import Here
from trainhouse.gateway.problems import not_found
from trainhouse.gateway.queries.listing import Cursor, Limit, Order, millis, page
from trainhouse.gateway.queries.where_clauses import Where
from trainhouse.gateway.routes.jobs import Text

router = APIRouter(prefix="/v1/datasets", tags=["datasets"])

NamePath = Annotated[str, Path(description="The dataset's name.", min_length=1, max_length=128)]
_COLUMNS = (
    "dataset, version, sha256, tags, project, schema_hash, split_config_hash, splits, split_samples, split_bytes, split_shards, row_count, "
    "bytes, licence, purposes, created_by, published_at, deprecated, deprecated_reason, deprecated_by, deprecated_at, "
    "field_names, field_types, field_optional"
)
_SHARD_COLUMNS = (
    "version, shard, split, fault, sample, expected, seen, job_id, rank, node_id, quarantined_at, released, released_by, released_reason, "
    "released_at"
)
_DRIFT_COLUMNS = (
    "version, against, field, verdict, reason, psi, psi_limit, ks, ks_limit, missing, missing_before, row_count, row_count_before, "
    "fields_compared, fields_drifted, fields_changed, measured_at"
)
_JOB_COLUMNS = "job_id, name, state, purpose, submitted_at, substring(e.from_id, 6) AS version"
MOST_DRIFT_ROWS = 2000
MOST_JOBS = 200
_ORDER = Order((millis("published_at"), ("version", "String")), descending=True)


@router.get("")
async def datasets(
    here: Here,
    principal: Viewer,
    project: Text = None,
    deprecated: Annotated[bool | None, Query(description="Only versions that are deprecated, or only others.")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Json:
    """Versions of all datasets, the newest first."""
    where = Where()
    where.visible(principal)
    where.equal("project", project)
    where.equal("deprecated", None if deprecated is None else int(deprecated), "UInt8")
    return Json((await page(here.reader, _COLUMNS, "training_datasets", where, _ORDER, limit, cursor)).answer())


@router.get("/{name}")
async def dataset(name: NamePath, here: Here, principal: Viewer, limit: Limit = 100, cursor: Cursor = None) -> Json:
    """Versions of one dataset, the newest first."""
    where = Where()
    where.visible(principal)
    where.equal("dataset", name)
    found = await page(here.reader, _COLUMNS, "training_datasets", where, _ORDER, limit, cursor)
    if not found.rows and cursor is None:
        raise not_found(f"dataset {name}")
    return Json(found.answer())


@router.get("/{name}/quarantine")
async def quarantine(name: NamePath, here: Here, principal: Viewer) -> Json:
    """Shards of its versions that could not be read whole, the newest first, released ones too; 1,000 at most."""
    await _exists(name, here, principal)
    where = Where()
    where.equal("dataset", name)
    sql = f"SELECT {_SHARD_COLUMNS} FROM quarantined_shards WHERE {where.text} ORDER BY quarantined_at DESC, shard LIMIT 1000"
    return Json({"items": await here.reader.rows(sql, where.values)})


@router.get("/{name}/measured-drift")
async def measured_drift(name: NamePath, here: Here, principal: Viewer) -> Json:
    """Fields of each version against the one before it, as they were compared at its publication, the newest first; 2,000 at most.
    `/drift` compares any two versions."""
    where = Where()
    where.visible(principal)
    where.equal("dataset", name)
    where.add("predecessor")
    order = "ORDER BY measured_at DESC, version, verdict = 'STABLE', field"
    sql = f"SELECT {_DRIFT_COLUMNS} FROM dataset_drift WHERE {where.text} {order} LIMIT {MOST_DRIFT_ROWS}"
    return Json({"items": await here.reader.rows(sql, where.values)})


@router.get("/{name}/jobs")
async def jobs_of(name: NamePath, here: Here, principal: Viewer) -> Json:
    """Jobs whose spec names one of its versions, the newest first; 200 at most."""
    where = Where()
    where.visible(principal, "e.project")
    where.add("e.kind = 'data' AND startsWith(e.from_id, {beginning:String})", beginning=f"data:{name}@")
    sql = (
        f"SELECT {_JOB_COLUMNS} FROM job_status AS j JOIN (SELECT DISTINCT from_id, job_id, project, kind FROM lineage_edges AS e "
        f"WHERE {where.text}) AS e USING (job_id) ORDER BY submitted_at DESC, job_id LIMIT {MOST_JOBS}"
    )
    return Json({"items": await here.reader.rows(sql, where.values)})


async def _exists(name: str, here: Here, principal: Viewer) -> None:
    """Raises ProblemError 404 for a dataset that the asker may not see."""
    where = Where()
    where.visible(principal)
    where.equal("dataset", name)
    if not await here.reader.rows(f"SELECT 1 FROM training_datasets WHERE {where.text} LIMIT 1", where.values):
        raise not_found(f"dataset {name}")
