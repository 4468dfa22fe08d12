"""Grants of datasets: a project may use a version, or all versions, of another project's dataset for one purpose.

Holds: a grant is named by dataset, version (absent: all), project and purpose; it ends by a revocation alone. A dataset's own project needs
none.
"""

from pydantic import Field

from trainhouse.events.model.absence import is_absent, is_no
from trainhouse.events.model.base import Event
from trainhouse.events.model.bounds import MOST_COUNT, CutText, ShortText, TimestampMs
from trainhouse.events.model.dataset_grant_table import GRANT_REVOKED, GRANTED
from trainhouse.events.model.dataset_grant_table import GrantKey as GrantKey
from trainhouse.events.model.dataset_grant_table import GrantTable as GrantTable
from trainhouse.events.model.dataset_names import DatasetName, VersionReference
from trainhouse.events.model.ids import EventId, JobId
from trainhouse.events.model.labels import Label, Sha256


class GrantDataset(Event, type="trainhouse.dataset.grant.v1", public_input=True):
    """Request that jobs of another project may use a dataset for a purpose.

    `admission_partitions` is filled in by intake.
    """

    dataset: DatasetName = Field(description="name of the dataset")
    sha256: Sha256 | None = Field(
        None, description="SHA-256 of the version's manifest, in hexadecimal; absent: all versions, later ones too"
    )
    project: Label = Field(description="project that may use it")
    purpose: Label = Field(description="purpose for which it may, one of the version's if it has any")
    user: str = Field("unknown", max_length=128)
    reason: str = Field("", max_length=1024, description="why; kept with the grant")
    admission_partitions: int = Field(1, ge=1, le=1024, description="partitions of admission; filled in by intake")

    def subject(self) -> str:
        return self.dataset


class RevokeDatasetGrant(Event, type="trainhouse.dataset.revoke-grant.v1", public_input=True):
    """Request that ends a grant: no new job is admitted by it, and ranks that run get no further access to the store by it.

    `admission_partitions` is filled in by intake.
    """

    dataset: DatasetName = Field(description="name of the dataset")
    sha256: Sha256 | None = Field(None, description="SHA-256 of the version's manifest, in hexadecimal; absent: the grant of all versions")
    project: Label = Field(description="project that has the grant")
    purpose: Label = Field(description="purpose that it is for")
    user: str = Field("unknown", max_length=128)
    reason: str = Field("", max_length=1024, description="why; kept with the revocation")
    admission_partitions: int = Field(1, ge=1, le=1024, description="partitions of admission; filled in by intake")

    def subject(self) -> str:
        return self.dataset


class DatasetGranted(Event, type=GRANTED):
    """Jobs of a project may use a dataset for a purpose."""

    dataset: DatasetName = Field(description="name of the dataset")
    sha256: Sha256 | None = Field(
        None, exclude_if=is_absent, description="SHA-256 of the version's manifest, in hexadecimal; absent: all versions, later ones too"
    )
    owner: Label = Field(description="project that owns the dataset")
    project: Label = Field(description="project that may use it")
    purpose: Label = Field(description="purpose for which it may")
    user: ShortText = "unknown"
    reason: CutText = Field("", exclude_if=is_absent)
    number: int = Field(ge=1, le=MOST_COUNT, description="number of this change among those of the dataset's grants; a lower one is older")
    granted_at_ms: TimestampMs = Field(description="time from which it counts, in milliseconds since 1970")
    admission_partitions: int = Field(1, ge=1, le=1024, description="partitions of admission")
    resent: bool = Field(False, exclude_if=is_no, description="whether it was decided before, and goes to admission alone, again")

    def subject(self) -> str:
        return self.dataset


class DatasetGrantRevoked(Event, type=GRANT_REVOKED):
    """A grant is over: no new job is admitted by it, and ranks that run get no further access to the store by it."""

    dataset: DatasetName = Field(description="name of the dataset")
    sha256: Sha256 | None = Field(
        None, exclude_if=is_absent, description="SHA-256 of the version's manifest, in hexadecimal; absent: it was one of all versions"
    )
    owner: Label = Field(description="project that owns the dataset")
    project: Label = Field(description="project that had the grant")
    purpose: Label = Field(description="purpose that it was for")
    user: ShortText = "unknown"
    reason: CutText = Field("", exclude_if=is_absent)
    number: int = Field(ge=1, le=MOST_COUNT, description="number of this change among those of the dataset's grants; a lower one is older")
    revoked_at_ms: TimestampMs = Field(description="time from which it counts, in milliseconds since 1970")
    admission_partitions: int = Field(1, ge=1, le=1024, description="partitions of admission")

    def subject(self) -> str:
        return self.dataset


class DatasetAccessRefused(Event, type="trainhouse.dataset.access-refused.v1"):
    """A job named another project's dataset without a grant, and was refused."""

    reference: VersionReference = Field(description="version as the job named it")
    owner: Label = Field(description="project that owns the dataset")
    project: Label = Field(description="project of the job")
    purpose: Label | None = Field(None, exclude_if=is_absent, description="purpose that the job named; absent: none")
    user: ShortText = "unknown"
    job_id: JobId = Field(description="job that was refused")
    submission_id: EventId = Field(description="event id of its submission")
    reason: CutText = Field(description="refusal, as its submitter reads it")
    refused_at_ms: TimestampMs = Field(description="time of the refusal, in milliseconds since 1970")

    def subject(self) -> str:
        return self.project
