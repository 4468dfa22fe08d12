"""Kind of access of each route, for the audit.

Holds: pure; a route that nothing here names has a class all the same: what reads by its method is a read, all else is a write. So a new
route is audited before anybody thinks of it; what is public stands here by name.
"""

from __future__ import annotations

from enum import StrEnum

from trainhouse.gateway.pages.router import PATHS as PAGES


class Access(StrEnum):
    """A class of accesses, which says how they are told to the audit."""

    READ = "read"
    TRACK = "track"
    WRITE = "write"
    SQL = "sql"
    STREAM = "stream"
    SESSION = "session"
    PUBLIC = "public"


COUNTED = frozenset({Access.READ, Access.TRACK})
"""Told once at first, then with a count: alike are those of one asker, address, route and target."""
ACKED = frozenset({Access.WRITE, Access.SQL})
"""Told before they happen; with `audit = required` the brokers must have it."""
ENDED = frozenset({Access.SQL, Access.STREAM})
"""Told again when they end."""

PUBLIC = frozenset({*PAGES, "/static", "/healthz", "/metrics", "/openapi.json"})
"""What tells nothing of jobs, or what the operator opened (`metrics`, `openapi` of the settings): only refusals are told."""

_MLFLOW = "/api/2.0/mlflow"
NAMED = {
    ("POST", "/v1/query"): Access.SQL,
    ("GET", "/v1/stream"): Access.STREAM,
    ("GET", "/v1/training-jobs/{job_id}/stream"): Access.STREAM,
    ("GET", "/training-runs/{run_id}/metrics"): Access.STREAM,
    ("POST", "/v1/session"): Access.SESSION,
    ("DELETE", "/v1/session"): Access.SESSION,
    ("POST", "/v1/login-codes"): Access.SESSION,
    ("POST", "/v1/link-session"): Access.SESSION,
    ("GET", "/login"): Access.SESSION,
    ("POST", f"{_MLFLOW}/runs/search"): Access.READ,
    ("POST", f"{_MLFLOW}/experiments/search"): Access.READ,
    ("POST", "/api/2.0/mlflow/logged-models/search"): Access.READ,
    ("POST", "/v1/optuna/{project}/{name}/logs"): Access.TRACK,
} | {
    ("POST", f"{_MLFLOW}/runs/{name}"): Access.TRACK
    for name in ("log-metric", "log-batch", "log-parameter", "log-inputs", "outputs", "set-tag", "delete-tag")
}


def class_of(method: str, path: str) -> Access:
    """The class of a route, by its method and its pattern; an address without a route has the empty pattern."""
    if path in PUBLIC:
        return Access.PUBLIC
    return NAMED.get((method, path)) or (Access.READ if method in ("GET", "HEAD", "OPTIONS") else Access.WRITE)
