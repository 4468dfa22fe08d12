"""Searches of runs, experiments and logged models as SQL over the projections.

Holds: pure; every value that a caller gave is bound, never pasted: names of columns come from the tables below. A comparison of something
that a run does not have is false, also `!=`, as with MLflow's own server. Whose projects count is a condition of every query.
"""

import base64
import binascii
from collections.abc import Sequence
from typing import Any, Final

from trainhouse.gateway.auth.roles import Principal
from trainhouse.gateway.mlflow.errors import invalid
from trainhouse.gateway.mlflow.filter_language import Condition, Entity, Ordering
from trainhouse.gateway.mlflow.schemas import STATUS_SQL

Bound = dict[str, object]
RUN_COLUMNS: Final = (
    "job_id, experiment_id, project, name, user, state, deleted, attempt, epoch, source, "
    "toUnixTimestamp64Milli(started_at) AS start_ms, toUnixTimestamp64Milli(ended_at) AS end_ms"
)
EXPERIMENT_COLUMNS: Final = (
    "experiment_id, name, project, deleted, toUnixTimestamp64Milli(created_at) AS created_ms, "
    "toUnixTimestamp64Milli(updated_at) AS updated_ms"
)
MODEL_COLUMNS: Final = (
    "model_id, experiment_id, experiment, project, name, user, model_type, source_run_id, status, deleted, "
    "toUnixTimestamp64Milli(created_at) AS created_ms, toUnixTimestamp64Milli(updated_at) AS updated_ms"
)
_MODEL: Final = {
    **{name: name for name in ("model_id", "name", "model_type", "status", "source_run_id")},
    "creation_time": "toUnixTimestamp64Milli(created_at)",
    "last_updated_time": "toUnixTimestamp64Milli(updated_at)",
}
_RUN: Final = {
    "run_id": "job_id",
    "run_name": "name",
    "status": STATUS_SQL,
    "user_id": "user",
    "artifact_uri": "concat('mlflow-artifacts:/', experiment_id, '/', job_id, '/artifacts')",
    "start_time": "toUnixTimestamp64Milli(started_at)",
    "end_time": "toUnixTimestamp64Milli(ended_at)",
}
_EXPERIMENT: Final = {
    "experiment_id": "experiment_id",
    "name": "name",
    "creation_time": "toUnixTimestamp64Milli(created_at)",
    "last_update_time": "toUnixTimestamp64Milli(updated_at)",
}
_VIEWS: Final = {"ACTIVE_ONLY": "NOT deleted", "DELETED_ONLY": "deleted", "ALL": "1"}
_EXPERIMENT_TAGS: Final = "experiments_rows FINAL WHERE what = 'tag' AND NOT deleted"


class Query:
    """Conditions and their bound values, while a query is put together."""

    def __init__(self, principal: Principal) -> None:
        self.values: Bound = {}
        self.conditions: list[str] = []
        if not principal.everywhere:
            self.conditions.append(f"project IN {self.bind(list(principal.projects), 'Array(String)')}")

    def bind(self, value: object, kind: str) -> str:
        """A placeholder of a value."""
        name = f"v{len(self.values)}"
        self.values[name] = value
        return f"{{{name}:{kind}}}"

    def add(self, condition: str) -> None:
        self.conditions.append(condition)

    @property
    def where(self) -> str:
        return " AND ".join(self.conditions) or "1"


def runs_query(
    principal: Principal, experiments: Sequence[str], view: str, conditions: Sequence[Condition], orders: Sequence[Ordering]
) -> tuple[str, Query]:
    """SQL of the runs that a search asks for, without its limit."""
    query = Query(principal)
    query.add(f"experiment_id IN {query.bind(list(experiments), 'Array(String)')}")
    query.add(_VIEWS[view])
    for condition in conditions:
        query.add(_of_run(query, condition))
    joins, keys = [], []
    for n, order in enumerate(orders):
        join, key = _run_order(query, order, n)
        joins += [join] if join else []
        keys.append(f"{key} {'DESC' if order.descending else 'ASC'} NULLS LAST")
    order_by = ", ".join([*keys, "started_at DESC", "job_id"])
    return f"SELECT {RUN_COLUMNS} FROM experiment_runs {' '.join(joins)} WHERE {query.where} ORDER BY {order_by}", query


def experiments_query(principal: Principal, view: str, conditions: Sequence[Condition], orders: Sequence[Ordering]) -> tuple[str, Query]:
    """SQL of the experiments that a search asks for, without its limit."""
    query = Query(principal)
    query.add(_VIEWS[view])
    for condition in conditions:
        if condition.entity is Entity.TAG:
            query.add(_has(query, condition, f"SELECT experiment_id FROM {_EXPERIMENT_TAGS}", "experiment_id", "text"))
        else:
            query.add(_compare(query, _EXPERIMENT[condition.key], condition))
    for order in orders:
        if order.entity is Entity.TAG:
            raise invalid("experiments are ordered by their attributes")
    keys = [f"{_EXPERIMENT[o.key]} {'DESC' if o.descending else 'ASC'}" for o in orders] or ["updated_at DESC"]
    return f"SELECT {EXPERIMENT_COLUMNS} FROM experiments WHERE {query.where} ORDER BY {', '.join([*keys, 'experiment_id'])}", query


