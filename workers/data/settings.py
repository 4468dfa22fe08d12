"""Settings of reading published datasets. Environment `TRAINHOUSE_DATA_*`, section `[data]` of the file."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from trainhouse.events.settings import TomlSection


class DataSettings(TomlSection):
    """The cache of shards on a node's disk, and reads from the store."""

    section = "data"
    model_config = SettingsConfigDict(env_prefix="TRAINHOUSE_DATA_", extra="ignore")

    cache_dir: Path | None = Field(
        None,
        description="folder in which each project's cache lies, shared by the ranks of a node; default: the folder for temporary files",
    )
    cache_gib: float | None = Field(
        None, ge=0, description="most GiB of a project's; 0: no cache; default: half of what is free there at the start"
    )
    reads: int = Field(8, ge=1, le=256, description="samples that a worker process fetches from the store at a time")
