"""Grants of datasets: a project may use a version, or all versions, of another project's dataset for one purpose.

Holds: a grant is named by dataset, version (absent: all), project and purpose; it ends by a revocation alone. A dataset's own project needs
none.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from pydantic import Field

from trainhouse.events.model.absence import is_absent, is_no
from trainhouse.events.model.base import Event
from trainhouse.events.model.bounds import MOST_COUNT, CutText, ShortText, TimestampMs
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


class DatasetGranted(Event, type="trainhouse.dataset.granted.v1"):
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


class DatasetGrantRevoked(Event, type="trainhouse.dataset.grant-revoked.v1"):
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


@dataclass(frozen=True, order=True, slots=True)
class GrantKey:
    """Name of a grant. `sha256` is empty where it is one of all versions."""

    dataset: str
    sha256: str
    project: str
    purpose: str

    @classmethod
    def of(cls, event: GrantDataset | RevokeDatasetGrant | DatasetGranted | DatasetGrantRevoked) -> "GrantKey":
        """The grant that an event is about."""
        return cls(event.dataset, event.sha256 or "", event.project, event.purpose)

    @property
    def of_all(self) -> "GrantKey":
        """The same of all versions."""
        return GrantKey(self.dataset, "", self.project, self.purpose)

    @property
    def reference(self) -> str:
        """The version, or the dataset where it is one of all versions."""
        return f"{self.dataset}@sha256:{self.sha256}" if self.sha256 else self.dataset


@dataclass(slots=True)
class GrantTable:
    """Grants that hold, as the topic of datasets has them; and those that were revoked, with their last revocation."""

    held: dict[GrantKey, DatasetGranted] = field(default_factory=dict)
    revoked: dict[GrantKey, DatasetGrantRevoked] = field(default_factory=dict)

    @classmethod
    def of(cls, events: Iterable[Event]) -> "GrantTable":
        """Folds the topic's events; others are passed over."""
        table = cls()
        for event in events:
            table.fold(event)
        return table

    def fold(self, event: Event) -> None:
        """Takes one event of the topic; others, and a change that is older than what is known of its grant, are passed over."""
        if not isinstance(event, DatasetGranted | DatasetGrantRevoked):
            return
        key = GrantKey.of(event)
        known = self.held.get(key) or self.revoked.get(key)
        if known is not None and event.number < known.number:
            return
        if isinstance(event, DatasetGranted):
            self.held[key] = event
            self.revoked.pop(key, None)
        else:
            self.held.pop(key, None)
            self.revoked[key] = event

    def covers(self, key: GrantKey) -> bool:
        """Whether a version may be used by a project for a purpose: by its own grant, or by one of all versions."""
        return key in self.held or key.of_all in self.held

    def revocation(self, key: GrantKey) -> DatasetGrantRevoked | None:
        """The last revocation of a grant that covered it, where none does now."""
        if self.covers(key):
            return None
        found = [event for each in (key, key.of_all) if (event := self.revoked.get(each)) is not None]
        return max(found, key=lambda event: event.number, default=None)
