"""The ClickHouse endpoint of the settings, read without the settings models: a question in SQL then costs a tenth of the imports.

Holds: the same address and account as `kafka.wiring.sql_of_settings` gives, or None where that has to decide: without an address of
ClickHouse, by a gateway alone, with an account in the address, or with a value that it would refuse.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainhouse.client.errors import NotReachableError
from trainhouse.client.sql import SqlEndpoint

CONFIG_VARIABLE = "TRAINHOUSE_CONFIG"
TEXTS = ("user", "password", "database")


def quick_endpoint() -> SqlEndpoint | None:
    """The endpoint by environment and settings file; None where the settings models have to decide. Blocks on the file alone."""
    path = os.environ.get(CONFIG_VARIABLE)
    try:
        found = tomllib.loads(Path(path).read_text()) if path else {}
    except (OSError, ValueError):
        return None
    return endpoint_of(found, os.environ)


def quick_rows(query: str) -> list[dict[str, Any]] | None:
    """Rows of a query straight from the tables; None where settings do not name them, or they do not answer: the client has more ways then,
    and says what is wrong. Blocks. Raises QueryError."""
    endpoint = quick_endpoint()
    try:
        return None if endpoint is None else endpoint.table(query).dicts()
    except NotReachableError:
        return None


def endpoint_of(file: Mapping[str, Any], environment: Mapping[str, str]) -> SqlEndpoint | None:
    """The endpoint of a settings file and an environment. Pure."""
    named = {name.upper(): value for name, value in environment.items()}
    if "TRAINHOUSE_KAFKA_BOOTSTRAP" not in named and "bootstrap" not in _section(file, "kafka"):
        return None
    prefix, section = "TRAINHOUSE_CLICKHOUSE_", _section(file, "clickhouse")
    known = section | {name.removeprefix(prefix).lower(): value for name, value in named.items() if name.startswith(prefix)}
    url, texts = known.get("url"), {name: known.get(name, "") for name in TEXTS}
    if not isinstance(url, str) or not url.startswith(("http://", "https://")) or "@" in url or "timeout_s" in known:
        return None
    if not all(isinstance(text, str) for text in texts.values()):
        return None
    user = texts["user"] or "default"
    account = user if texts["password"] or user != "default" else ""
    return SqlEndpoint(url, account, texts["password"], "" if texts["database"] == "default" else texts["database"])


def _section(file: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = file.get(name, {})
    return dict(found) if isinstance(found, dict) else {}
