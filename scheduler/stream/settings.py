"""Settings of the stream processors: explicit argument > environment > file > default."""

import os
import socket
import uuid

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from trainhouse.events.settings import TomlSection


class StreamSettings(TomlSection):
    """`instance` names this member of its group for ever (a pod's stable name, say): a restart then keeps its partitions at once.

    Two processes of one kind must not share it. Without it membership is dynamic.
    """

    section = "scheduler"
    model_config = SettingsConfigDict(env_prefix="TRAINHOUSE_SCHEDULER_", extra="ignore")

    instance: str | None = None
    takeover_s: float = Field(2.0, gt=0.5, description="silence of a journal after which a stand-in decides")
    snapshot_every_records: int = Field(2_000, ge=10)
    group_session_s: float = Field(6.0, ge=1.0)
    batch_count: int = Field(500, ge=1, le=10_000)
    log_level: str = "INFO"

    def owner_name(self) -> str:
        """A name for this start of this process: for records, never reused."""
        return f"{self.instance or socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
