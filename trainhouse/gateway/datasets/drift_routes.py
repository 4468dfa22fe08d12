"""Drift between two versions of a dataset, computed from their manifests and profiles, as `trainhouse data drift` does.

Holds: a dataset of a project that its asker may not see does not exist for it; no sample is read.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.events.model.dataset_profile import ProfiledVersion
from trainhouse.events.model.version_names import SEMVER_PATTERN, SHA256_PATTERN
from trainhouse.gateway.answers import Json
from trainhouse.gateway.auth.authentication import Viewer
from trainhouse.gateway.context import Here
from trainhouse.gateway.datasets.version_routes import NamePath
from trainhouse.gateway.errors import ProblemError
from trainhouse.gateway.problems import not_found
from trainhouse.gateway.queries.where_clauses import Where
from trainhouse.gateway.routes.code import asked, store_of
from trainhouse.workers.data.drift.version_drift import VersionDrift, drift_of
from trainhouse.workers.data.errors import DamagedShardError, InvalidDataError
from trainhouse.workers.data.stored_versions import read_profiled

router = APIRouter(prefix="/v1/datasets", tags=["datasets"])

Row = dict[str, Any]
Reference = Annotated[
    str | None,
    Query(pattern=rf"^(?:sha256:{SHA256_PATTERN}|{SEMVER_PATTERN})$", description="`sha256:…`, or a tag such as 1.2.0."),
]
Split = Annotated[str | None, Query(max_length=64, description="Only this split of both versions; default: all together.")]


@router.get("/{name}/drift")
async def drift(
    name: NamePath,
    request: Request,
    here: Here,
    principal: Viewer,
    version: Reference = None,
    against: Reference = None,
    split: Split = None,
) -> Json:
    """Drift of a version against another one, field by field: PSI, KS, missing, new and lost values, types. Without `version`, of the
    newest; without `against`, from the newest before it that is not deprecated."""
    where = Where()
    where.visible(principal)
    where.equal("dataset", name)
    columns = "version, sha256, tags, project, deprecated, toUnixTimestamp64Milli(published_at) AS published_at_ms"
    sql = f"SELECT {columns} FROM training_datasets WHERE {where.text} ORDER BY published_at, version"
    rows = await here.reader.rows(sql, where.values)
    if not rows:
        raise not_found(f"dataset {name}")
    new = rows[-1] if version is None else _named(rows, name, version)
    old = _predecessor(rows, new) if against is None else _named(rows, name, against)
    found = await asked(_drift, store_of(request), old, new, split)
    about = {"version": new["version"], "against": old["version"], "published_at_ms": new["published_at_ms"]}
    sizes = {"row_count": found.row_count, "row_count_before": found.row_count_before}
    return Json(about | sizes | {"fields": [field.model_dump(mode="json") for field in found.fields]})


def _named(rows: list[Row], name: str, reference: str) -> Row:
    """The version that a hash or tag names. Raises ProblemError 404."""
    sha256 = reference.removeprefix("sha256:")
    found = next((row for row in rows if row["sha256"] == sha256 or reference in row["tags"]), None)
    if found is None:
        raise not_found(f"version {name}@{reference}")
    return found


def _predecessor(rows: list[Row], of: Row) -> Row:
    """The newest before a version that is not deprecated. Raises ProblemError 404."""
    earlier = [row for row in rows[: rows.index(of)] if not row["deprecated"]]
    if not earlier:
        raise ProblemError(404, "Not found", f"{of['version']} has no version before it that is not deprecated; name one as `against`")
    return earlier[-1]


def _drift(objects: ObjectStore, old: Row, new: Row, split: str | None) -> VersionDrift:
    """Reads both versions and compares them. Blocks. Raises ProblemError 400 where the split is not one of both, and 409 where a manifest
    is missing, or it or its profiles are damaged."""
    before, after = [_profiled(objects, row) for row in (old, new)]
    try:
        return drift_of(before, after, split=split)
    except InvalidDataError as error:
        raise ProblemError(400, "Bad request", str(error)) from error


def _profiled(objects: ObjectStore, row: Row) -> ProfiledVersion:
    try:
        return read_profiled(objects, row["project"], row["sha256"])
    except DamagedShardError as error:
        problem = f"the manifest of {row['version']} is missing, or it or its profiles are damaged; publish it again"
        raise ProblemError(409, "Damaged version", problem) from error
