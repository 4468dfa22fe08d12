"""Images, tables, histograms, texts and audio that a rank logs at a step: their event, and their paths among a run's artifacts.

Holds: kind, key, step, time and rank can be read off a path, which is built as MLflow's client builds those of `log_image`, so that pages,
SQL and MLflow's client find those of both. A key leads nowhere: its slashes are no folders.
Never: content of a file.
"""

import re
from typing import Final

from pydantic import Field

from trainhouse.events.model.base import Event
from trainhouse.events.model.bounds import SmallCount, TimestampMs
from trainhouse.events.model.ids import AttemptNumber, Epoch, JobId, NodeId
from trainhouse.events.model.labels import Sha256

MAX_MEDIA_BYTES: Final = 16 * 2**20
MOST_KEY_CHARS: Final = 200
KEY_PATTERN: Final = rf"[A-Za-z0-9_\-./ ]{{1,{MOST_KEY_CHARS}}}"
MEDIA_PATH: Final = (
    rf"^(images|tables|histograms|texts|audio)/([A-Za-z0-9_. ~-]{{1,{MOST_KEY_CHARS}}})"
    r"[+]step[+]([0-9]{1,10})[+]timestamp[+]([0-9]{1,15})[+]([0-9]{1,10})-([0-9]{1,6})[.](png|json|txt|wav)$"
)
"""Of media_path: kind, key with ~ for /, step, time in milliseconds since 1970, rank, number among those that it logged, ending."""


def is_key(key: str) -> bool:
    """Whether something can be logged under a key: letters, digits, `_`, `-`, `.`, spaces and `/`, and no part that leads out."""
    return re.fullmatch(KEY_PATTERN, key) is not None and not any(part in ("", ".", "..") for part in key.split("/"))


def media_path(folder: str, key: str, step: int, at_ms: int, rank: int, number: int, ending: str) -> str:
    """Path among a run's artifacts. `folder`: the kind, as MEDIA_PATH has it. `number`: of those that the rank logged under this key."""
    return f"{folder}/{key.replace('/', '~')}+step+{step}+timestamp+{at_ms}+{rank}-{number}.{ending}"


class MediaRecorded(Event, type="trainhouse.tracking.media-recorded.v1"):
    """An image, table, histogram, text or audio of one rank's step is stored, as an artifact of its job."""

    job_id: JobId
    attempt: AttemptNumber
    epoch: Epoch
    rank: SmallCount
    node_id: NodeId | None = None
    path: str = Field(max_length=1024, pattern=MEDIA_PATH, description="path among the job's artifacts, with kind, key and step in it")
    uri: str = Field(min_length=1, max_length=2048, description="place in the object store")
    sha256: Sha256 = Field(description="SHA-256 of the content, in hexadecimal")
    size_bytes: int = Field(ge=0, le=MAX_MEDIA_BYTES, description="size of the content, in bytes")
    at_ms: TimestampMs

    def is_of_rank(self) -> bool:
        """Whether path and place are its rank's and its job's. A rank names them, and might name another's."""
        named = re.fullmatch(MEDIA_PATH, self.path)
        return named is not None and named[5] == str(self.rank) and self.uri.endswith(f"/artifacts/{self.job_id}/{self.sha256}")
