"""Settings of the gateway's client.

Holds: explicit argument > TRAINHOUSE_GATEWAY_URL and TRAINHOUSE_GATEWAY_TOKEN > the `[gateway]` section of the settings file.
"""

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from trainhouse.events.settings import TomlSection


class GatewaySettings(TomlSection):
    """The gateway as its users see it. `token` is what `trainhouse token` made; it is never shown."""

    section = "gateway"
    model_config = SettingsConfigDict(env_prefix="TRAINHOUSE_GATEWAY_", extra="ignore")

    url: str = ""
    token: str = Field("", repr=False)
    # Certificate of an authority that is believed beside the system's, as `trainhouse up --tls` makes one.
    ca: Path | None = None
