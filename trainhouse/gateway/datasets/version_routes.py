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
    "bytes, licence, purposes, created_by, published_at, deprecated, deprecated_reason, deprecated_by, deprecated_at"
)
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
