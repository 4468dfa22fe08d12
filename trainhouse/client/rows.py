"""Flat rows of jobs: queries in SQL, and the same rows made of statuses.

Holds: pure; both sources give the same names, so that a program need not know which one answered. Times are milliseconds since 1970, UTC.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainhouse.client.filters import JobFilter
from trainhouse.client.sql import literal

if TYPE_CHECKING:
    from trainhouse.events import JobStatus

PLAIN = (
    "job_id",
    "name",
    "project",
    "team",
    "user",
    "pool",
    "priority",
    "state",
    "reason",
    "attempt",
    "epoch",
    "restarts",
    "world_size",
    "step",
    "total_steps",
    "loss",
    "learning_rate",
    "steps_per_s",
    "samples_per_s",
    "elapsed_s",
    "eta_s",
    "submission_id",
    "spec_sha256",
    "status_seq",
)
TIMES = {
    "submitted_at_ms": "submitted_at",
    "allocated_at_ms": "allocated_at",
    "running_at_ms": "started_at",
    "finished_at_ms": "finished_at",
    "updated_at_ms": "updated_at",
}


STATUSES = "trainhouse.status"
STATUS_TYPE = "trainhouse.job.status.v1"
WAITING = ("PENDING", "PREEMPTED")
ACTIVE = ("PENDING", "SCHEDULED", "INITIALIZING", "RUNNING", "CHECKPOINTING", "PREEMPTED", "NEEDS_REVIEW")
"""All but FINAL."""
FINAL = ("SUCCEEDED", "FAILED", "CANCELLED", "REJECTED")
FLOATS = ("loss", "learning_rate", "steps_per_s", "samples_per_s", "elapsed_s", "eta_s")
# A status whole, as JSON, in the order of its fields: what a row has not is this.
STATUS: dict[str, Any] = {
    "job_id": None,
    "status_seq": 0,
    "state": "PENDING",
    "reason": "",
    "submission_id": None,
    "name": "",
    "project": "",
    "team": "",
    "user": "",
    "pool": None,
    "priority": 50,
    "spec_sha256": "",
    "attempt": 0,
    "epoch": 0,
    "restarts": 0,
    "world_size": 0,
    "allocation": [],
    "step": None,
    "total_steps": None,
    **dict.fromkeys(FLOATS),
    "last_checkpoint": None,
    "submitted_at_ms": None,
    "allocated_at_ms": None,
    "running_at_ms": None,
    "finished_at_ms": None,
    "updated_at_ms": 0,
}
# The same of an explanation, but for what each one has.
EXPLANATION: dict[str, Any] = {
    **dict.fromkeys(("job_id", "pool", "team", "at_ms", "waiting_since_ms", "place", "waiting", "needs", "obstacle", "text")),
    "refusals": [],
    "unblock": [],
    "score": None,
    "reserved_start_ms": None,
    "eta_ms": None,
    "eta_from": "",
}
REFUSAL: dict[str, Any] = {"obstacle": None, "by": "", "count": 0, "asked": None, "available": None, "examples": [], "text": ""}
MAX_ALERTS = 10_000
# As an Arrow table has it: plain strings and signed numbers.
POINT = (
    "toString(metric) AS metric, toInt64(step) AS step, toInt32(rank) AS rank, toInt32(attempt) AS attempt, toInt64(epoch) AS epoch, "
    "time, value"
)


def jobs_query(keep: JobFilter, limit: int) -> str:
    """The query; pure."""
    moment = "coalesce(submitted_at, updated_at)"
    where = [f"{n} = {literal(v)}" for n in ("user", "team", "project", "pool") if (v := getattr(keep, n)) is not None]
    if keep.states:
        where.append(f"state IN ({', '.join(map(literal, keep.states))})")
    where += [f"job_id IN (SELECT job_id FROM tags WHERE {tag_condition(tag)})" for tag in keep.tags]
    if keep.since_ms is not None:
        where.append(f"{moment} >= fromUnixTimestamp64Milli({keep.since_ms})")
    if keep.until_ms is not None:
        where.append(f"{moment} < fromUnixTimestamp64Milli({keep.until_ms})")
    times = ", ".join(f"toUnixTimestamp64Milli({column}) AS {name}" for name, column in TIMES.items())
    nodes = "node_ids, last_checkpoint_step, last_checkpoint_uri"
    return f"SELECT {', '.join(PLAIN)}, {nodes}, {times} FROM jobs WHERE {' AND '.join(where) or '1'} ORDER BY {moment} DESC LIMIT {limit}"


def tag_condition(tag: str) -> str:
    """The condition of a tag as `key=value` or `key`; the key ends at the first `=`. Pure."""
    key, has_value, value = tag.partition("=")
    return f"key = {literal(key)}" + (f" AND value = {literal(value)}" if has_value else "")


def job_query(job_id: str) -> str:
    """The row of one scheduled job, with where its newest status was read; pure."""
    times = ", ".join(f"toUnixTimestamp64Milli({column}) AS {name}" for name, column in TIMES.items())
    more = "purpose, node_ids, last_checkpoint_step, last_checkpoint_commit, last_checkpoint_uri"
    more += ", source_topic, source_partition, source_offset"
    return f"SELECT {', '.join(PLAIN)}, {more}, {times} FROM jobs WHERE source = 'scheduled' AND job_id = {literal(job_id)} LIMIT 1"


def aged_job_query(job_id: str) -> str:
    """Query of that row, with the milliseconds since its status (`status_age_ms`) and since any node's newest heartbeat in the tables
    (`tables_age_ms`): where both are long ago, the projector may be stopped or behind. `held`: partition and offset, up to which the tables
    have the statuses, of each; worked out before the row is read, so that what is behind is never newer than it. Pure."""
    beat = "(SELECT max(at) FROM node_facts WHERE fact = 'beat')"
    ages = {"status_age_ms": "updated_at", "tables_age_ms": beat}
    columns = ", ".join(f"dateDiff('millisecond', {at}, now64(3)) AS {name}" for name, at in ages.items())
    ends = "groupArray([toUInt64(partition), if(done = 1, to_offset, from_offset)])"
    held = f"(SELECT {ends} FROM positions FINAL WHERE lane = 'facts' AND topic = {literal(STATUSES)}) AS held"
    return job_query(job_id).replace("SELECT ", f"SELECT {columns}, {held}, ", 1)


def status_of_row(row: Mapping[str, Any]) -> "JobStatus":
    """Such a row as a status. Where its ranks are is not in it."""
    from trainhouse.events import JobState, JobStatus, LastCheckpoint

    known = {name: row[name] for name in JobStatus.model_fields if row.get(name) not in (None, "")}
    step = row.get("last_checkpoint_step")
    if step is not None:
        commit, uri = row.get("last_checkpoint_commit") or 0, row.get("last_checkpoint_uri") or ""
        known["last_checkpoint"] = LastCheckpoint(commit=commit, step=step, uri=uri, completed_at_ms=0)
    known["state"] = JobState(known["state"])
    # What was refused before it was a job has none.
    known["status_seq"] = max(0, known.get("status_seq", 0))
    return JobStatus.model_validate({"job_id": None} | known)


def status_json(row: Mapping[str, Any], allocation: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Such a row as a status is in JSON, without its model: what `status_of_row` gives, and where its ranks are. Pure."""
    known = {name: row[name] for name in STATUS if row.get(name) not in (None, "")}
    known |= {name: float(known[name]) for name in FLOATS if name in known}
    known["allocation"] = [dict(placement) for placement in allocation]
    if row.get("last_checkpoint_step") is not None:
        known["last_checkpoint"] = {
            "commit": row.get("last_checkpoint_commit") or 0,
            "step": row["last_checkpoint_step"],
            "uri": row.get("last_checkpoint_uri") or "",
            "completed_at_ms": row.get("last_checkpoint_at_ms") or 0,
        }
    known["status_seq"] = max(0, known.get("status_seq", 0))
    return published_status_json(known | {"purpose": row.get("purpose")})


