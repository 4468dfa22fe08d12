"""The page of settings: each group with its table in the file, its variables, defaults and meanings.

Holds: the meaning of a setting is its description.
"""

import re
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.client.settings import GatewaySettings as ClientGatewaySettings
from trainhouse.events.runtime.metrics_server import MetricsSettings
from trainhouse.events.settings import KafkaSettings, OperationsSettings, TomlSection
from trainhouse.events.tombstones.settings import RetentionSettings
from trainhouse.gateway.settings import GatewaySettings
from trainhouse.projections.alerts.settings import AlertsSettings
from trainhouse.projections.exporter.settings import ExporterSettings
from trainhouse.projections.settings import ClickHouseSettings, ProjectorSettings
from trainhouse.reference.markdown import code, prose, table
from trainhouse.scheduler.stream.settings import StreamSettings
from trainhouse.workers.agent.settings import AgentSettings, GatewayAddress
from trainhouse.workers.data.settings import DataSettings
from trainhouse.workers.fleet.emulation import FleetSettings
from trainhouse.workers.secretstore.settings import VaultSettings

GROUPS: tuple[type[TomlSection], ...] = (
    KafkaSettings,
    StoreSettings,
    ClickHouseSettings,
    ProjectorSettings,
    StreamSettings,
    AgentSettings,
    DataSettings,
    GatewaySettings,
    ClientGatewaySettings,
    GatewayAddress,
    OperationsSettings,
    AlertsSettings,
    ExporterSettings,
    MetricsSettings,
    RetentionSettings,
    VaultSettings,
    FleetSettings,
)
INTRODUCTION = """# Settings

Each process and command takes its settings from the environment, then from the TOML file that `TRAINHOUSE_CONFIG` names (one table for each
group), then from the defaults below.
"""


def settings() -> str:
    """Every group of settings."""
    return "\n".join([INTRODUCTION, *(_group(group) for group in GROUPS)])


def _group(group: type[TomlSection]) -> str:
    prefix = str(group.model_config.get("env_prefix", ""))
    rows = [
        (code(name), code(prefix + name.upper()), _type(field), _default(field), prose(field.description))
        for name, field in group.model_fields.items()
    ]
    title = f"## [{group.section}] {_SUFFIX.get(group, '')}".rstrip()
    return f"{title}\n\n{prose(group.__doc__)}\n\n" + table(["setting", "variable", "type", "default", "meaning"], rows)


_SUFFIX: dict[type[TomlSection], str] = {
    GatewaySettings: "of the gateway",
    ClientGatewaySettings: "of clients",
    GatewayAddress: "of agents",
}


def _type(field: FieldInfo) -> str:
    annotation: Any = field.annotation
    text = annotation.__name__ if isinstance(annotation, type) and not getattr(annotation, "__args__", ()) else str(annotation)
    text = re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Za-z])", "", text)
    return code(text.replace(SecretStr.__name__, "secret"))


def _default(field: FieldInfo) -> str:
    value = field.default_factory if field.default is PydanticUndefined else field.default
    if callable(value):
        return "made at start"
    if isinstance(value, Path | str) and str(value).startswith(str(Path.home())):
        return code(str(value).replace(str(Path.home()), "~", 1))
    return "required" if value is None and field.is_required() else code(value)
