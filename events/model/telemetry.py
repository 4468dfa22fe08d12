"""High-volume events: metrics and log lines, many in one record.

Holds: `[start, end)` is the byte range of the rank's spool or log file that the record was cut from; readers trim overlaps with it,
since a restarted agent cuts differently. These topics never pass through a stream processor.
"""

from typing import Annotated

from pydantic import Field

from trainhouse.events.model.base import Event
from trainhouse.events.model.bounds import MOST_ITEMS, ByteCount, DueMs, InputText, Int64, LongText, Metric, SmallCount, TimestampMs
from trainhouse.events.model.ids import AttemptNumber, Epoch, JobId, NodeId

Column = Annotated[tuple[Metric | None, ...], Field(max_length=MOST_ITEMS)]


class FileRange(Event):
    """A batch cut from one file of one rank of one attempt."""

    job_id: JobId
    attempt: AttemptNumber
    epoch: Epoch
    rank: SmallCount
    node_id: NodeId
    start: ByteCount = Field(description="byte of the file at which the batch begins")
    end: ByteCount = Field(description="byte of the file before which it ends")


class StepMetrics(FileRange, type="trainhouse.metrics.step.v1"):
    """Points of a rank, by column: `offsets[i]` is where point i begins in its stream; None in a metric means no value there.

    `stream`: the rank's spool, or what else the points were cut from, such as one request that may come again (offsets count its points).
    """

    stream: str = Field(
        "metrics",
        max_length=128,
        pattern=r"^[A-Za-z0-9._:-]{1,128}$",
        description="file of the points: the rank's spool, or a request that may come again",
    )
    steps: tuple[Int64, ...] = Field(max_length=MOST_ITEMS, description="step of each point")
    times_ms: tuple[DueMs, ...] = Field(max_length=MOST_ITEMS, description="time of each point, in milliseconds since 1970")
    offsets: tuple[ByteCount, ...] = Field(max_length=MOST_ITEMS, description="byte at which each point begins in its stream")
    metrics: dict[InputText, Column] = Field(
        max_length=MOST_ITEMS, description="values of each metric, one for each point; none where a point has no value of it"
    )


class LogLines(FileRange, type="trainhouse.log.lines.v1"):
    """Lines of a rank's output; `offsets[i]` is where line i begins in its file. Over-long lines are cut and say so."""

    stream: str = Field(
        max_length=16, pattern=r"^(stdout|stderr|stacks)$", description="stacks: its Python stack when its gang was found to hang"
    )
    lines: tuple[LongText, ...] = Field(max_length=MOST_ITEMS, description="lines without their ends")
    offsets: tuple[ByteCount, ...] = Field(max_length=MOST_ITEMS, description="byte at which each line begins in its file")
    read_at_ms: TimestampMs = Field(description="time at which the agent read them, in milliseconds since 1970")
