"""Differences of runs in environment and code, and parameters that go along with a metric.

Holds: what belongs to a job that its asker may not see is as if it were not there.
"""

from __future__ import annotations

import asyncio
import math
from typing import Annotated, Any, Literal, cast

from fastapi import APIRouter, Query, Request

from trainhouse.checkpointing.errors import ObjectMissingError
from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.gateway import differences
from trainhouse.gateway.answers import Json
from trainhouse.gateway.auth.authentication import Viewer
from trainhouse.gateway.context import Here
from trainhouse.gateway.errors import ProblemError
from trainhouse.gateway.routes.code import asked, store_of
from trainhouse.gateway.routes.compare import LAST, Chosen, visible_runs
from trainhouse.gateway.routes.curves import MetricName
from trainhouse.gateway.routes.job_parts import configs
from trainhouse.gateway.runs import code_diff
from trainhouse.gateway.runs.importance import LEAST_RUNS, STATISTIC, importance
from trainhouse.gateway.runs.run_parameters import joined, parameters

router = APIRouter(prefix="/v1/compare", tags=["jobs"])

Id = Annotated[str, Query(min_length=1, max_length=128, description="Id of a job.")]

_ENVIRONMENTS = """
SELECT job_id, command, folder, git_commit, git_branch, git_remote, git_dirty, git_diff_sha256, python_version, torch_version, cuda_version,
    platform, devices, cpus, memory_bytes, packages
FROM job_environments WHERE job_id IN {job_ids:Array(String)} ORDER BY job_id, epoch
"""
_CODE = """
SELECT job_id, JSONExtractString(json, 'code', 'sha256') AS sha256, JSONExtractString(json, 'code', 'git_commit') AS git_commit,
    JSONExtractBool(json, 'code', 'git_dirty') AS git_dirty
FROM job_specs WHERE job_id IN {job_ids:Array(String)}
"""


@router.get("/importance")
async def parameter_importance(
    here: Here,
    principal: Viewer,
    job: Chosen,
    metric: MetricName,
    of: Annotated[Literal["last", "least", "greatest"], Query(description="Value of the metric that counts.")] = "last",
) -> Json:
    """Parameters by how strongly they go along with a metric: Spearman's rank correlation over the runs, the strongest first."""
    runs = await visible_runs(here, principal, job)
    wanted = {"job_ids": [run["job_id"] for run in runs]}
    rows = await here.reader.rows(f"{LAST} AND metric = {{metric:String}}", wanted | {"metric": metric})
    values = {r["job_id"]: r[of] for r in rows if r[of] is not None and math.isfinite(r[of])}
    by_run = {run_id: parameters(config) for run_id, config in joined(await configs(here.reader, wanted["job_ids"])).items()}
    found = importance({one["path"]: one["values"] for one in differences.by_path(by_run)}, values)
    about = {"metric": metric, "of": of, "statistic": STATISTIC, "runs": len(values), "least_runs": LEAST_RUNS}
    return Json({"items": found, "next_cursor": None} | about)


@router.get("/environments")
async def environments(here: Here, principal: Viewer, job: Chosen) -> Json:
    """Lines in which the environments of the runs differ, of each the newest attempt's: Python, torch, packages, commit, machine.

    `known`: the runs whose environment is recorded.
    """
    runs = await visible_runs(here, principal, job)
    found: dict[str, dict[str, Any]] = {}
    for row in await here.reader.rows(_ENVIRONMENTS, {"job_ids": [run["job_id"] for run in runs]}):
        packages = {f"packages.{name}": version for name, version in row.pop("packages").items()}
        job_id = row.pop("job_id")
        found[job_id] = row | packages
    return Json({"items": differences.differing(found), "next_cursor": None, "known": list(found)})


@router.get("/code")
async def code(here: Here, principal: Viewer, request: Request, left: Id, right: Id) -> Json:
    """Files in which the code of two jobs differs, as unified diffs from `left` to `right`."""
    await visible_runs(here, principal, [left, right])
    rows = {row["job_id"]: row for row in await here.reader.rows(_CODE, {"job_ids": [left, right]})}
    sides = [rows.get(job_id, {"job_id": job_id, "sha256": "", "git_commit": "", "git_dirty": False}) for job_id in (left, right)]
    hashes = [side["sha256"] for side in sides]
    about = {"left": sides[0], "right": sides[1], "same": hashes[0] == hashes[1]}
    if not all(hashes) or about["same"]:
        return Json(about | {"files": [], "more": 0})
    async with _comparing(request):
        return Json(about | await asked(_compared, store_of(request), left, hashes[0], right, hashes[1]))


def _comparing(request: Request) -> asyncio.Semaphore:
    """One comparison at a time: archives are unpacked in memory."""
    state = request.app.state
    if not hasattr(state, "code_comparing"):
        state.code_comparing = asyncio.Semaphore(1)
    return cast(asyncio.Semaphore, state.code_comparing)


def _compared(objects: ObjectStore, left: str, left_sha256: str, right: str, right_sha256: str) -> dict[str, Any]:
    """Reads and compares two archives. Blocks. Raises ProblemError 409 where one is missing, damaged or too large."""
    return code_diff.differing_files(_files(objects, left, left_sha256), _files(objects, right, right_sha256))


def _files(objects: ObjectStore, job_id: str, sha256: str) -> dict[str, code_diff.ArchivedFile]:
    key = f"code/{sha256}.tar.gz"
    found = objects.stat(key)
    if found is None:
        raise ProblemError(409, "No code", f"the code of job {job_id} is not in the object store any more")
    if found.size_bytes > code_diff.MOST_ARCHIVE_BYTES:
        size, most = found.size_bytes >> 20, code_diff.MOST_ARCHIVE_BYTES >> 20
        raise ProblemError(409, "Too large", f"the code of job {job_id} is an archive of {size} MiB; up to {most} MiB are compared")
    try:
        return code_diff.files_of(objects.get(key))
    except ObjectMissingError as error:
        raise ProblemError(409, "No code", f"the code of job {job_id} is not in the object store any more") from error
    except code_diff.UnreadableArchiveError as error:
        raise ProblemError(409, "Damaged code", f"the code of job {job_id} cannot be compared: {error}") from error
