"""Positions of its data that each step of a job used, as runs of steps, and the shards that they lie in.

Holds: positions count through the passes (number of the pass × samples of a pass + position within it), so a regular program has one run,
and a run that goes on is reported again with more steps. What is reported of an earlier attempt is what the restored checkpoint says.
"""

from typing import Annotated, Final

from pydantic import Field

from trainhouse.events.model.absence import is_absent
from trainhouse.events.model.base import Event, Model
from trainhouse.events.model.bounds import Count, ShortText, SmallCount, TimestampMs
from trainhouse.events.model.ids import AttemptNumber, Epoch, JobId, NodeId
from trainhouse.events.model.labels import Sha256
from trainhouse.events.model.skipped_data import MOST_SKIPS, SkippedData

MOST_PARTS: Final = 64
MOST_READ_RUNS: Final = 1000
MOST_READ_SHARDS: Final = 500
MOST_STEP_RUNS: Final = 10_000
"""Of all shards in one event, so that it fits a line of a rank's spool; see `workers/session/steps/data_reads.py`."""


class DataPart(Model):
    """One dataset that a loader reads, of several in a mixture."""

    version: ShortText = Field("", description="version of the dataset, NAME@sha256:…; empty: it was not published")
    split: ShortText = Field("", description="its split; empty: it was not published")
    samples: Count = Field(description="its samples")
    weight: Count = Field(1, description="its samples in each cycle of a mixture")


class ReadRun(Model):
    """Steps that used equally many positions, one after another."""

    epoch: Epoch = Field(description="epoch of the attempt that made the steps")
    first_step: Count = Field(description="number of the first step")
    steps: Count = Field(description="number of steps")
    first_position: Count = Field(description="position that the first step began with, counted through the passes")
    per_step: Count = Field(description="positions of one step")
    padded: bool = Field(False, description="whether positions beyond the pass are that pass's again, from its beginning")


class ShardRead(Model):
    """A shard that steps of a stretch read, and in which of these steps it was read: runs of neighbouring steps."""

    shard: Sha256 = Field(description="SHA-256 of the shard's tar, in hexadecimal")
    part: SmallCount = Field(0, description="place of its dataset among the loader's")
    samples: Count = Field(description="samples of it that the stretch read")
    first_steps: Annotated[tuple[Count, ...], Field(max_length=MOST_STEP_RUNS)] = Field(description="first step of each run")
    steps: Annotated[tuple[Count, ...], Field(max_length=MOST_STEP_RUNS)] = Field(description="number of steps of each run")


class ReadStretch(Model):
    """Neighbouring steps of one attempt whose shards are listed together."""

    epoch: Epoch = Field(description="epoch of the attempt that made the steps")
    first_step: Count = Field(description="number of its first step")
    end_step: Count = Field(description="number after that of the last step counted so far")
    shards: tuple[ShardRead, ...] = Field(max_length=MOST_READ_SHARDS, description="shards with anything new")


class DataRead(Event, type="trainhouse.tracking.data-read.v1"):
    """Data that the steps of a job read by one loader. Rank 0 of its gang reports it at the begin, at each save, and each half minute."""

    job_id: JobId
    attempt: AttemptNumber
    epoch: Epoch
    rank: SmallCount
    node_id: NodeId | None = None
    began_step: Count = Field(description="steps that the attempt had behind it when it began: what earlier ones did beyond is thrown away")
    loader: SmallCount = Field(description="number of the loader, in the order in which the program made them")
    tracked: bool = Field(False, description="whether checkpoints have the loader's position")
    samples: Count = Field(description="positions of a pass; 0: a mixture, which is one endless pass")
    seed: ShortText = Field("", description="seed that the order follows from; empty: the dataset's own order")
    order: ShortText = Field("", description="the values that the order follows from, as JSON")
    parts: tuple[DataPart, ...] = Field(max_length=MOST_PARTS, description="datasets that the loader reads")
    runs: tuple[ReadRun, ...] = Field((), max_length=MOST_READ_RUNS, description="runs that are new or longer")
    stretch: ReadStretch | None = Field(None, description="shards of a stretch of steps")
    skipped: tuple[SkippedData, ...] = Field(
        (), max_length=MOST_SKIPS, exclude_if=is_absent, description="data that the job's loader leaves out since its loss diverged"
    )
    at_ms: TimestampMs
