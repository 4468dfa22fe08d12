"""Refusals of requests, found by the request's id: intake's, the scheduler's, and of requests that either could not handle.

Holds: a dead letter counts where the platform wrote it, of an input that the directory or a scheduler failed on.
"""

from __future__ import annotations

from trainhouse.events.wire.topics import ADMISSION, CONTROL
from trainhouse.gateway.queries.sql_reader import SqlReader

_REFUSED = """
SELECT reason FROM rejections_rows FINAL WHERE submission_id = {event_id:String} AND job_id IN ({job_id:String}, '')
UNION ALL SELECT reason FROM refused_changes WHERE event_id = {event_id:String} LIMIT 1
"""
# `seen_by`: from the topic of dead letters, which the platform alone writes.
_SET_ASIDE = """
SELECT reason FROM dead_letters_rows FINAL
WHERE event_id = {event_id:String} AND job_id = {job_id:String} AND topic IN ({directory:String}, {scheduler:String})
    AND seen_by = 'intake' LIMIT 1
"""


async def refusal(reader: SqlReader, event_id: str, job_id: str = "") -> str | None:
    """Returns why a request was refused, if it was. `job_id`: the job that it is about, empty where it is about none."""
    return _reason(await reader.one(_REFUSED, {"event_id": event_id, "job_id": job_id}))


async def set_aside(reader: SqlReader, event_id: str, job_id: str = "") -> str | None:
    """Returns why the directory or a scheduler could not handle a request, if one could not."""
    places = {"directory": ADMISSION, "scheduler": CONTROL}  # whose inputs they are
    return _reason(await reader.one(_SET_ASIDE, {"event_id": event_id, "job_id": job_id} | places))


def _reason(found: dict[str, object] | None) -> str | None:
    return None if found is None else str(found["reason"])
