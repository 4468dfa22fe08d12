"""The ClickHouse endpoint of the settings, read without the settings models: a question in SQL then costs a tenth of the imports.

Holds: the same address and account as `kafka.wiring.sql_of_settings` gives, or None where that has to decide: without an address of
ClickHouse, by a gateway alone, with an account in the address, or with a value that it would refuse.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainhouse.client.sql import SqlEndpoint

CONFIG_VARIABLE = "TRAINHOUSE_CONFIG"
TEXTS = ("user", "password", "database")


def settings_file() -> dict[str, Any] | None:
    """The settings file that the environment names, empty where it names none; None where it cannot be read."""
    path = os.environ.get(CONFIG_VARIABLE)
    try:
        return tomllib.loads(Path(path).read_text()) if path else {}
    except (OSError, ValueError):
        return None


def endpoint_of(file: Mapping[str, Any], environment: Mapping[str, str]) -> SqlEndpoint | None:
    """The endpoint of a settings file and an environment. Pure."""
    if not knows_kafka(file, environment):
        return None
    known = section_of(file, environment, "clickhouse")
    url, texts = known.get("url"), {name: known.get(name, "") for name in TEXTS}
    if not isinstance(url, str) or not url.startswith(("http://", "https://")) or "@" in url or "timeout_s" in known:
        return None
    if not all(isinstance(text, str) for text in texts.values()):
        return None
    user = texts["user"] or "default"
    account = user if texts["password"] or user != "default" else ""
    return SqlEndpoint(url, account, texts["password"], "" if texts["database"] == "default" else texts["database"])


def knows_kafka(file: Mapping[str, Any], environment: Mapping[str, str]) -> bool:
    """Returns whether an address of Kafka is set. Pure."""
    return "bootstrap" in section_of(file, environment, "kafka")


def section_of(file: Mapping[str, Any], environment: Mapping[str, str], name: str) -> dict[str, Any]:
    """Settings of one section by name, those of the environment first. Pure."""
    found, prefix = file.get(name, {}), f"TRAINHOUSE_{name.upper()}_"
    named = {key.upper(): value for key, value in environment.items()}
    own = {key.removeprefix(prefix).lower(): value for key, value in named.items() if key.startswith(prefix)}
    return (dict(found) if isinstance(found, dict) else {}) | own
