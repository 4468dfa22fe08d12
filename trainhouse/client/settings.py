"""Settings of the gateway's client.

Holds: explicit argument > TRAINHOUSE_GATEWAY_URL and TRAINHOUSE_GATEWAY_TOKEN > the `[gateway]` section of the settings file.
"""

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from trainhouse.events.settings import TomlSection


class GatewaySettings(TomlSection):
    """The gateway as its users see it. The token is never shown."""

    section = "gateway"
    model_config = SettingsConfigDict(env_prefix="TRAINHOUSE_GATEWAY_", extra="ignore")

    url: str = Field("", description="address of the gateway")
    token: str = Field("", repr=False, description="token that `trainhouse token create` printed")
    ca: Path | None = Field(
        None, description="file of an authority that is trusted beside the system's (PEM), as `trainhouse up --tls` makes one"
    )
