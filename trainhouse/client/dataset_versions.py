"""Versions of datasets as their topic has them. Pure.

Holds: a version is there from its first publication; its tags are in the order in which it got them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from trainhouse.events import (
    DatasetVersion,
    DatasetVersionDeprecated,
    DatasetVersionPublished,
    Event,
    GrantDataset,
    PublishDataset,
    ShardQuarantined,
    ShardReleased,
)
from trainhouse.events.model.dataset_grant import GrantKey, GrantTable
from trainhouse.events.model.dataset_names import DatasetNameError, VersionName, is_dataset_name


@dataclass(slots=True)
class PublishedVersion:
    """One version, with its tags, its publisher, its deprecation where it has one, and its shards in quarantine by their hashes."""

    version: DatasetVersion
    created_by: str
    published_at_ms: int
    tags: list[str] = field(default_factory=list)
    deprecated: DatasetVersionDeprecated | None = None
    quarantined: dict[str, ShardQuarantined] = field(default_factory=dict)


@dataclass(frozen=True)
class DatasetVersions:
    """All versions, in the order of publication within each dataset, and grants of them to other projects."""

    by_name: dict[VersionName, PublishedVersion]
    grants: GrantTable = field(default_factory=GrantTable)

    @classmethod
    def of(cls, events: Iterable[Event]) -> "DatasetVersions":
        """Folds the topic's events; others are passed over."""
        found: dict[VersionName, PublishedVersion] = {}
        grants = GrantTable()
        for event in events:
            grants.fold(event)
            match event:
                case DatasetVersionPublished():
                    known = found.setdefault(event.version.name, PublishedVersion(event.version, event.created_by, event.published_at_ms))
                    if event.semver is not None and event.semver not in known.tags:
                        known.tags.append(event.semver)
                case DatasetVersionDeprecated():
                    name = VersionName(event.dataset, sha256=event.sha256)
                    if name in found and found[name].deprecated is None:
                        found[name].deprecated = event
                case ShardQuarantined():
                    name = VersionName(event.dataset, sha256=event.sha256)
                    if name in found:
                        found[name].quarantined[event.shard] = event
                case ShardReleased():
                    name = VersionName(event.dataset, sha256=event.sha256)
                    if name in found:
                        found[name].quarantined.pop(event.shard, None)
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

    def newer(self, name: VersionName) -> list[PublishedVersion]:
        """The versions of its dataset that were published after this one and are not deprecated, the oldest first."""
        of_dataset = [(key, version) for key, version in self.by_name.items() if key.dataset == name.dataset]
        begin = next((n + 1 for n, (key, _) in enumerate(of_dataset) if key == name), len(of_dataset))
        return [version for _, version in of_dataset[begin:] if version.deprecated is None]

    def has(self, asked: PublishDataset) -> bool:
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

    def has_grant(self, asked: GrantDataset) -> bool:
        """Whether a grant holds as it is asked for already."""
        return GrantKey.of(asked) in self.grants.held
