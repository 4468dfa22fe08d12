"""For how long compacted topics keep what ended."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from trainhouse.events.settings import TomlSection
from trainhouse.events.wire.topics import DAY_MS, DEFAULT_DAYS


class RetentionSettings(TomlSection):
    """`[retention]` in the file, or TRAINHOUSE_RETENTION_… in the environment."""

    section = "retention"
    model_config = SettingsConfigDict(env_prefix="TRAINHOUSE_RETENTION_", extra="ignore")

    status_days: float = Field(
        DEFAULT_DAYS,
        gt=0,
        le=36_500,
        description="days that the status, explanation, reservation and trace of a finished job stay on their topics, "
        "and the answer to a refused request",
    )

    @property
    def status_ms(self) -> int:
        """The same in milliseconds."""
        return round(self.status_days * DAY_MS)
