"""Settings of alerts: destinations, and rules beside the shipped ones."""

from pathlib import Path

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from trainhouse.events.settings import TomlSection


class AlertsSettings(TomlSection):
    """Alerts: rules and their destinations."""

    section = "alerts"
    model_config = SettingsConfigDict(env_prefix="TRAINHOUSE_ALERTS_", extra="ignore")

    rules: Path | None = Field(None, description="file, or folder of *.yaml, with rules beside the shipped ones; a whole path")
    runbooks_url: str = Field("", description="address that goes before relative links to runbooks, as those of the shipped rules are")
    query_timeout_s: float = Field(20.0, gt=0, le=600, description="seconds that the query of a rule may take")
    webhook_url: str = Field("", description="address that gets each event of the alerts topic by POST; empty: none")
    webhook_timeout_s: float = Field(10.0, gt=0, le=120, description="seconds to wait for its answer")
    webhook_tries: int = Field(8, ge=1, le=100, description="tries of one delivery before it is given up")

    @field_validator("webhook_url")
    @classmethod
    def _is_http(cls, value: str) -> str:
        if value and not value.startswith(("http://", "https://")):
            raise ValueError(f"{value!r} is no address of a webhook; write http(s)://host/path, or leave it empty")
        return value