def models_query(
    principal: Principal, experiments: Sequence[str], conditions: Sequence[Condition], orders: Sequence[Ordering]
) -> tuple[str, Query]:
    """SQL of the logged models that a search asks for, without its limit."""
    query = Query(principal)
    query.add(f"experiment_id IN {query.bind(list(experiments), 'Array(String)')}")
    query.add("NOT deleted")
    for condition in conditions:
        if condition.entity is Entity.ATTRIBUTE:
            query.add(_compare(query, _MODEL[condition.key], condition))
        else:
            table = "parameters" if condition.entity is Entity.PARAMETER else "tags"
            query.add(_has(query, condition, f"SELECT job_id FROM {table} WHERE 1", "model_id", "value"))
    for order in orders:
        if order.entity is not Entity.ATTRIBUTE:
            raise invalid("logged models are ordered by their attributes")
    keys = [f"{_MODEL[o.key]} {'DESC' if o.descending else 'ASC'}" for o in orders]
    order_by = ", ".join([*keys, "created_at DESC", "model_id"])
    return f"SELECT {MODEL_COLUMNS} FROM logged_models WHERE {query.where} ORDER BY {order_by}", query


def paged(sql: str, query: Query, limit: int, token: str | None) -> tuple[str, Bound, int]:
    """One page of a query, with one row more to see whether another follows; and where it begins."""
    begin = read_token(token)
    text = f"{sql} LIMIT {query.bind(limit + 1, 'UInt32')} OFFSET {query.bind(begin, 'UInt64')}"
    return text, query.values, begin


def read_token(token: str | None) -> int:
    """Returns the number of rows that a page token passes over. Raises MlflowError."""
    if not token:
        return 0
    try:
        text = base64.urlsafe_b64decode(token.encode()).decode()
        if text.isascii() and text.isdigit() and len(text) < 16:
            return int(text)
    except (binascii.Error, ValueError):
        pass
    raise invalid(f"the page token {token!r} is not one of this server's")


def token_of(offset: int) -> str:
    """The page token that passes over so many rows."""
    return base64.urlsafe_b64encode(str(offset).encode()).decode()


def _of_run(query: Query, condition: Condition) -> str:
    match condition.entity:
        case Entity.ATTRIBUTE:
            return _compare(query, _RUN[condition.key], condition)
        case Entity.PARAMETER:
            return _has(query, condition, "SELECT job_id FROM parameters WHERE 1", "job_id", "value")
        case Entity.TAG:
            return _has(query, condition, "SELECT job_id FROM tags WHERE 1", "job_id", "value")
        case Entity.DATASET:
            return f"job_id IN (SELECT job_id FROM inputs WHERE {_compare(query, condition.key, condition)})"
        case Entity.METRIC:
            name, last = query.bind(condition.key, "String"), _compare(query, "value", condition)
            return f"job_id IN (SELECT job_id FROM metric_latest WHERE metric = {name} AND rank = 0 AND {last})"


def _has(query: Query, condition: Condition, select: str, id_column: str, column: str) -> str:
    """A comparison of something that a run or an experiment has under a key, or has not."""
    under = f"{select} AND key = {query.bind(condition.key, 'String')}"
    if condition.comparator == "IS NULL":
        return f"{id_column} NOT IN ({under})"
    if condition.comparator == "IS NOT NULL":
        return f"{id_column} IN ({under})"
    return f"{id_column} IN ({under} AND {_compare(query, column, condition)})"


def _compare(query: Query, column: str, condition: Condition) -> str:
    value: Any = condition.value
    if isinstance(value, tuple):
        return f"{column} {condition.comparator} {query.bind(list(value), 'Array(String)')}"
    if isinstance(value, float):
        return f"{column} {condition.comparator} {query.bind(value, 'Float64')}"
    if condition.comparator in ("LIKE", "ILIKE"):
        value = str(value).replace("\\", "\\\\")  # here a backslash escapes, there it does not
    return f"{column} {condition.comparator} {query.bind(value, 'String')}"


def _run_order(query: Query, order: Ordering, n: int) -> tuple[str, str]:
    """A join that brings the value to order by, if one is needed, and that value's name."""
    if order.entity is Entity.ATTRIBUTE:
        return "", _RUN[order.key]
    key = query.bind(order.key, "String")
    if order.entity is Entity.METRIC:
        source = f"SELECT job_id, toNullable(value) AS o{n} FROM metric_latest WHERE metric = {key} AND rank = 0"
    else:
        table = "parameters" if order.entity is Entity.PARAMETER else "tags"
        source = f"SELECT job_id, toNullable(value) AS o{n} FROM {table} WHERE key = {key}"
    return f"LEFT JOIN ({source}) AS j{n} USING job_id", f"j{n}.o{n}"
