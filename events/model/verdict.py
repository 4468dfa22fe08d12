"""Verdicts of the failure detector about gangs and devices, and whom a failure is blamed on.

Holds: a verdict carries the evidence for a person and the numbers behind it; it names the attempt by its epoch, or the node by its boot, so
that an old one is never held against what came after. What a verdict says holds until the same thing is lifted, or its attempt is over.
"""

from enum import StrEnum

from pydantic import Field

from trainhouse.events.model.absence import is_absent
from trainhouse.events.model.base import Event, Model
from trainhouse.events.model.bounds import MOST_ITEMS, ComputedRatio, ComputedS, Count, DueMs, LongText, ShortText, SmallCount, TimestampMs
from trainhouse.events.model.ids import AttemptNumber, DeviceId, Epoch, JobId, NodeId, PoolName
from trainhouse.events.model.node import RankActivity

MAX_EVIDENCE_CHARS = 4096


class Verdict(Event):
    """Common fields of verdicts. `evidence` is for a person."""

    pool: PoolName
    at_ms: TimestampMs
    evidence: str = Field("", max_length=MAX_EVIDENCE_CHARS, description="what the verdict rests on, for a person")


class GangVerdict(Verdict):
    """About one attempt of a job."""

    job_id: JobId
    attempt: AttemptNumber
    epoch: Epoch


class GangHung(GangVerdict, type="trainhouse.gang.hung.v1"):
    """No step for longer than the gang's own rhythm explains. `ranks` are those that fell silent first, as far as can be told.

    `activity`: what the rank that made no step for longest said it was at, if all of them still show life. `node_id`: the node whose
    heartbeats say so; it counts where the gang has ranks on it.
    """

    node_id: NodeId | None = Field(
        None, exclude_if=is_absent, description="node whose heartbeats say so; it counts where the gang has ranks on it"
    )
    ranks: tuple[SmallCount, ...] = Field((), max_length=MOST_ITEMS, description="ranks that fell silent first, as far as can be told")
    step: Count | None = None
    silent_s: ComputedS = Field(description="seconds since the last step")
    limit_s: ComputedS = Field(description="seconds after which it counts as hung")
    p99_step_s: ComputedS | None = Field(None, description="99th percentile of the gang's step times, in seconds")
    activity: RankActivity | None = Field(None, description="activity of the rank that made no step for longest, if all show life")


class StragglerDetected(GangVerdict, type="trainhouse.rank.straggler.v1"):
    """A rank takes `slowdown` times as long for its own work as the fastest of its gang, since `since_ms`."""

    rank: SmallCount
    node_id: NodeId
    device_id: DeviceId
    slowdown: ComputedRatio = Field(description="its own work in a step, as a multiple of the fastest rank's")
    since_ms: DueMs


class DataStalled(GangVerdict, type="trainhouse.gang.data-stalled.v1"):
    """A rank spent `wait_share` of the last `window_s` waiting for its data."""

    rank: SmallCount
    wait_share: ComputedRatio = Field(description="share of the window spent waiting for data, from 0 to 1")
    window_s: ComputedS = Field(description="seconds that were looked at")
    since_ms: DueMs


class StoreSlow(GangVerdict, type="trainhouse.gang.store-slow.v1"):
    """Saves held training up for `stall_share` of the last `window_s`: the object store is slow, or saves come too often."""

    stall_share: ComputedRatio = Field(description="share of the window in which saves held training up, from 0 to 1")
    window_s: ComputedS = Field(description="seconds that were looked at")
    since_ms: DueMs


class DeviceFault(StrEnum):
    """Fault of a device."""

    ECC = "ECC"
    THROTTLED = "THROTTLED"
    SLOW_CLOCK = "SLOW_CLOCK"


class DeviceDegraded(Verdict, type="trainhouse.device.degraded.v1"):
    """A device is not what it should be: errors of its memory rise (`value` new ones), it throttles, or its clock fell (`value`: share)."""

    node_id: NodeId
    boot_id: ShortText
    device_id: DeviceId
    fault: DeviceFault = Field(description="kind of fault")
    value: ComputedRatio = Field(description="new memory errors, or the clock's share of its best")
    since_ms: DueMs


class VerdictLifted(Verdict, type="trainhouse.verdict.lifted.v1"):
    """An earlier verdict no longer holds. `of` is its event type; the other fields are its own, as far as it had them."""

    of: ShortText = Field(description="event type of the verdict")
    job_id: JobId | None = None
    epoch: Epoch | None = None
    rank: SmallCount | None = None
    node_id: NodeId | None = None
    device_id: DeviceId | None = None
    fault: DeviceFault | None = Field(None, description="kind of fault")
    since_ms: DueMs

    def subject(self) -> str:
        return str(self.job_id or self.node_id or self.of)


class FailureCategory(StrEnum):
    """Category of an attempt's failure."""

    NODE = "NODE"
    DEVICE = "DEVICE"
    NETWORK = "NETWORK"
    STORAGE = "STORAGE"
    DATA = "DATA"
    USER_CODE = "USER_CODE"
    PLATFORM = "PLATFORM"
    UNKNOWN = "UNKNOWN"


class Hang(Model):
    """Signature of a hang: equal when the gang hangs there again. `ranks`: that kept the others waiting, none where that is not known;
    `collective`: the operation in which the others waited; `stack`: the innermost frames of the first of those ranks.
    """

    ranks: tuple[SmallCount, ...] = Field((), max_length=MOST_ITEMS, description="ranks that kept the others waiting; empty: not known")
    step: Count | None = None
    collective: str = Field("", max_length=256, description="operation in which the others waited")
    stack: str = Field("", max_length=512, description="innermost frames of the first of those ranks")


class FailureBlamed(GangVerdict, type="trainhouse.failure.blamed.v1"):
    """Attribution of an attempt's failure, once all its ranks have ended. `rule` decided it; `fingerprint`: equal for equal ones.

    `node_id`, `device_id`, `rank` and `shard` are the culprit, as far as the category has one. `mine`: it is known to be the fault of
    the job itself, and another attempt would fail the same way.
    """

    category: FailureCategory = Field(description="whose fault it was")
    rule: ShortText = Field(description="rule that decided it")
    summary: str = Field(max_length=1024, description="sentence for a person")
    node_id: NodeId | None = Field(None, description="node that failed, if the category has one")
    device_id: DeviceId | None = Field(None, description="device that failed, if the category has one")
    rank: SmallCount | None = Field(None, description="rank that failed first, if one did")
    shard: LongText | None = Field(None, description="data file that could not be read, if the category has one")
    fingerprint: LongText = Field("", description="equal for equal failures")
    mine: bool = Field(False, description="whether another attempt would fail the same way")
    lost_steps: Count | None = Field(None, description="steps since the last checkpoint, which are made again")
    failed_at_ms: TimestampMs | None = Field(None, description="time of the failure, in milliseconds since 1970")
    hang: Hang | None = Field(None, exclude_if=is_absent, description="signature of the hang, if it was one")
