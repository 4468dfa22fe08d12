"""Settings of the exporter: collectors and lineage services.

Holds: without an address it tells nobody and refuses to run.
"""

from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import SettingsConfigDict

from trainhouse.events.settings import TomlSection


class ExporterSettings(TomlSection):
    """`otlp_endpoint`: a collector's address for OTLP over HTTP, without `/v1/traces`. `openlineage_url`: a lineage service's address."""

    section = "exporter"
    model_config = SettingsConfigDict(env_prefix="TRAINHOUSE_EXPORTER_", extra="ignore")

    otlp_endpoint: str | None = Field(None, pattern="^https?://")
    otlp_headers: dict[str, SecretStr] = Field(default_factory=dict, description="JSON in the environment; for keys of a collector")
    openlineage_url: str | None = Field(None, pattern="^https?://")
    openlineage_path: str = "api/v1/lineage"
    openlineage_token: SecretStr | None = None
    namespace: str = Field("trainhouse", min_length=1, description="of jobs in lineage, and `service.namespace` of traces")
    signatures: Literal["accepted", "required"] = Field(
        "accepted", description="of nodes, on what their ranks begin from; as [scheduler] signatures says"
    )
    timeout_s: float = Field(10.0, gt=0, le=300)
    from_beginning: bool = Field(False, description="a first start tells of everything that the topics still hold")
    settle_s: float = Field(
        1.0, ge=0, le=60, description="records of different topics so close in time are put in order before they are told"
    )

    @model_validator(mode="after")
    def _has_receiver(self) -> Self:
        if self.otlp_endpoint is None and self.openlineage_url is None:
            raise ValueError(
                "the exporter has nobody to tell: set TRAINHOUSE_EXPORTER_OTLP_ENDPOINT (a collector, http://host:4318) or "
                "TRAINHOUSE_EXPORTER_OPENLINEAGE_URL (http://host:port)"
            )
        return self
