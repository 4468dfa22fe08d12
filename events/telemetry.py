"""High-volume events: metrics and log lines, many in one record.

Holds: `[start, end)` is the byte range of the rank's spool or log file that the record was cut from; readers trim overlaps with it,
since a restarted agent cuts differently. These topics never pass through a stream processor.
"""

from pydantic import Field

from trainhouse.events.base import Event
from trainhouse.events.ids import AttemptNumber, Epoch, JobId, NodeId


class FileRange(Event):
    """A batch cut from one file of one rank of one attempt."""

    job_id: JobId
    attempt: AttemptNumber
    epoch: Epoch
    rank: int = Field(ge=0)
    node_id: NodeId
    start: int = Field(ge=0)
    end: int = Field(ge=0)


class StepMetrics(FileRange, type="trainhouse.metrics.step.v1"):
    """Points of a rank, by column: `offsets[i]` is where point i begins in its stream; None in a metric means no value there.

    `stream`: the rank's spool, or what else the points were cut from, such as one request that may come again (offsets count its points).
    """

    stream: str = Field("metrics", pattern=r"^[A-Za-z0-9._:-]{1,128}$")
    steps: tuple[int, ...]
    times_ms: tuple[int, ...]
    offsets: tuple[int, ...]
    metrics: dict[str, tuple[float | None, ...]]


class LogLines(FileRange, type="trainhouse.log.lines.v1"):
    """Lines of a rank's output; `offsets[i]` is where line i begins in its file. Over-long lines are cut and say so."""

    stream: str = Field(pattern=r"^(stdout|stderr|stacks)$", description="stacks: its Python stack when its gang was found to hang")
    lines: tuple[str, ...]
    offsets: tuple[int, ...]
    read_at_ms: int
