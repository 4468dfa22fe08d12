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
    trace_id: str = Field(max_length=32, pattern="^[0-9a-f]{32}$")
    parent_id: str = Field("", max_length=16, pattern="^([0-9a-f]{16})?$")
    sampled: bool = True
    name: ShortText = ""
    project: ShortText = ""
    user: ShortText = ""
    pool: ShortText = ""
    submitted_ms: DueMs
    waits_since_ms: DueMs
    attempt: SmallCount = 0
    epoch: SmallCount = 0
    nodes: tuple[ShortText, ...] = Field((), max_length=MOST_ITEMS)
    begun_ms: DueMs = 0
    allocated_ms: DueMs = 0
    published_ms: DueMs = 0
    restored_step: Count | None = None
    running_ms: DueMs | None = None
    started_ms: dict[ShortText, DueMs] = Field(default_factory=dict, max_length=MOST_ITEMS)
    told: tuple[ShortText, ...] = Field((), max_length=MOST_LISTED)
    running: bool = False
    finished_ms: DueMs | None = None
