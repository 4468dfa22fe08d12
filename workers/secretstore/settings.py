"""Settings of a Vault: `[vault]` of the settings file, `TRAINHOUSE_VAULT_*` in the environment. boto3 finds AWS by itself.

Holds: these are the agent's alone; no rank gets any of them.
"""

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import SettingsConfigDict

from trainhouse.events.settings import TomlSection


class VaultSettings(TomlSection):
    """A server of OpenBao or Vault."""

    section = "vault"
    model_config = SettingsConfigDict(env_prefix="TRAINHOUSE_VAULT_", extra="ignore")

    address: str = Field("", description="address of the server, such as https://bao.example.org:8200")
    token: SecretStr | None = Field(None, description="token for it")
    token_file: Path | None = Field(
        None, description="file of a token, read at each use, so that an agent of Vault's may renew it; wins over `token`"
    )
    namespace: str | None = Field(None, description="namespace that the token is of (Vault Enterprise, OpenBao)")
    ca_file: str | None = Field(None, description="file of the authorities that its certificate is checked by (PEM); default: the system's")
    timeout_s: float = Field(5.0, gt=0, le=60, description="seconds to wait for an answer")
