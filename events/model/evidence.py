"""Evidence on an attempt's end, and failures attributed to a node: parts of the scheduler's state.

Holds: everything is bounded; what came first is kept, since later ends are mostly consequences of the first.
Never: judges (`scheduler.core` does).
"""

from pydantic import Field

from trainhouse.events.model.absence import is_absent
from trainhouse.events.model.attempt import LossDiverged
from trainhouse.events.model.base import Model
from trainhouse.events.model.bounds import MOST_DEVICES, DueMs, Int32, LongText, ShortText, SmallCount, TimestampMs
from trainhouse.events.model.ids import DeviceId, Epoch, JobId, NodeId
from trainhouse.events.model.verdict import DeviceDegraded, FailureCategory, GangHung, Hang

MAX_ENDS = 16
MAX_LAST_WORDS = 2_000
MAX_DEGRADED = 4
MAX_PAST = 32
MAX_BLAMES = 32


class EndedRank(Model):
    """A rank that ended otherwise than well: `exit_code` or `signal`, None where it could not be learnt; `text`: its last words."""

    rank: SmallCount
    node_id: NodeId
    device_id: DeviceId
    exit_code: Int32 | None = None
    signal: Int32 | None = Field(None, description="number of the signal that ended it")
    text: str = Field("", max_length=MAX_LAST_WORDS, description="last lines of its standard error")
    at_ms: TimestampMs


class AttemptEvidence(Model):
    """All that was told of the failure of one attempt, first told first. `failed_at_ms`: when the first of it came, by the journal.

    `lost_incarnation`: the start of the agent that was lost; the node may be back when the attempt is judged.
    """

    ends: tuple[EndedRank, ...] = Field((), max_length=MAX_ENDS)
    launch_error: str = Field("", max_length=MAX_LAST_WORDS)
    launch_node: NodeId | None = None
    lost_node: NodeId | None = None
    lost_incarnation: ShortText = ""
    hung: GangHung | None = None
    degraded: tuple[DeviceDegraded, ...] = Field((), max_length=MAX_DEGRADED)
    diverged: LossDiverged | None = None
    failed_at_ms: TimestampMs | None = None


class JobFailure(Model):
    """An earlier failure of a job, as it was blamed."""

    at_ms: TimestampMs
    category: FailureCategory
    fingerprint: LongText = ""
    node_id: NodeId | None = None
    mine: bool = False
    hang: Hang | None = Field(None, exclude_if=is_absent)


class NodeBlame(Model):
    """A failure that was blamed on a node or a device of it. One incident that ended many gangs is held against it once: `incident`."""

    at_ms: TimestampMs
    job_id: JobId | None = None
    epoch: Epoch | None = None
    category: FailureCategory = Field(description="whose fault it was")
    device_id: DeviceId | None = None
    fingerprint: LongText = Field("", description="equal for equal failures")
    summary: str = Field("", max_length=256, description="sentence for a person")
    incident: LongText = Field("", description="failures of one incident, which count once")


class Probe(Model):
    """The self test that a node is asked for next, or was asked for last. 0: its gangs are to leave it first.

    `devices`: it was asked for these alone; of a node in quarantine, none.
    """

    number: SmallCount = Field(0, description="number of the self test since the node was closed, from 1")
    due_ms: DueMs = Field(description="time of the self test, in milliseconds since 1970")
    asked: bool = Field(False, description="whether the node was asked for it")
    devices: tuple[DeviceId, ...] = Field((), max_length=MOST_DEVICES, description="devices to test; none: the whole node")


class Trust(Model):
    """Trust in a node: recent failures blamed on it, devices that get no new ranks, and the self test that lets it back."""

    blames: tuple[NodeBlame, ...] = Field((), max_length=MAX_BLAMES, description="failures blamed on the node, the newest last")
    closed_devices: tuple[DeviceId, ...] = Field((), max_length=MOST_DEVICES, description="devices that are not given to jobs")
    probe: Probe | None = Field(None, description="self test that is due, or runs")