def published_status_json(event: Mapping[str, Any]) -> dict[str, Any]:
    """A status as it was published, with the fields that its writer did not know. Pure."""
    whole: dict[str, Any] = {}
    for name, absent in STATUS.items():
        whole[name] = event.get(name, absent)
        if name == "project" and event.get("purpose"):
            whole["purpose"] = event["purpose"]
    return whole


def explanation_json(event: Mapping[str, Any]) -> dict[str, Any]:
    """An explanation as it was published, with the fields that its writer did not know. Pure."""
    refusals = [REFUSAL | {name: value for name, value in refusal.items() if name in REFUSAL} for refusal in event.get("refusals", ())]
    return EXPLANATION | {name: value for name, value in event.items() if name in EXPLANATION} | {"refusals": refusals}


def row_of(status: "JobStatus") -> dict[str, Any]:
    """A status as such a row."""
    fields = status.model_dump(mode="json")
    checkpoint = status.last_checkpoint
    return {
        **{name: fields[name] for name in PLAIN},
        "node_ids": [str(p.node_id) for p in status.allocation],
        "last_checkpoint_step": checkpoint.step if checkpoint else None,
        "last_checkpoint_uri": checkpoint.uri if checkpoint else "",
        **{name: fields[name] for name in TIMES},
    }


