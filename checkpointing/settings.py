"""Settings of the object store: address, credentials, timeouts. Environment `TRAINHOUSE_S3_*`, section `[s3]` of the file.

Holds: without keys, boto3's own chain of credentials applies (roles, profiles); the secret is never shown by repr.
"""

from pathlib import Path
from typing import Self

from pydantic import Field, SecretStr
from pydantic_settings import SettingsConfigDict

from trainhouse.events.settings import TomlSection


class StoreSettings(TomlSection):
    """Access to an S3 store. `endpoint` None means Amazon's own."""

    section = "s3"
    model_config = SettingsConfigDict(env_prefix="TRAINHOUSE_S3_", extra="ignore")

    endpoint: str | None = Field("http://127.0.0.1:8333", description="address of the store; none: Amazon's own")
    bucket: str = Field("trainhouse", description="bucket for checkpoints, code, snapshots and the archive")
    region: str = Field("us-east-1", description="region that requests are signed for")
    access_key: str | None = Field(None, description="id of the access key; default: boto3's chain of credentials")
    secret_key: SecretStr | None = Field(None, description="the secret to it")
    ca_file: str | None = Field(
        None, description="file of the authorities that the store's certificate is checked by (PEM); default: the system's"
    )
    lease: Path | None = Field(
        None, description="socket of a process that signs each request, as agents have for ranks; no keys are needed then"
    )
    sts_role_arn: str | None = Field(
        None, description="agents give ranks keys of this role, cut down to their job; default: signed requests"
    )
    sts_endpoint: str | None = Field(None, description="where AssumeRole is asked for; default: `endpoint`, or Amazon's")
    connect_timeout_s: float = Field(5.0, gt=0, description="seconds to wait for a connection")
    read_timeout_s: float = Field(30.0, gt=0, description="seconds to wait for an answer; writers that contend for one key may need some")
    deadline_s: float = Field(120.0, gt=0, description="seconds for which one operation is tried again before it fails")
    connections: int = Field(8, ge=1, le=256, description="connections that one process keeps")
    multipart_bytes: int = Field(16 * 2**20, ge=5 * 2**20, description="size in bytes from which bodies go up in parts of half this size")

    def within(self, seconds: float) -> Self:
        """Returns these settings for one who waits for no answer longer than that."""
        return self.model_copy(update={"connect_timeout_s": seconds, "read_timeout_s": seconds, "deadline_s": seconds})

    @property
    def address(self) -> str:
        """The bucket with its endpoint, for messages."""
        return f"{self.endpoint or 's3'}/{self.bucket}"
