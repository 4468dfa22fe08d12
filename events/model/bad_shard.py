"""Shards of published versions that cannot be read whole: reports of ranks, and the events by which a shard is quarantined and released.

Holds: what a report names is hashes, sizes and a sample's key; a quarantine changes no version, and ends by a release alone.
Never: a sample's content.
"""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field, StringConstraints

from trainhouse.events.model.absence import is_absent, is_no
from trainhouse.events.model.attempt import AttemptReport
from trainhouse.events.model.base import Event, Model
from trainhouse.events.model.bounds import MOST_COUNT, Count, CutText, SmallCount, TimestampMs
from trainhouse.events.model.dataset_names import DatasetName, SplitName
from trainhouse.events.model.ids import JobId, NodeId
from trainhouse.events.model.labels import Label, Sha256

MOST_EVIDENCE_CHARS: Final = 512
EvidenceText = Annotated[str, StringConstraints(max_length=MOST_EVIDENCE_CHARS)]


class ShardFault(StrEnum):
    """Fault of a shard, or of its index, as a rank met it."""

    MISSING = "missing"
    TRUNCATED = "truncated"
    WRONG_HASH = "wrong_hash"
    UNDECODABLE = "undecodable"


class ShardEvidence(Model):
    """Evidence against a shard, by its first bad sample: what was expected, and what was there."""

    fault: ShardFault = Field(description="missing, truncated, wrong_hash (of the index or of a sample) or undecodable")
    sample: EvidenceText = Field("", description="key of the sample, or its number in the split; empty: no sample could be located")
    expected: EvidenceText = Field("", description="what the manifest or the index says of it")
    seen: EvidenceText = Field("", description="what was there, also when it was read again")
    job_id: JobId | None = Field(None, description="job whose rank read it")
    rank: SmallCount | None = Field(None, description="that rank")
    node_id: NodeId | None = Field(None, description="its node")

    @property
    def of_all_samples(self) -> bool:
        """Whether no sample of the shard can be read: it is missing, or its index is bad, so that none could be located."""
        return self.fault is ShardFault.MISSING or not self.sample


class BadShardFound(AttemptReport, type="trainhouse.attempt.bad-shard.v1"):
    """A rank cannot read or decode a sample of a shard, also when it reads it again. Its place in the batch stays empty."""

    rank: SmallCount
    dataset: DatasetName = Field(description="name of the dataset")
    sha256: Sha256 = Field(description="SHA-256 of the version's manifest, in hexadecimal")
    shard: Sha256 = Field(description="SHA-256 of the shard's tar, in hexadecimal")
    split: SplitName = Field(description="split that was read")
    fault: ShardFault = Field(description="fault of the shard")
    sample: EvidenceText = Field("", description="key of the sample, or its number in the split")
    expected: EvidenceText = Field("", description="what the manifest or the index says of it")
    seen: EvidenceText = Field("", description="what was there")
    at_ms: TimestampMs


class TooManyBadSamples(AttemptReport, type="trainhouse.attempt.too-many-bad-samples.v1"):
    """More samples of the whole gang are bad than the job allows: it saves, and leaves its devices for a review."""

    rank: SmallCount
    step: Count
    bad: Count = Field(description="places of batches that stayed empty, of all ranks and attempts of the job")
    allowed: Count = Field(description="how many may, up to this point of the data")
    samples: Count = Field(description="samples of the split, or of all parts of a mixture")
    last: CutText = Field("", description="what was wrong with the last one that this rank met; empty: others met them")
    at_ms: TimestampMs


class BadShardNoted(Event, type="trainhouse.decision.bad-shard-noted.v1"):
    """A job's scheduler takes an attempt's first report of a shard, and asks intake to quarantine it, if its project has the version."""

    report: BadShardFound = Field(description="the report")
    owner: Label | None = Field(
        None, exclude_if=is_absent, description="project that owns the dataset, where it is another's: the report counts for the job alone"
    )

    def subject(self) -> str:
        return str(self.report.job_id)


class QuarantineShard(Event, type="trainhouse.dataset.quarantine-shard.v1", public_input=True):
    """Request to quarantine a shard of a version: new jobs are told of it, people see the evidence.

    `admission_partitions` is filled in by intake.
    """

    dataset: DatasetName = Field(description="name of the dataset")
    sha256: Sha256 = Field(description="SHA-256 of the version's manifest, in hexadecimal")
    shard: Sha256 = Field(description="SHA-256 of the shard's tar, in hexadecimal")
    split: SplitName | None = Field(None, description="split in which it was read")
    evidence: ShardEvidence = Field(description="what was expected and seen, and by whom")
    user: str = Field("unknown", max_length=128)
    admission_partitions: int = Field(1, ge=1, le=1024, description="partitions of admission; filled in by intake")

    def subject(self) -> str:
        return self.dataset


class ReleaseShard(Event, type="trainhouse.dataset.release-shard.v1", public_input=True):
    """Request to take a shard out of quarantine. `admission_partitions` is filled in by intake."""

    dataset: DatasetName = Field(description="name of the dataset")
    sha256: Sha256 = Field(description="SHA-256 of the version's manifest, in hexadecimal")
    shard: Sha256 = Field(description="SHA-256 of the shard's tar, in hexadecimal")
    user: str = Field("unknown", max_length=128)
    reason: str = Field("", max_length=1024, description="why; shown beside the shard")
    admission_partitions: int = Field(1, ge=1, le=1024, description="partitions of admission; filled in by intake")

    def subject(self) -> str:
        return self.dataset


class ShardQuarantined(Event, type="trainhouse.dataset.shard-quarantined.v1"):
    """A shard of a version cannot be read whole. Jobs that are admitted from here on know of it."""

    dataset: DatasetName = Field(description="name of the dataset")
    sha256: Sha256 = Field(description="SHA-256 of the version's manifest, in hexadecimal")
    shard: Sha256 = Field(description="SHA-256 of the shard's tar, in hexadecimal")
    split: SplitName | None = Field(None, exclude_if=is_absent, description="split in which it was read")
    evidence: ShardEvidence = Field(description="what was expected and seen, and by whom")
    number: int = Field(ge=1, le=MOST_COUNT, description="number of this change among those of the version's shards; a lower one is older")
    quarantined_at_ms: TimestampMs = Field(description="time from which it counts, in milliseconds since 1970")
    admission_partitions: int = Field(1, ge=1, le=1024, description="partitions of admission")
    resent: bool = Field(False, exclude_if=is_no, description="whether it was decided before, and goes to admission alone, again")

    def subject(self) -> str:
        return self.dataset


class ShardReleased(Event, type="trainhouse.dataset.shard-released.v1"):
    """A shard of a version is in quarantine no longer."""

    dataset: DatasetName = Field(description="name of the dataset")
    sha256: Sha256 = Field(description="SHA-256 of the version's manifest, in hexadecimal")
    shard: Sha256 = Field(description="SHA-256 of the shard's tar, in hexadecimal")
    user: CutText = "unknown"
    reason: CutText = ""
    number: int = Field(ge=1, le=MOST_COUNT, description="number of this change among those of the version's shards; a lower one is older")
    released_at_ms: TimestampMs = Field(description="time from which it counts, in milliseconds since 1970")
    admission_partitions: int = Field(1, ge=1, le=1024, description="partitions of admission")

    def subject(self) -> str:
        return self.dataset