def allocation_query(job: str, epoch: int) -> str:
    """Nodes and devices of one attempt, as a text of JSON; pure."""
    return (
        f"SELECT JSONExtractRaw(json, 'placements') AS placements FROM events WHERE job_id = {literal(job)} AND epoch = {epoch} "
        "AND type = 'trainhouse.gang.allocated.v1' LIMIT 1"
    )


def checkpoint_time_query(job: str, commit: int) -> str:
    """The time at which one checkpoint was complete; pure."""
    where = f"job_id = {literal(job)} AND commit = {commit}"
    return f"SELECT toUnixTimestamp64Milli(completed_at) AS last_checkpoint_at_ms FROM checkpoints WHERE {where} LIMIT 1"


def explanation_query(job: str) -> str:
    """The newest explanation of a job, whether it waits or not; pure."""
    return f"SELECT json FROM explanations WHERE job_id = {literal(job)} ORDER BY at DESC LIMIT 1"


def events_query(job: str, kind: str | None, begin: int | None, end: int | None) -> str:
    """The query; pure."""
    where = [f"job_id = {literal(job)}"]
    if kind:
        where.append(f"position(type, {literal(kind)}) > 0")
    if begin is not None:
        where.append(f"time >= fromUnixTimestamp64Milli({begin})")
    if end is not None:
        where.append(f"time < fromUnixTimestamp64Milli({end})")
    # By id within a millisecond, as the gateway does: ids of one source are numbered, so of two the shorter one is the older. Where an
    # event lies orders nothing: a status is known from the journal or from its topic, whichever came first.
    return (
        "SELECT toUnixTimestamp64Milli(time) AS at_ms, type, summary, event_id, node_id, epoch, json, "
        "source_topic, source_partition, source_offset "
        f"FROM events WHERE {' AND '.join(where)} ORDER BY time, length(event_id), event_id"
    )


def metrics_query(job: str, names: Sequence[str]) -> str:
    """Every point, in order of metric, epoch, rank and step; of a step that was done again, each time."""
    named = f" AND metric IN ({', '.join(map(literal, names))})" if names else ""
    return f"SELECT {POINT} FROM step_metrics WHERE job_id = {literal(job)}{named} ORDER BY metric, epoch, rank, step, time"


