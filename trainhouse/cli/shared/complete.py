"""Shell completion: ids of jobs, names of nodes and pools.

Holds: an answer within a second or none at all; a fault is silent, since a shell that waits or complains is worse than one that offers
nothing. Nothing of the platform is imported: that alone would take the time.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from urllib.request import Request

TIMEOUT_S = 0.6
LIMIT = 200
# What to ask: the gateway's path, and the same in SQL; `name` is the column.
JOBS = (
    "/v1/training-jobs",
    "job_id",
    "SELECT job_id FROM jobs WHERE startsWith(job_id, {given:String}) ORDER BY updated_at DESC LIMIT 200",
)
NODES = ("/v1/nodes", "node_id", "SELECT node_id FROM nodes WHERE startsWith(node_id, {given:String}) ORDER BY node_id LIMIT 200")
POOLS = ("/v1/pools", "pool", "SELECT pool FROM pools WHERE startsWith(pool, {given:String}) ORDER BY pool LIMIT 200")


def jobs(incomplete: str) -> list[str]:
    """Ids of jobs that begin so, the newest first."""
    return _offer(JOBS, incomplete)


def nodes(incomplete: str) -> list[str]:
    """Names of nodes that begin so."""
    return _offer(NODES, incomplete)


def pools(incomplete: str) -> list[str]:
    """Names of pools that begin so."""
    return _offer(POOLS, incomplete)


def _offer(what: tuple[str, str, str], given: str) -> list[str]:
    try:
        names = _asked(what, given)
    except Exception:  # whatever it was: a shell must never show it
        return []
    return [name for name in names if name.startswith(given)]


def _asked(what: tuple[str, str, str], given: str) -> list[str]:
    # Only now: each command has this module beside its options.
    import urllib.parse
    import urllib.request

    path, column, query = what
    gateway, token, clickhouse, account = _addresses()
    if clickhouse:
        values = {"param_given": given, "default_format": "JSONCompact"}
        request = urllib.request.Request(f"{clickhouse}/?{urllib.parse.urlencode(values)}", query.encode(), account)
        return [str(row[0]) for row in _json(request)["data"]]
    if not gateway:
        return []
    request = urllib.request.Request(f"{gateway}{path}?limit={LIMIT}", headers={"Authorization": f"Bearer {token}"})
    return [str(item[column]) for item in _json(request)["items"]]


def _json(request: "Request") -> Any:
    import json
    import urllib.request

    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # nosec B310  # the gateway that the caller set
        return json.loads(answer.read(4 * 1024 * 1024))


def _addresses() -> tuple[str, str, str, dict[str, str]]:
    """Gateway, token, ClickHouse and its account, by environment and settings file; the gateway counts where no other address is known."""
    import tomllib

    from trainhouse.cli.shared import settings_lookup

    url, token = os.environ.get(settings_lookup.GATEWAY_VARIABLE, ""), os.environ.get("TRAINHOUSE_GATEWAY_TOKEN", "")
    if settings_lookup.only_gateway(None, os.environ):
        return url.rstrip("/"), token, "", {}
    config = settings_lookup.find_config(None, os.environ, Path.cwd())
    found = tomllib.loads(config.read_text()) if config is not None else {}
    section = found.get("gateway", {})
    sql = found.get("clickhouse", {})

    def of_sql(name: str) -> str:
        return str(os.environ.get(f"TRAINHOUSE_CLICKHOUSE_{name.upper()}") or sql.get(name, ""))

    account = {"X-ClickHouse-User": of_sql("user"), "X-ClickHouse-Key": of_sql("password")} if of_sql("user") else {}
    return (url or section.get("url", "")).rstrip("/"), token or section.get("token", ""), of_sql("url").rstrip("/"), account
