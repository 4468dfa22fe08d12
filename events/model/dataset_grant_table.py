"""Grants of datasets that hold, folded from their events. Pure; loads no models.

Holds: events are known by their types, so that it folds what has the fields of a model as well as the model itself.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from trainhouse.events.model.base import Event
    from trainhouse.events.model.dataset_grant import DatasetGranted, DatasetGrantRevoked, GrantDataset, RevokeDatasetGrant

GRANTED: Final = "trainhouse.dataset.granted.v1"
GRANT_REVOKED: Final = "trainhouse.dataset.grant-revoked.v1"


@dataclass(frozen=True, order=True, slots=True)
class GrantKey:
    """Name of a grant. `sha256` is empty where it is one of all versions."""

    dataset: str
    sha256: str
    project: str
    purpose: str

    @classmethod
    def of(cls, event: "GrantDataset | RevokeDatasetGrant | DatasetGranted | DatasetGrantRevoked") -> "GrantKey":
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

    held: dict[GrantKey, "DatasetGranted"] = field(default_factory=dict)
    revoked: dict[GrantKey, "DatasetGrantRevoked"] = field(default_factory=dict)

    @classmethod
    def of(cls, events: Iterable["Event"]) -> "GrantTable":
        """Folds the topic's events; others are passed over."""
        table = cls()
        for event in events:
            table.fold(event)
        return table

    def fold(self, event: "Event") -> None:
        """Takes one event of the topic; others, and a change that is older than what is known of its grant, are passed over."""
        if event.event_type not in (GRANTED, GRANT_REVOKED):
            return
        change: Any = event
        key = GrantKey.of(change)
        known = self.held.get(key) or self.revoked.get(key)
        if known is not None and change.number < known.number:
            return
        if event.event_type == GRANTED:
            self.held[key] = change
            self.revoked.pop(key, None)
        else:
            self.held.pop(key, None)
            self.revoked[key] = change

    def covers(self, key: GrantKey) -> bool:
        """Whether a version may be used by a project for a purpose: by its own grant, or by one of all versions."""
        return key in self.held or key.of_all in self.held

    def revocation(self, key: GrantKey) -> "DatasetGrantRevoked | None":
        """The last revocation of a grant that covered it, where none does now."""
        if self.covers(key):
            return None
        found = [event for each in (key, key.of_all) if (event := self.revoked.get(each)) is not None]
        return max(found, key=lambda event: event.number, default=None)
