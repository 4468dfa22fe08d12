"""Settings of the exporter: collectors and lineage services.

Holds: without an address it tells nobody and refuses to run.
"""

from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import SettingsConfigDict

from trainhouse.events.settings import TomlSection


class ExporterSettings(TomlSection):
    """The exporter of traces and lineage. One of `otlp_endpoint` and `openlineage_url` is needed."""

    section = "exporter"
    model_config = SettingsConfigDict(env_prefix="TRAINHOUSE_EXPORTER_", extra="ignore")

    otlp_endpoint: str | None = Field(
        None, pattern="^https?://", description="address of a collector of OpenTelemetry (OTLP over HTTP), without `/v1/traces`"
    )
    otlp_headers: dict[str, SecretStr] = Field(
        default_factory=dict, description="headers of its requests, such as a collector's key (JSON in the environment)"
    )
    openlineage_url: str | None = Field(None, pattern="^https?://", description="address of an OpenLineage service")
    openlineage_path: str = Field("api/v1/lineage", description="path below it that takes events")
    openlineage_token: SecretStr | None = Field(None, description="bearer token for it")
    namespace: str = Field("trainhouse", min_length=1, description="namespace of jobs in lineage, and `service.namespace` of traces")
    signatures: Literal["accepted", "required"] = Field(
        "accepted", description="whether reports of nodes that never signed count for lineage, as [scheduler] signatures says"
    )
    timeout_s: float = Field(10.0, gt=0, le=300, description="seconds to wait for an answer")
    from_beginning: bool = Field(False, description="whether a first start exports everything that the topics still hold")
    settle_s: float = Field(
        1.0, ge=0, le=60, description="seconds within which records of different topics are put in order before they are exported"
    )

    @model_validator(mode="after")
    def _has_receiver(self) -> Self:
        if self.otlp_endpoint is None and self.openlineage_url is None:
            raise ValueError(
                "the exporter has nobody to tell: set TRAINHOUSE_EXPORTER_OTLP_ENDPOINT (a collector, http://host:4318) or "
                "TRAINHOUSE_EXPORTER_OPENLINEAGE_URL (http://host:port)"
            )
        return self
