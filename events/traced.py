"""How far a job was told of to others (traces, lineage): what the exporter must remember between two starts.

Holds: it follows from the job's events; written after what it speaks of was taken, so a crash tells the same things again, under the
same ids. Never: read by the control plane.
"""

from pydantic import Field

from trainhouse.events.base import Event
from trainhouse.events.ids import JobId


class JobTraced(Event, type="trainhouse.job.traced.v1"):
    """One job that has not ended, as the exporter knows it. Times are milliseconds since 1970.

    `trace_id`, `parent_id`: in hexadecimal, the parent '' where the submission named none. `started_ms`: by node.
    `nodes`: those that the attempt was given. `told`: the spans of
    the attempt that were told already. `running`: the attempt has begun and not ended.
    """

    job_id: JobId
    submission_id: str
    trace_id: str = Field(pattern="^[0-9a-f]{32}$")
    parent_id: str = Field("", pattern="^([0-9a-f]{16})?$")
    sampled: bool = True
    name: str = ""
    project: str = ""
    user: str = ""
    pool: str = ""
    submitted_ms: int
    waits_since_ms: int
    attempt: int = 0
    epoch: int = 0
    nodes: tuple[str, ...] = ()
    begun_ms: int = 0
    allocated_ms: int = 0
    published_ms: int = 0
    restored_step: int | None = None
    running_ms: int | None = None
    started_ms: dict[str, int] = Field(default_factory=dict)
    told: tuple[str, ...] = ()
    running: bool = False
    finished_ms: int | None = None
