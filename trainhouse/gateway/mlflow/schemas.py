"""Runs, experiments and logged models of the projections in MLflow's schema.

Holds: pure. A run's status follows from its job's state: waiting is SCHEDULED, whatever holds devices runs, a refused job FAILED.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from trainhouse.events import JobState

Row = Mapping[str, Any]
Json = dict[str, Any]
STATUS: Final = {
    JobState.PENDING: "SCHEDULED",
    JobState.SCHEDULED: "SCHEDULED",
    JobState.PREEMPTED: "SCHEDULED",
    JobState.NEEDS_REVIEW: "SCHEDULED",
    JobState.INITIALIZING: "RUNNING",
    JobState.RUNNING: "RUNNING",
    JobState.CHECKPOINTING: "RUNNING",
    JobState.SUCCEEDED: "FINISHED",
    JobState.FAILED: "FAILED",
    JobState.REJECTED: "FAILED",
    JobState.CANCELLED: "KILLED",
}
STATE: Final = {
    "SCHEDULED": JobState.PENDING,
    "RUNNING": JobState.RUNNING,
    "FINISHED": JobState.SUCCEEDED,
    "FAILED": JobState.FAILED,
    "KILLED": JobState.CANCELLED,
}

MODEL_STATUS: Final = {"PENDING": "LOGGED_MODEL_PENDING", "READY": "LOGGED_MODEL_READY", "FAILED": "LOGGED_MODEL_UPLOAD_FAILED"}


def _quoted(words: Iterable[str]) -> str:
    return "[" + ", ".join(f"'{w}'" for w in words) + "]"


STATUS_SQL: Final = f"transform(state, {_quoted(s.value for s in STATUS)}, {_quoted(STATUS.values())}, 'RUNNING')"


def artifact_root(experiment_id: str, run_id: str) -> str:
    """Artifact root of a run or a logged model, for clients: a path on this server."""
    return f"mlflow-artifacts:/{experiment_id}/{run_id}/artifacts"


def run_info(row: Row) -> Json:
    """A run's own lines."""
    info: Json = {
        "run_id": row["job_id"],
        "run_uuid": row["job_id"],
        "run_name": row["name"],
        "experiment_id": row["experiment_id"],
        "user_id": row["user"],
        "status": STATUS.get(JobState(row["state"]), "RUNNING"),
        "start_time": row["start_ms"],
        "artifact_uri": artifact_root(row["experiment_id"], row["job_id"]),
        "lifecycle_stage": "deleted" if row["deleted"] else "active",
    }
    return info | ({"end_time": row["end_ms"]} if row["end_ms"] is not None else {})


def updated(row: Row, state: JobState | None, ended_ms: int | None, name: str | None) -> dict[str, Any]:
    """A run as it is after a change, in which None says: as it was. A run that goes on has no end."""
    goes_on = state is not None and not state.final
    end_ms = ended_ms if ended_ms is not None or goes_on else row["end_ms"]
    return {**row, "state": state or row["state"], "end_ms": end_ms, "name": name or row["name"]}


def run(
    row: Row,
    metrics: Iterable[Row] = (),
    params: Iterable[Row] = (),
    tags: Iterable[Row] = (),
    inputs: Iterable[Row] = (),
    models: Iterable[Row] = (),
) -> Json:
    """A whole run."""
    known = {t["key"]: t["value"] for t in tags}
    named = {"mlflow.runName": row["name"], "mlflow.user": row["user"]} | known
    data = {
        "metrics": [metric(m) for m in metrics],
        "params": [{"key": p["key"], "value": p["value"]} for p in params],
        "tags": [{"key": k, "value": v} for k, v in named.items()],
    }
    read: Json = {"dataset_inputs": [dataset_input(i) for i in inputs]}
    linked = list(models)
    if read_models := [{"model_id": m["model_id"]} for m in linked if m["role"] == "input"]:
        read["model_inputs"] = read_models
    made = [{"model_id": m["model_id"], "step": m["step"]} for m in linked if m["role"] == "output"]
    whole = {"info": run_info(row), "data": data, "inputs": read}
    return whole | ({"outputs": {"model_outputs": made}} if made else {})


def logged_model(row: Row, params: Iterable[Row] = (), tags: Iterable[Row] = ()) -> Json:
    """A whole logged model."""
    info = {
        "model_id": row["model_id"],
        "experiment_id": row["experiment_id"],
        "name": row["name"],
        "creation_timestamp_ms": row["created_ms"],
        "last_updated_timestamp_ms": row["updated_ms"],
        "artifact_uri": artifact_root(row["experiment_id"], row["model_id"]),
        "status": MODEL_STATUS.get(row["status"], "LOGGED_MODEL_STATUS_UNSPECIFIED"),
        "model_type": row["model_type"],
        "tags": [{"key": t["key"], "value": t["value"]} for t in tags],
    }
    source = {"source_run_id": row["source_run_id"]} if row["source_run_id"] else {}
    return {"info": info | source, "data": {"params": [{"key": p["key"], "value": p["value"]} for p in params], "metrics": []}}


def metric(row: Row) -> Json:
    """One point. JSON has no NaN and no infinities; protocol buffers write them as words."""
    return {"key": row["metric"], "value": number(row["value"]), "timestamp": row["time_ms"], "step": row["step"]}


def number(value: Any) -> float | str:
    """A value as protocol buffers have it in JSON; ClickHouse's own words for what is no number come in as text or None."""
    found = float("nan") if value is None else float(value)
    if math.isfinite(found):
        return found
    return "NaN" if math.isnan(found) else "Infinity" if found > 0 else "-Infinity"


def dataset_input(row: Row) -> Json:
    """One dataset that a run read."""
    dataset = {name: row[name] for name in ("name", "digest", "source_type", "source", "profile")} | {"schema": row["schema_text"]}
    tags = [{"key": "mlflow.data.context", "value": row["context"]}] if row["context"] else []
    return {"dataset": dataset, "tags": tags}


def experiment(row: Row, tags: Iterable[Row] = ()) -> Json:
    """A whole experiment."""
    return {
        "experiment_id": row["experiment_id"],
        "name": row["name"],
        "artifact_location": f"mlflow-artifacts:/{row['experiment_id']}",
        "lifecycle_stage": "deleted" if row["deleted"] else "active",
        "creation_time": row["created_ms"],
        "last_update_time": row["updated_ms"],
        "tags": [{"key": t["key"], "value": t["text"]} for t in tags],
    }


def files_at(root: str, paths: Iterable[tuple[str, int]]) -> list[Json]:
    """Lists a folder of artifacts, from all paths with their sizes in bytes: files, and folders once."""
    prefix = f"{root.strip('/')}/" if root.strip("/") else ""
    files: dict[str, Json] = {}
    for path, size_bytes in paths:
        if not path.startswith(prefix):
            continue
        head, slash, _ = path[len(prefix) :].partition("/")
        known = {"path": prefix + head, "is_dir": bool(slash)}
        files.setdefault(prefix + head, known if slash else known | {"file_size": size_bytes})
    return [files[name] for name in sorted(files)]
