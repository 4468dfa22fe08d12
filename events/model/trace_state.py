"""Export state of a job (traces, lineage): the exporter's memory between two starts.

Holds: it follows from the job's events; written after the peer accepted the export, so a crash repeats the same spans, under the
same ids. Never: read by the control plane.
"""

from pydantic import Field

from trainhouse.events.model.base import Event
from trainhouse.events.model.bounds import MOST_ITEMS, MOST_LISTED, Count, DueMs, ShortText, SmallCount
from trainhouse.events.model.ids import JobId


class JobTraced(Event, type="trainhouse.job.traced.v1"):
    """One job that has not ended, as the exporter knows it. Times are milliseconds since 1970.

    `trace_id`, `parent_id`: in hexadecimal, the parent '' where the submission named none. `started_ms`: by node.
    `nodes`: those of the attempt. `told`: the spans of the attempt that were exported. `running`: the attempt has begun and not ended.
    """

    job_id: JobId
    submission_id: ShortText
    trace_id: str = Field(max_length=32, pattern="^[0-9a-f]{32}$", description="id of the trace, in hexadecimal")
    parent_id: str = Field(
        "", max_length=16, pattern="^([0-9a-f]{16})?$", description="id of the submission's span, in hexadecimal; empty: it named none"
    )
    sampled: bool = Field(True, description="whether spans are exported")
    name: ShortText = Field("", description="name of the job")
    project: ShortText = ""
    user: ShortText = ""
    pool: ShortText = ""
    submitted_ms: DueMs = Field(description="time of the submission, in milliseconds since 1970")
    waits_since_ms: DueMs = Field(description="begin of the current wait, in milliseconds since 1970")
    attempt: SmallCount = 0
    epoch: SmallCount = 0
    nodes: tuple[ShortText, ...] = Field((), max_length=MOST_ITEMS, description="nodes of the attempt")
    begun_ms: DueMs = Field(0, description="begin of the attempt, in milliseconds since 1970")
    allocated_ms: DueMs = Field(0, description="time at which it got its devices, in milliseconds since 1970")
    published_ms: DueMs = Field(0, description="time at which its orders were on the topic, in milliseconds since 1970")
    restored_step: Count | None = Field(None, description="step of the checkpoint that it began from")
    running_ms: DueMs | None = Field(None, description="time of its first step, in milliseconds since 1970")
    started_ms: dict[ShortText, DueMs] = Field(
        default_factory=dict, max_length=MOST_ITEMS, description="time by node at which its ranks had processes, in milliseconds since 1970"
    )
    told: tuple[ShortText, ...] = Field((), max_length=MOST_LISTED, description="spans of the attempt that were exported")
    running: bool = Field(False, description="whether the attempt has begun and not ended")
    finished_ms: DueMs | None = Field(None, description="time of the job's end, in milliseconds since 1970")
