"""Whole runs from the tables behind the views, in one query however many runs and parts they have.

Planning a view costs the engine several times what reading a run by its key does. So each part is one look-up by a table's key, all of
them are branches of one statement with the same columns, and what the views compute is computed here.

Holds: pure; a run is as `experiment_runs` has it, its parts as `metric_latest`, `parameters`, `tags`, `inputs` and `run_models` have them
(a test on the engine compares them).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from trainhouse.events.model.tracking import experiment_id_of_project

Row = dict[str, Any]
_IDS: Final = "IN {ids:Array(String)}"
_MILLIS: Final = "toString(toUnixTimestamp64Milli({}))"
_PARTS: Final = {
    "metric": f"job_id AS id, [metric, toString(last)] AS texts FROM metric_latest_rows FINAL WHERE job_id {_IDS} AND rank = 0",
    "parameter": f"job_id AS id, [key, value] AS texts FROM parameters_rows FINAL WHERE job_id {_IDS}",
    "tag": f"job_id AS id, [key, value] AS texts FROM tags_rows FINAL WHERE job_id {_IDS} AND NOT deleted",
    "input": "job_id AS id, [name, digest, toString(source_type), source, toString(context), schema_text, profile] AS texts "
    f"FROM inputs_rows FINAL WHERE job_id {_IDS}",
    "model": f"job_id AS id, [toString(role), model_id, toString(step)] AS texts FROM run_models_rows FINAL WHERE job_id {_IDS}",
}
_RUNS: Final = {
    "tracked": "job_id AS id, "
    f"[experiment_id, toString(project), name, toString(user), toString(state), {_MILLIS.format('started_at')}] AS texts "
    f"FROM tracked_runs_rows FINAL WHERE job_id {_IDS}",
    "change": f"job_id AS id, [toString(what), text, ifNull({_MILLIS.format('time')}, '')] AS texts "
    f"FROM tracked_changes_rows FINAL WHERE job_id {_IDS}",
    # Of every job that has an id, job_key is that id.
    "scheduled": "job_key AS id, [toString(project), name, toString(user), toString(state), "
    f"{_MILLIS.format('coalesce(submitted_at, updated_at)')}, ifNull({_MILLIS.format('finished_at')}, ''), "
    "toString(attempt), toString(epoch)] AS texts "
    f"FROM jobs_rows FINAL WHERE job_key {_IDS} AND notEmpty(job_id) AND notEmpty(project)",
}


def _statement(branches: Mapping[str, str]) -> str:
    return " UNION ALL ".join(f"SELECT '{part}' AS part, {branch}" for part, branch in branches.items())


RUN_SQL: Final = _statement(_RUNS)
WHOLE_SQL: Final = _statement(_RUNS | _PARTS)


@dataclass
class Parts:
    """All that is known of one run besides itself, each in its order."""

    metrics: list[Row] = field(default_factory=list)
    params: list[Row] = field(default_factory=list)
    tags: list[Row] = field(default_factory=list)
    inputs: list[Row] = field(default_factory=list)
    models: list[Row] = field(default_factory=list)

    def lists(self) -> tuple[list[Row], ...]:
        """As `schemas.run` takes them."""
        return self.metrics, self.params, self.tags, self.inputs, self.models


def parts_of(rows: Iterable[Row]) -> dict[str, Parts]:
    """Parts by run, of an answer to WHOLE_SQL."""
    found: dict[str, Parts] = {}
    for row in rows:
        part, texts = row["part"], row["texts"]
        own = found.setdefault(row["id"], Parts())
        if part == "metric":
            own.metrics.append(_metric(texts))
        elif part == "parameter":
            own.params.append({"key": texts[0], "value": texts[1]})
        elif part == "tag":
            own.tags.append({"key": texts[0], "value": texts[1]})
        elif part == "input":
            own.inputs.append(dict(zip(_INPUT, texts, strict=True)))
        elif part == "model":
            own.models.append({"role": texts[0], "model_id": texts[1], "step": int(texts[2])})
    for own in found.values():
        own.metrics.sort(key=lambda m: _bytes(m["metric"]))
        own.params.sort(key=lambda p: _bytes(p["key"]))
        own.tags.sort(key=lambda t: _bytes(t["key"]))
        own.inputs.sort(key=lambda i: _bytes(i["name"]))
        own.models.sort(key=lambda m: (m["step"], m["model_id"]))
    return found


def run_of(rows: Sequence[Row], run_id: str, sees: Callable[[str], bool]) -> Row | None:
    """The run of an answer to RUN_SQL or WHOLE_SQL as `experiment_runs` has it, None where there is none of that id in a project that the
    asker sees. `is_mixed`: a run of another project, which it does not see, has that id: what is kept under the id may be that one's."""
    by_part: dict[str, list[list[str]]] = {}
    for row in rows:
        if row["id"] == run_id:
            by_part.setdefault(row["part"], []).append(row["texts"])
    both: list[Row] = []
    if "tracked" in by_part:
        both.append(_tracked(run_id, by_part["tracked"][0], by_part.get("change", [])))
    if "scheduled" in by_part:
        both.append(_scheduled(run_id, by_part["scheduled"][0]))
    visible = [run for run in both if sees(run["project"])]
    return visible[0] | {"is_mixed": len(visible) < len(both)} if visible else None


_INPUT: Final = ("name", "digest", "source_type", "source", "context", "schema_text", "profile")


def _tracked(run_id: str, begun: Sequence[str], changes: Iterable[Sequence[str]]) -> Row:
    experiment_id, project, name, user, state, start_ms = begun
    changed = {what: (text, time) for what, text, time in changes}
    ended = changed.get("ended", ("", ""))[1]
    return {
        "job_id": run_id,
        "experiment_id": experiment_id,
        "project": project,
        "name": changed.get("name", ("", ""))[0] or name,
        "user": user,
        "state": changed.get("state", ("", ""))[0] or state,
        "deleted": int(changed.get("deleted", ("", ""))[0] == "1"),
        "attempt": 0,
        "epoch": 0,
        "source": "tracked",
        "start_ms": int(start_ms),
        "end_ms": int(ended) if ended else None,
    }


def _scheduled(run_id: str, texts: Sequence[str]) -> Row:
    project, name, user, state, start_ms, end_ms, attempt, epoch = texts
    return {
        "job_id": run_id,
        "experiment_id": experiment_id_of_project(project),
        "project": project,
        "name": name,
        "user": user,
        "state": state,
        "deleted": 0,
        "attempt": int(attempt),
        "epoch": int(epoch),
        "source": "scheduled",
        "start_ms": int(start_ms),
        "end_ms": int(end_ms) if end_ms else None,
    }


def _metric(texts: Sequence[str]) -> Row:
    """`last` of metric_latest_rows: epoch, step, time in ms and the value's bits, 64 bits each from the highest."""
    metric, last = texts[0], int(texts[1])
    value, time_ms = struct.unpack("<dq", (last & (2**128 - 1)).to_bytes(16, "little"))
    return {"metric": metric, "value": value, "step": last >> 128 & (2**64 - 1), "time_ms": time_ms}


def _bytes(text: str) -> bytes:
    # As ClickHouse orders texts; what is no UTF-8 comes out of its JSON as a replacement character.
    return text.encode("utf-8", "surrogatepass")
