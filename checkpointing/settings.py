"""Settings of the object store: address, credentials, timeouts. Environment `TRAINHOUSE_S3_*`, section `[s3]` of the file.

Holds: without keys, boto3's own chain of credentials applies (roles, profiles); the secret is never shown by repr.
"""

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import SettingsConfigDict

from trainhouse.events.settings import TomlSection


class StoreSettings(TomlSection):
    """Access to an S3 store. `endpoint` None means Amazon's own."""

    section = "s3"
    model_config = SettingsConfigDict(env_prefix="TRAINHOUSE_S3_", extra="ignore")

    endpoint: str | None = "http://127.0.0.1:8333"
    bucket: str = "trainhouse"
    region: str = "us-east-1"
    access_key: str | None = None
    secret_key: SecretStr | None = None
    ca_file: str | None = None
    lease: Path | None = Field(None, description="the socket of who gives leave, request by request; then no keys are needed here")
    sts_role_arn: str | None = Field(
        None, description="agents give ranks keys of this role, cut down to their job; default: signed requests"
    )
    sts_endpoint: str | None = Field(None, description="where AssumeRole is asked for; default: `endpoint`, or Amazon's")
    connect_timeout_s: float = Field(5.0, gt=0)
    # Writers that contend for one key under If-None-Match may wait for each other for seconds.
    read_timeout_s: float = Field(30.0, gt=0)
    deadline_s: float = Field(120.0, gt=0, description="how long one operation is tried again before it fails")
    connections: int = Field(8, ge=1, le=256)
    multipart_bytes: int = Field(16 * 2**20, ge=5 * 2**20, description="larger bodies go up in parts of half this size")

    @property
    def address(self) -> str:
        """The bucket with its endpoint, for messages."""
        return f"{self.endpoint or 's3'}/{self.bucket}"
