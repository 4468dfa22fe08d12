"""Settings of alerts: destinations, and rules beside the shipped ones."""

from pathlib import Path

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from trainhouse.events.settings import TomlSection


class AlertsSettings(TomlSection):
    """`rules`: a file or a folder of *.yaml, by its whole path. `webhook_url`: gets each event of the alerts topic by POST, if set.

    `runbooks_url` goes before runbook links that are relative, as those of the shipped rules are.
    """

    section = "alerts"
    model_config = SettingsConfigDict(env_prefix="TRAINHOUSE_ALERTS_", extra="ignore")

    rules: Path | None = None
    runbooks_url: str = ""
    query_timeout_s: float = Field(20.0, gt=0, le=600)
    webhook_url: str = ""
    webhook_timeout_s: float = Field(10.0, gt=0, le=120)
    webhook_tries: int = Field(8, ge=1, le=100)

    @field_validator("webhook_url")
    @classmethod
    def _is_http(cls, value: str) -> str:
        if value and not value.startswith(("http://", "https://")):
            raise ValueError(f"{value!r} is no address of a webhook; write http(s)://host/path, or leave it empty")
        return value
