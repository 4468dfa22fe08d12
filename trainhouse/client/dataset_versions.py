"""Versions of datasets as their topic has them. Pure.

Holds: a version is there from its first publication; its tags are in the order in which it got them. Events are known by their types, so
that what has the fields of a model is folded as the model is; no model is loaded.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from trainhouse.events.model.dataset_grant_table import GRANT_REVOKED, GRANTED, GrantKey, GrantTable
from trainhouse.events.model.version_names import DatasetNameError, VersionName, is_dataset_name

if TYPE_CHECKING:
    from trainhouse.events import DatasetVersion, DatasetVersionDeprecated, Event, GrantDataset, PublishDataset, ShardQuarantined

PUBLISHED: Final = "trainhouse.dataset.version-published.v1"
DEPRECATED: Final = "trainhouse.dataset.version-deprecated.v1"
QUARANTINED: Final = "trainhouse.dataset.shard-quarantined.v1"
RELEASED: Final = "trainhouse.dataset.shard-released.v1"
CHANGES: Final = (DEPRECATED, QUARANTINED, RELEASED)
TYPES: Final = (PUBLISHED, *CHANGES, GRANTED, GRANT_REVOKED)


@dataclass(slots=True)
class PublishedVersion:
    """One version, with its tags, its publisher, its deprecation where it has one, and its shards in quarantine by their hashes."""

    version: "DatasetVersion"
    created_by: str
    published_at_ms: int
    tags: list[str] = field(default_factory=list)
    deprecated: "DatasetVersionDeprecated | None" = None
    quarantined: dict[str, "ShardQuarantined"] = field(default_factory=dict)


@dataclass(frozen=True)
class DatasetVersions:
    """All versions, in the order of publication within each dataset, and grants of them to other projects."""

    by_name: dict[VersionName, PublishedVersion]
    grants: GrantTable = field(default_factory=GrantTable)

    @classmethod
    def of(cls, events: Iterable["Event"]) -> "DatasetVersions":
        """Folds the topic's events; others are passed over."""
        found: dict[VersionName, PublishedVersion] = {}
        grants = GrantTable()
        for event in events:
            grants.fold(event)
            change: Any = event
            if event.event_type == PUBLISHED:
                version = change.version
                known = found.setdefault(version.name, PublishedVersion(version, change.created_by, change.published_at_ms))
                if change.semver is not None and change.semver not in known.tags:
                    known.tags.append(change.semver)
                continue
            about = found.get(VersionName(change.dataset, sha256=change.sha256)) if event.event_type in CHANGES else None
            if about is None:
                continue
            if event.event_type == QUARANTINED:
                about.quarantined[change.shard] = change
            elif event.event_type == RELEASED:
                about.quarantined.pop(change.shard, None)
            elif about.deprecated is None:
                about.deprecated = change
        return cls(found, grants)

    def find(self, reference: str) -> PublishedVersion | None:
        """The version that `NAME@sha256:…` or `NAME@1.2.0` names; None: there is none. Raises DatasetNameError for another text."""
        name = VersionName.parse(reference)
        if name.sha256:
            return self.by_name.get(name)
        tagged = (v for known, v in self.by_name.items() if known.dataset == name.dataset and name.semver in v.tags)
        return next(tagged, None)

    def before(self, name: VersionName) -> list[PublishedVersion]:
        """The versions of its dataset that were published before this one, the newest first; all of them, where it is not known."""
        earlier: list[PublishedVersion] = []
        for key, version in self.by_name.items():
            if key == name:
                break
            if key.dataset == name.dataset:
                earlier.insert(0, version)
        return earlier

    def predecessor(self, name: VersionName) -> PublishedVersion | None:
        """The newest version before this one that is not deprecated."""
        return next((version for version in self.before(name) if version.deprecated is None), None)

    def has(self, asked: "PublishDataset") -> bool:
        """Whether a version is published as it is asked for already."""
        known = self.by_name.get(asked.version.name)
        return known is not None and known.deprecated is None and (asked.semver is None or asked.semver in known.tags)

    def grantable(self, reference: str) -> tuple[str, str | None] | None:
        """The dataset, and the hash of its version, that `NAME` (all versions), `NAME@sha256:…` or `NAME@1.2.0` names; None: there is none.
        Raises DatasetNameError for another text."""
        if "@" in reference:
            found = self.find(reference)
            return None if found is None else (found.version.dataset, found.version.sha256)
        if not is_dataset_name(reference):
            raise DatasetNameError(f"{reference[:200]!r} is no name of a dataset: write NAME, NAME@sha256:… or NAME@1.2.0")
        return (reference, None) if any(name.dataset == reference for name in self.by_name) else None

    def has_grant(self, asked: "GrantDataset") -> bool:
        """Whether a grant holds as it is asked for already."""
        return GrantKey.of(asked) in self.grants.held