def last_metrics_query(job: str, names: Sequence[str] = ()) -> str:
    """The newest value of each metric, or of these, of the lowest rank that has it."""
    named = f" AND metric IN ({', '.join(map(literal, names))})" if names else ""
    return (
        "SELECT metric, argMax((s.step, s.value), (s.epoch, s.step, -toInt64(s.rank))) AS newest, newest.1 AS step, newest.2 AS value "
        f"FROM step_metrics AS s WHERE job_id = {literal(job)}{named} GROUP BY metric ORDER BY metric"
    )


# Each bucket of steps keeps its least and greatest value, so that no spike disappears.
CURVE_QUERY = """
WITH (SELECT (min(step), max(step)) FROM step_metrics WHERE job_id = {job_id:String} AND metric = {metric:String} AND rank = 0) AS span
SELECT min(s.step) AS step, min(s.value) AS least, max(s.value) AS greatest, avg(s.value) AS mean FROM step_metrics AS s
WHERE job_id = {job_id:String} AND metric = {metric:String} AND rank = 0 AND isFinite(value)
GROUP BY intDiv(s.step - span.1, greatest(1, intDiv(span.2 - span.1, {points:UInt64}) + 1)) ORDER BY step
"""


ARTIFACTS_QUERY = """
SELECT action, name, sha256, kind, project, size_bytes, files, toUnixTimestamp64Milli(at) AS at_ms FROM job_artifacts
WHERE job_id = {job_id:String} ORDER BY action, name, at, sha256 LIMIT 10000
"""


EXISTS_QUERY = "SELECT job_id FROM jobs WHERE job_id = {job_id:String} LIMIT 1"
TAGS_QUERY = "SELECT key, value FROM tags WHERE job_id = {job_id:String} ORDER BY key LIMIT 10000"


def checkpoints_query(job: str) -> str:
    """Checkpoints, oldest first."""
    times = ", ".join(f"toUnixTimestamp64Milli({n}) AS {n}_ms" for n in ("completed_at", "pruned_at", "deleted_at"))
    plain = "job_id, commit, step, attempt, epoch, state, uri, bytes_total, bytes_new, stage_s, upload_s, world_size, restores"
    plain += ", memory_nodes, deleted_by"
    return f"SELECT {plain}, {times} FROM checkpoints WHERE job_id = {literal(job)} ORDER BY commit"


def alerts_query(*, every: bool = False, since_ms: int | None = None) -> str:
    """Alerts that are open, the gravest first; or `every` one, those that fired last first."""
    where = f"WHERE fired_at >= fromUnixTimestamp64Milli({since_ms})" if since_ms is not None else ""
    order = "fired_at DESC" if every else "indexOf(['CRITICAL', 'WARNING', 'INFO'], severity), fired_at DESC"
    times = ", ".join(f"toUnixTimestamp64Milli({name}) AS {name}_ms" for name in ("since", "fired_at", "resolved_at"))
    return (
        f"SELECT state, severity, rule, key, labels, value, limit, summary, owner, runbook, {times} "
        f"FROM {'alerts' if every else 'alerts_open'} {where} ORDER BY {order}, rule, key LIMIT {MAX_ALERTS}"
    )


NODES_QUERY = (
    "SELECT node_id, pool, state, restriction, restriction_reason, restricted_by, boot_id, address, device_type, devices, cpus, "
    "memory_bytes, labels, ranks_running, lost_reason, toUnixTimestamp64Milli(registered_at) AS registered_at_ms, "
    "toUnixTimestamp64Milli(last_heartbeat_at) AS last_heartbeat_at_ms, toUnixTimestamp64Milli(lost_at) AS lost_at_ms "
    "FROM nodes ORDER BY pool, node_id"
)
POOLS_QUERY = "SELECT pool, partition, nodes, nodes_alive, nodes_closed, devices, policy, policy_version FROM pools ORDER BY pool"
