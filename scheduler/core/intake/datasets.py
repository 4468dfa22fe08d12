"""Versions of datasets that the directory knows: which a job may name, and which a publisher may add.

Holds: pure. A version's facts never change, but that it may become deprecated, for ever; a semver tag names the version that had it first;
a name belongs to the project that first published under it, and jobs of others use it by a grant alone (`grant_rules`). Contents that a
project published under several names may be used for what all of these allow. All of it together is bounded, tags and reasons included, and
no project takes more than it leaves for all others: each partition keeps it in every snapshot.
From SIZES_SINCE on it also holds sizes of splits, schemas and shards of which no sample can be read, each where events have said it.
Never: looks at a manifest or a shard: who publishes has written them before.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from trainhouse.events import (
    DataReference,
    DatasetGranted,
    DatasetGrantRevoked,
    DatasetVersion,
    DatasetVersionDeprecated,
    DatasetVersionPublished,
    DeprecateDataset,
    JobSpec,
    PublishDataset,
    QuarantineShard,
    ReleaseShard,
    ShardQuarantined,
    ShardReleased,
)
from trainhouse.events.model.dataset import DataField, LostShard, ShardsInQuarantine, schema_bytes
from trainhouse.events.model.dataset_grant import GrantKey
from trainhouse.events.model.ids import JobId
from trainhouse.events.model.labels import MOST_QUARANTINED
from trainhouse.events.model.spec import DEFAULT_MAX_BAD
from trainhouse.events.model.version_names import DatasetNameError, VersionName
from trainhouse.scheduler.core.intake.dataset_grants import Grants

# The level from which sizes, schemas and lost shards of versions are known, and specs may ask for a schema.
SIZES_SINCE: Final = 14
MAX_VERSIONS: Final = 20_000
MAX_BYTES: Final = 16 * 1024 * 1024
MAX_TAGS: Final = 64
MAX_LISTED: Final = 10
_SHOWN_CHARS: Final = 12
# Beside its texts, a version takes so much in a snapshot: hashes, counts and JSON around them.
_ROW_BYTES: Final = 256
# The same of a tag, or of a shard in quarantine: a hash.
_TAG_BYTES: Final = 72
# A split's name and numbers, or a lost shard's hash and split.
_SPLIT_BYTES: Final = 32
_LOST_BYTES: Final = 144
# Counted of a version from the beginning, so that it can be deprecated when all is full, for a reason of so many bytes.
REASON_BYTES: Final = 256


@dataclass(frozen=True, slots=True)
class VersionFacts:
    """Facts of a version that decisions need. `deprecated`: why it is; None where it is not. `tags` and `quarantined` (shards): sorted.

    `shard_changes`: number of the last change to its shards, by which a partition knows what is newer than its copy. `sizes`: samples and
    shards of each of `splits`; empty where none were noted. `lost`: split and shard of those in quarantine of which nothing can be read.
    """

    project: str
    schema_hash: str
    splits: tuple[str, ...]
    purposes: tuple[str, ...]
    row_count: int
    deprecated: str | None = None
    tags: tuple[str, ...] = ()
    quarantined: tuple[str, ...] = ()
    shard_changes: int = 0
    sizes: tuple[tuple[int, int], ...] = ()
    lost: tuple[tuple[str, str], ...] = ()

    @property
    def size_bytes(self) -> int:
        """Bytes that it takes in a snapshot, about, with its tags; a short reason is counted before there is one."""
        texts = sum(len(text.encode()) for text in (self.project, *self.splits, *self.purposes, *self.tags))
        return (
            _ROW_BYTES
            + texts
            + _TAG_BYTES * (len(self.tags) + len(self.quarantined))
            + _SPLIT_BYTES * len(self.sizes)
            + _LOST_BYTES * len(self.lost)
            + max(REASON_BYTES, len((self.deprecated or "").encode()))
        )

    @property
    def of_contents(self) -> "VersionFacts":
        """The facts that the manifest alone decides."""
        return replace(self, deprecated=None, tags=(), quarantined=(), shard_changes=0, sizes=(), lost=())


@dataclass(frozen=True, slots=True)
class Held:
    """Versions that are held, and their bytes."""

    count: int = 0
    size_bytes: int = 0

    def plus(self, count: int, size_bytes: int) -> "Held":
        """With so many more."""
        return Held(self.count + count, self.size_bytes + size_bytes)


def facts_of(version: DatasetVersion, *, sized: bool = False) -> VersionFacts:
    """The facts that are kept of a version; `sized`: with the sizes of its splits."""
    splits = tuple(sorted(version.splits))
    sizes = tuple((version.splits[name].samples, version.splits[name].shards) for name in splits) if sized else ()
    return VersionFacts(version.project, version.schema_hash, splits, version.purposes, version.row_count, sizes=sizes)


class Datasets:
    """Versions by dataset and hash, tags by dataset and semver. A fork shares all until one of both changes, which copies it first."""

    def __init__(self) -> None:
        # By dataset in order of publication: the first one's project owns the name.
        self._versions: dict[str, dict[str, VersionFacts]] = {}
        self._tags: dict[str, dict[str, str]] = {}
        # Datasets with contents of this hash; by project what it holds, None standing for all.
        self._named: dict[str, tuple[str, ...]] = {}
        self._held: dict[str | None, Held] = {}
        # By schema hash: the fields, where they are known, and the projects with versions of it.
        self._schemas: dict[str, tuple[DataField, ...]] = {}
        self._schema_projects: dict[str, tuple[str, ...]] = {}
        # By dataset what other projects may use.
        self._grants: dict[str, Grants] = {}
        # Whether the tables above are its own, and of which datasets the rows are.
        self._owned = True
        self._owned_rows: set[str] = set()

    def fork(self) -> "Datasets":
        """Another one that changes apart from this one."""
        fork = Datasets()
        fork._versions, fork._tags, fork._named, fork._held = self._versions, self._tags, self._named, self._held
        fork._schemas, fork._schema_projects = self._schemas, self._schema_projects
        fork._grants = self._grants
        self._owned = fork._owned = False
        self._owned_rows = set()
        return fork

    def _own(self, dataset: str) -> None:
        """Makes the tables, and a dataset's rows, its own before they change."""
        if not self._owned:
            self._versions, self._tags = dict(self._versions), dict(self._tags)
            self._named, self._held, self._grants = dict(self._named), dict(self._held), dict(self._grants)
            self._schemas, self._schema_projects = dict(self._schemas), dict(self._schema_projects)
            self._owned = True
        if dataset not in self._owned_rows:
            self._versions[dataset] = dict(self._versions.get(dataset, {}))
            self._tags[dataset] = dict(self._tags.get(dataset, {}))
            self._owned_rows.add(dataset)

    def put(self, version: DatasetVersion, semver: str | None, *, sized: bool = False) -> None:
        """Enters a version and its tag; what is known already stays as it is. `sized`: with the sizes of its splits, and its fields."""
        known = self.get(version.dataset, version.sha256)
        if known is None:
            self._enter(version.dataset, version.sha256, facts_of(version, sized=sized))
        elif sized and not known.sizes:
            self._enter(version.dataset, version.sha256, replace(known, sizes=facts_of(version, sized=True).sizes))
        if sized and version.fields:
            self._learn(version.dataset, version.schema_hash, version.fields)
        if semver is not None and self.tagged(version.dataset, semver) is None:
            self._tag(version.dataset, version.sha256, semver)

    def deprecate(self, dataset: str, sha256: str, reason: str) -> None:
        """No new job may name the version; one that is not known, or deprecated already, stays as it is."""
        facts = self.get(dataset, sha256)
        if facts is not None and facts.deprecated is None:
            self._enter(dataset, sha256, replace(facts, deprecated=reason))

    def change_shard(self, change: ShardQuarantined | ShardReleased, *, sized: bool = False) -> None:
        """Puts a shard in quarantine, or takes it out, if the change is newer than what is known. `sized`: notes whether it is lost."""
        facts = self.get(change.dataset, change.sha256)
        if facts is not None:
            others = {each for each in facts.quarantined if each != change.shard}
            lost = {each for each in facts.lost if each[1] != change.shard}
            if isinstance(change, ShardQuarantined):
                split = change.split or (facts.splits[0] if len(facts.splits) == 1 else None)
                if sized and split in facts.splits and change.evidence.of_all_samples:
                    lost.add((split, change.shard))
                others.add(change.shard)
            self.set_quarantine(change.dataset, change.sha256, others, change.number, lost)

    def set_quarantine(self, dataset: str, sha256: str, shards: Iterable[str], number: int, lost: Iterable[tuple[str, str]] = ()) -> None:
        """Replaces a version's shards in quarantine, if the change with this number is newer than what is known. `lost`: split and shard
        of those of which nothing can be read."""
        facts = self.get(dataset, sha256)
        if facts is not None and number > facts.shard_changes:
            changed = replace(facts, quarantined=tuple(sorted(shards)), shard_changes=number, lost=tuple(sorted(lost)))
            self._enter(dataset, sha256, changed)

    def shard_changes(self, dataset: str, sha256: str) -> int:
        """The number of the last change to a version's shards; 0: none was, or the version is not known."""
        facts = self.get(dataset, sha256)
        return 0 if facts is None else facts.shard_changes

    def grants(self, dataset: str) -> Grants:
        """Grants of a dataset to other projects."""
        return self._grants.get(dataset, Grants())

    def change_grant(self, change: DatasetGranted | DatasetGrantRevoked) -> None:
        """Adds a grant, or takes one away, if the change is newer than what is known; of a dataset that is not known, nothing."""
        known = self.grants(change.dataset)
        if change.number > known.number:
            self._set_grants(change.dataset, known.changed(change))

    def _set_grants(self, dataset: str, grants: Grants) -> None:
        owner = self.owner(dataset)
        if owner is None:
            return
        self._own(dataset)
        more_bytes = grants.size_bytes - self.grants(dataset).size_bytes
        for holder in (None, owner):
            self._held[holder] = self.held(holder).plus(0, more_bytes)
        self._grants[dataset] = grants

    def _tag(self, dataset: str, sha256: str, semver: str) -> None:
        facts = self._versions[dataset][sha256]
        self._enter(dataset, sha256, replace(facts, tags=tuple(sorted((*facts.tags, semver)))))
        self._tags[dataset][semver] = sha256

    def _enter(self, dataset: str, sha256: str, facts: VersionFacts) -> None:
        self._own(dataset)
        before = self._versions[dataset].get(sha256)
        more_bytes = facts.size_bytes - (before.size_bytes if before is not None else 0)
        for holder in (None, facts.project):
            self._held[holder] = self.held(holder).plus(before is None, more_bytes)
        if before is None:
            self._named[sha256] = (*self._named.get(sha256, ()), dataset)
            self._count_schema(facts.project, facts.schema_hash)
        self._versions[dataset][sha256] = facts

    def _count_schema(self, project: str, schema_hash: str) -> None:
        """Notes that a project has a version with this schema, which counts for it once."""
        projects = self._schema_projects.get(schema_hash, ())
        if project not in projects:
            self._schema_projects[schema_hash] = (*projects, project)
            if schema_hash in self._schemas:
                self._held[project] = self.held(project).plus(0, schema_bytes(self._schemas[schema_hash]))

    def _learn(self, dataset: str, schema_hash: str, fields: tuple[DataField, ...]) -> None:
        if schema_hash in self._schemas:
            return
        self._own(dataset)
        self._schemas[schema_hash] = fields
        for holder in (None, *self._schema_projects.get(schema_hash, ())):
            self._held[holder] = self.held(holder).plus(0, schema_bytes(fields))

    def schema(self, schema_hash: str) -> tuple[DataField, ...]:
        """The fields that have this hash; empty: they are not known."""
        return self._schemas.get(schema_hash, ())

    def more_schema_bytes(self, version: DatasetVersion) -> int:
        """Bytes that a version's fields would add to what its project holds."""
        known = version.schema_hash in self._schemas
        counted = known and version.project in self._schema_projects.get(version.schema_hash, ())
        return 0 if counted else schema_bytes(self._schemas[version.schema_hash] if known else version.fields)

    def get(self, dataset: str, sha256: str) -> VersionFacts | None:
        """The facts of a version; None: it is not known."""
        return self._versions.get(dataset, {}).get(sha256)

    def versions(self, dataset: str) -> list[VersionFacts]:
        """Facts of the versions of a dataset that are not deprecated."""
        return [facts for facts in self._versions.get(dataset, {}).values() if facts.deprecated is None]

    def same_contents(self, project: str, sha256: str) -> dict[str, VersionFacts]:
        """Facts by dataset, sorted, of the versions of these contents that a project published."""
        named = {dataset: self._versions[dataset][sha256] for dataset in sorted(self._named.get(sha256, ()))}
        return {dataset: facts for dataset, facts in named.items() if facts.project == project}

    def tagged(self, dataset: str, semver: str | None) -> str | None:
        """The hash of the version that has a tag; None: none has."""
        return self._tags.get(dataset, {}).get(semver) if semver is not None else None

    def completes(self, version: DatasetVersion) -> bool:
        """Whether the version is known, but not the sizes or the fields that are given here."""
        known = self.get(version.dataset, version.sha256)
        return known is not None and (not known.sizes or (bool(version.fields) and version.schema_hash not in self._schemas))

    def is_news(self, version: DatasetVersion, semver: str | None) -> bool:
        """Whether the version, or that its dataset has this tag, is not known yet."""
        known = self.get(version.dataset, version.sha256) is not None
        return not known or (semver is not None and self.tagged(version.dataset, semver) is None)

    def owner(self, dataset: str) -> str | None:
        """The project that a name belongs to; None: it is free."""
        known = self._versions.get(dataset)
        return next(iter(known.values())).project if known else None

    def held(self, project: str | None) -> Held:
        """Versions and bytes of a project; of None, all."""
        return self._held.get(project, Held())

    def full_with(self, project: str, count: int, size_bytes: int) -> bool:
        """Whether so much more of a project is too much: of all, or more than it leaves for others."""
        every, own = self.held(None).plus(count, size_bytes), self.held(project)
        left_count, left_bytes = MAX_VERSIONS - every.count, MAX_BYTES - every.size_bytes
        return left_count < 0 or left_bytes < 0 or (count > 0 and own.count > left_count) or own.size_bytes > left_bytes

    def covers(self, spec: JobSpec, dataset: str, sha256: str) -> bool:
        """Whether a job's project may use a version for the job's purpose: it owns the dataset, or a grant covers the version."""
        if self.owner(dataset) == spec.project:
            return True
        purpose = (spec.data.purpose if spec.data is not None else None) or spec.purpose
        return purpose is not None and self.grants(dataset).covers(GrantKey(dataset, sha256, spec.project, purpose))

    def listed(self, dataset: str, spec: JobSpec | None = None) -> str:
        """The newest versions of a dataset that jobs may name, by tag where they have one; with a job's spec, those that it may."""
        rows = reversed(self._versions.get(dataset, {}).items())
        usable = [
            (sha256, facts) for sha256, facts in rows if facts.deprecated is None and (spec is None or self.covers(spec, dataset, sha256))
        ]
        texts = [f"{dataset}@{facts.tags[-1]}" if facts.tags else f"{dataset}@sha256:{sha256}" for sha256, facts in usable[:MAX_LISTED]]
        return ", ".join(texts) + (" …" if len(usable) > MAX_LISTED else "")

    def dump(self) -> dict[str, Any]:
        """As JSON; empty where nothing was published."""
        if not self._versions:
            return {}
        rows = {
            dataset: [
                [sha256, f.project, f.schema_hash, list(f.splits), list(f.purposes), f.row_count, f.deprecated]
                for sha256, f in versions.items()
            ]
            for dataset, versions in self._versions.items()
        }
        quarantined = {
            dataset: shards
            for dataset, versions in self._versions.items()
            if (shards := {sha256: [f.shard_changes, *f.quarantined] for sha256, f in versions.items() if f.shard_changes})
        }
        tags = {dataset: tags for dataset, tags in self._tags.items() if tags}
        grants = {dataset: [found.number, *found.rows] for dataset, found in self._grants.items()}
        # Absent in the states of before, which had none.
        later = {
            "quarantined": quarantined,
            "grants": grants,
            "sizes": self._dumped("sizes"),
            "lost": self._dumped("lost"),
            "schemas": {sha256: [[f.name, f.type, f.optional] for f in fields] for sha256, fields in self._schemas.items()},
        }
        return {"versions": rows, "tags": tags} | {name: dumped for name, dumped in later.items() if dumped}

    def _dumped(self, name: str) -> dict[str, dict[str, Any]]:
        """A fact by dataset and hash, of the versions that have it."""
        found = dict[str, dict[str, Any]]()
        for dataset, versions in self._versions.items():
            if values := {sha256: value for sha256, facts in versions.items() if (value := getattr(facts, name))}:
                found[dataset] = values
        return found

    @classmethod
    def load(cls, dumped: Mapping[str, Any]) -> "Datasets":
        """Reads it back."""
        found = cls()
        for dataset, rows in dumped.get("versions", {}).items():
            for sha256, project, schema_hash, splits, purposes, row_count, deprecated in rows:
                sizes = tuple((samples, shards) for samples, shards in dumped.get("sizes", {}).get(dataset, {}).get(sha256, ()))
                facts = VersionFacts(project, schema_hash, tuple(splits), tuple(purposes), row_count, deprecated, sizes=sizes)
                found._enter(dataset, sha256, facts)
        for dataset, tags in dumped.get("tags", {}).items():
            for semver, sha256 in tags.items():
                found._tag(dataset, sha256, semver)
        for dataset, shards_of in dumped.get("quarantined", {}).items():
            for sha256, (number, *shards) in shards_of.items():
                lost = dumped.get("lost", {}).get(dataset, {}).get(sha256, ())
                found.set_quarantine(dataset, sha256, shards, number, [(split, shard) for split, shard in lost])
        for schema_hash, fields in dumped.get("schemas", {}).items():
            found._schemas[schema_hash] = tuple(DataField(name=name, type=kind, optional=optional) for name, kind, optional in fields)
            for holder in (None, *found._schema_projects.get(schema_hash, ())):
                found._held[holder] = found.held(holder).plus(0, schema_bytes(found._schemas[schema_hash]))
        for dataset, (number, *rows) in dumped.get("grants", {}).items():
            found._set_grants(dataset, Grants.load(dataset, number, rows))
        return found


def why_not_published(datasets: Datasets, asked: PublishDataset) -> str:
    """Returns the reason for which a version is not published at all; empty if it is, with or without its tag."""
    version, facts = asked.version, facts_of(asked.version)
    owner, known = datasets.owner(version.dataset), datasets.get(version.dataset, version.sha256)
    if owner is not None and owner != version.project:
        return f"dataset {version.dataset} belongs to project {owner}; publish under another name, or in that project"
    if known is not None and known.deprecated is not None:
        return f"{version.name} is deprecated, for ever: {known.deprecated}. Publish other contents"
    for dataset, same in datasets.same_contents(version.project, version.sha256).items():
        if same.of_contents != facts:
            purposes = ", ".join(same.purposes) or "any"
            return (
                f"{version.name} has the hash of {dataset}@sha256:{version.sha256}, and other facts (that one's purposes: {purposes}); "
                "facts are those of the manifest: publish with `trainhouse data publish`, which reads them there"
            )
    size_bytes = replace(facts, tags=() if asked.semver is None else (asked.semver,)).size_bytes + datasets.more_schema_bytes(version)
    if known is None and datasets.full_with(version.project, 1, size_bytes):
        return (
            f"dataset {version.dataset}: so many versions are known that no other of project {version.project} can be; "
            "publish larger versions, less often"
        )
    return ""


def why_not_tagged(datasets: Datasets, asked: PublishDataset) -> str:
    """Returns the reason for which a version is published without its tag; empty where it gets it, or has it."""
    dataset, sha256, semver = asked.version.dataset, asked.version.sha256, asked.semver
    holder = datasets.tagged(dataset, semver)
    if semver is None or holder == sha256:
        return ""
    if holder is not None:
        return (
            f"{asked.version.name} is published, but not as {semver}: {dataset}@{semver} is {dataset}@sha256:{holder}, which was "
            "published first. Publish it again with another --version"
        )
    known = datasets.get(dataset, sha256)
    if known is None:
        return ""
    if len(known.tags) >= MAX_TAGS:
        listed = ", ".join(known.tags[-MAX_LISTED:])
        return f"{asked.version.name} is published, but not as {semver}: it has {MAX_TAGS} tags; name it by one of them: … {listed}"
    if datasets.full_with(known.project, 0, _TAG_BYTES + len(semver.encode())):
        return f"{asked.version.name} is published, but not as {semver}: so much is known of datasets that no tag fits; name it by its hash"
    return ""


def why_not_deprecated(datasets: Datasets, asked: DeprecateDataset) -> str:
    """Returns the reason for which a version is not deprecated; empty if it is, or was."""
    facts = datasets.get(asked.dataset, asked.sha256)
    if facts is None:
        return unknown_version(f"{asked.dataset}@sha256:{asked.sha256}", "deprecated")
    more_bytes = len(asked.reason.encode()) - REASON_BYTES
    if facts.deprecated is None and more_bytes > 0 and datasets.full_with(facts.project, 0, more_bytes):
        return (
            f"{asked.dataset}@sha256:{asked.sha256} is not deprecated: so much is known of datasets that the reason does not fit; "
            f"give one of at most {REASON_BYTES} bytes"
        )
    return ""


def why_not_quarantined(datasets: Datasets, asked: QuarantineShard) -> str:
    """Returns the reason for which a shard is not quarantined; empty if it is, or was."""
    facts = datasets.get(asked.dataset, asked.sha256)
    name = f"{asked.dataset}@sha256:{asked.sha256}"
    if facts is None:
        return unknown_version(name, "quarantined")
    if asked.shard in facts.quarantined:
        return ""
    if len(facts.quarantined) >= MOST_QUARANTINED:
        return (
            f"shard {asked.shard} of {name} is not quarantined: {MOST_QUARANTINED} shards of that version are already; publish it again "
            "from its source, or `trainhouse data deprecate` it"
        )
    if datasets.full_with(facts.project, 0, _TAG_BYTES):
        return f"shard {asked.shard} of {name} is not quarantined: so much is known of datasets that it does not fit"
    return ""


def why_not_released(datasets: Datasets, asked: ReleaseShard) -> str:
    """Returns the reason for which a shard is not released; empty if it is."""
    facts = datasets.get(asked.dataset, asked.sha256)
    name = f"{asked.dataset}@sha256:{asked.sha256}"
    if facts is None:
        return unknown_version(name, "released")
    if asked.shard not in facts.quarantined:
        return f"shard {asked.shard} of {name} is not in quarantine; `trainhouse data quarantine list {name}` shows those that are"
    return ""


def unknown_version(name: str, done: str) -> str:
    """The sentence for a request about a version that is not known."""
    return f"there is no version {name}; `trainhouse data list` shows what there is. Nothing was {done}"


def why_not_usable(datasets: Datasets, spec: JobSpec, owner: str) -> str:
    """Returns the reason for which a job may not use the version that it names, of a dataset of `owner`; empty if it may, or names none."""
    data = spec.data
    if data is None or data.dataset is None:
        return ""
    try:
        sha256 = resolved_sha256(datasets, data.dataset, owner)
    except DatasetNameError as error:
        return f"spec.data.dataset: {error}"
    dataset = VersionName.parse(data.dataset).dataset
    facts = datasets.get(dataset, sha256)
    assert facts is not None, "a version that was resolved is known"
    if facts.deprecated is not None:
        others = datasets.listed(dataset, spec)
        way_out = f"Name one of: {others}" if others else f"Publish another version: `trainhouse data publish {dataset} PATH`"
        if not others and owner != spec.project:
            way_out = f"Ask its owner, project {owner}, for a grant of another version"
        return f"spec.data.dataset: {data.dataset} is deprecated: {facts.deprecated}. {way_out}"
    if data.split is not None and data.split not in facts.splits:
        return f"spec.data.split: {data.dataset} has no split {data.split}; name one of: {', '.join(facts.splits)}"
    if reason := why_unhealthy(datasets, spec, data, facts) or why_schema_breaks(datasets, spec, data, facts, owner):
        return reason
    # Of two partitions, each may have decided of one name before it knew of the other: so each name's purposes count, in whatever order.
    alike = datasets.same_contents(owner, sha256).values()
    return next((reason for same in alike if (reason := _why_not_purpose(same, data, spec.purpose))), "")


def why_unhealthy(datasets: Datasets, spec: JobSpec, data: DataReference, facts: VersionFacts) -> str:
    """Returns the reason for which so much of a version is lost that the job would be stopped for a review; empty if it would not, as far
    as is known. Shards of a split are of about equal size, so each has its share of the samples."""
    assert data.dataset is not None, "the facts are of a version"
    max_bad = DEFAULT_MAX_BAD if data.max_bad is None else data.max_bad
    for split, (samples, shards) in zip(facts.splits, facts.sizes, strict=bool(facts.sizes)):
        # Who reports a shard names it by hash alone, and intake has no list of a split's: more than it has cannot be lost.
        lost = [shard for of, shard in facts.lost if of == split][:shards]
        bad = len(lost) * samples // max(1, shards)
        if data.split not in (None, split) or not lost or bad <= (max(1.0, max_bad * samples) if max_bad else 0.0):
            continue
        others = datasets.listed(VersionName.parse(data.dataset).dataset, spec)
        another_split = "" if data.split is not None or len(facts.splits) == 1 else ", name the split that it reads by data.split"
        return (
            f"spec.data.dataset: {data.dataset} is unhealthy: {len(lost)} of the {shards} shards of split {split} cannot be read "
            f"({', '.join(shard[:_SHOWN_CHARS] for shard in lost[:MAX_LISTED])}), some {bad} of its {samples} samples, more than "
            f"max_bad={max_bad:g} allows. Mend it: `trainhouse data quarantine rebuild {data.dataset} --from PATH`; or raise "
            f"data.max_bad{another_split}, or name another version of: {others}"
        )
    return ""


def why_schema_breaks(datasets: Datasets, spec: JobSpec, data: DataReference, facts: VersionFacts, owner: str) -> str:
    """Returns the reason for which a version lacks a field that the job needs, or has it with a type that it does not take; empty if it
    has all. A version without a grant has no schema to compare with: the differences would tell its fields."""
    if data.fields is None and data.schema_of is None:
        return ""
    given = {field.name: field.type for field in datasets.schema(facts.schema_hash)}
    for where, needed in (("fields", data.fields), ("schema_of", None)):
        named = f"spec.data.{where}: {data.dataset} "
        if where == "schema_of":
            if data.schema_of is None:
                continue
            try:
                before = datasets.get(VersionName.parse(data.schema_of).dataset, _schema_sha256(datasets, spec, data.schema_of, owner))
            except DatasetNameError as error:
                return f"spec.data.schema_of: {error}"
            assert before is not None, "a version that was resolved is known"
            if before.schema_hash == facts.schema_hash:
                continue
            needed = {field.name: field.type for field in datasets.schema(before.schema_hash)}
            if not needed:
                return f"spec.data.schema_of: {_unknown_fields(data.schema_of)}"
        if needed is None:
            continue
        if not given:
            return f"spec.data.{where}: {_unknown_fields(data.dataset or '')}"
        if differences := list(_differences(needed, given)):
            listed = ", ".join(differences[:MAX_LISTED]) + (" …" if len(differences) > MAX_LISTED else "")
            than = f"the schema of {data.schema_of}" if where == "schema_of" else "what the job reads"
            return f"{named}breaks {than}: {listed}. Name a version that has these fields, or change the program, and then data.{where}"
    return ""


def _schema_sha256(datasets: Datasets, spec: JobSpec, reference: str, owner: str) -> str:
    """The hash of the version whose schema a job names. Raises DatasetNameError where there is none, in the same words where there is one
    of another project and no grant of it."""
    name = VersionName.parse(reference)
    if owner != spec.project and not datasets.covers(spec, name.dataset, name.sha256 or datasets.tagged(name.dataset, name.semver) or ""):
        raise DatasetNameError(_no_dataset(name.dataset))
    return resolved_sha256(datasets, reference, owner)


def _differences(needed: Mapping[str, str], given: Mapping[str, str]) -> Iterator[str]:
    for name, types in sorted(needed.items()):
        if name not in given:
            yield f"{name} is not in it"
        elif not set(given[name].split("|")) <= set(types.split("|")):
            yield f"{name} is {given[name]}, not {types}"


def _unknown_fields(version: str) -> str:
    return (
        f"the fields of {version} are not known to intake, which has kept them since some update, up to 64 KiB of a version; publish it "
        "again from its source, which gives it the same id and tells its fields, or leave this out"
    )


def why_not_outputs(datasets: Datasets, spec: JobSpec) -> str:
    """Returns the reason for which a job's outputs could not be published; empty if they could, or there are none."""
    for name in spec.outputs:
        owner = datasets.owner(name)
        if owner is not None and owner != spec.project:
            return f"spec.outputs: a dataset {name} belongs to another project than {spec.project}; name the output otherwise"
    return ""


def _why_not_purpose(facts: VersionFacts, data: DataReference, of_job: str | None) -> str:
    purpose = data.purpose or of_job
    if not facts.purposes or purpose in facts.purposes:
        return ""
    listed = ", ".join(facts.purposes[:MAX_LISTED]) + (" …" if len(facts.purposes) > MAX_LISTED else "")
    named = f"{purpose} is none of the purposes" if purpose else "name the purpose: one of those"
    return f"spec.data.purpose: {named} that {data.dataset} may be used for: {listed}"


def resolved_sha256(datasets: Datasets, reference: str, project: str) -> str:
    """The hash of the version that `NAME@sha256:…` or `NAME@1.2.0` names. Raises DatasetNameError where the project has none."""
    name = VersionName.parse(reference)
    if datasets.owner(name.dataset) != project:
        raise DatasetNameError(_no_dataset(name.dataset))
    sha256 = name.sha256 or datasets.tagged(name.dataset, name.semver)
    if sha256 is not None and datasets.get(name.dataset, sha256) is not None:
        return sha256
    listed = datasets.listed(name.dataset) or "none that is not deprecated"
    raise DatasetNameError(f"dataset {name.dataset} has no version {reference.partition('@')[2]}; it has: {listed}")


def _no_dataset(dataset: str) -> str:
    return f"there is no dataset {dataset}; publish it: `trainhouse data publish {dataset} PATH`"


def resolved(datasets: Datasets, spec: JobSpec, owner: str) -> JobSpec:
    """The spec with its version by hash, the shards of it that are in quarantine and, where it is another's, its owner, as ranks and tables
    get it."""
    if spec.data is None or spec.data.dataset is None:
        return spec
    name = VersionName.parse(spec.data.dataset)
    by_hash = VersionName(name.dataset, sha256=resolved_sha256(datasets, spec.data.dataset, owner))
    facts = datasets.get(by_hash.dataset, by_hash.sha256)
    known = {
        "dataset": str(by_hash),
        "quarantined": () if facts is None else facts.quarantined,
        "owner": None if owner == spec.project else owner,
    }
    return spec.model_copy(update={"data": spec.data.model_copy(update=known)})


def published_by(
    asked: PublishDataset, semver: str | None, now_ms: int, known: VersionFacts | None, resent: bool, job_id: JobId | None = None
) -> DatasetVersionPublished:
    """A version as it is asked to be published, with the tag that it gets; a known one with its shards in quarantine."""
    shards = None
    if known is not None and known.shard_changes:
        lost = tuple(LostShard(split=split, shard=shard) for split, shard in known.lost)
        shards = ShardsInQuarantine(number=known.shard_changes + 1, shards=known.quarantined, lost=lost)
    return DatasetVersionPublished(
        version=asked.version,
        semver=semver,
        created_by=asked.user,
        published_at_ms=now_ms,
        admission_partitions=asked.admission_partitions,
        resent=resent,
        quarantine=shards,
        job_id=job_id,
    )


def fitting(datasets: Datasets, asked: PublishDataset) -> PublishDataset:
    """The request without its fields where a version is known, and they would be too much beside all that is."""
    known = datasets.get(asked.version.dataset, asked.version.sha256)
    if known is None or not datasets.full_with(known.project, 0, datasets.more_schema_bytes(asked.version)):
        return asked
    return asked.model_copy(update={"version": asked.version.model_copy(update={"fields": ()})})


def without_sizes(event: DatasetVersionPublished) -> DatasetVersionPublished:
    """A version as it was published before SIZES_SINCE: without its fields, and without naming those of its shards that are lost."""
    quarantine = None if event.quarantine is None else event.quarantine.model_copy(update={"lost": ()})
    return event.model_copy(update={"version": event.version.model_copy(update={"fields": ()}), "quarantine": quarantine})


def deprecated_by(asked: DeprecateDataset, reason: str, now_ms: int, resent: bool) -> DatasetVersionDeprecated:
    """A version as it is asked to be deprecated, for the reason that it has."""
    return DatasetVersionDeprecated(
        dataset=asked.dataset,
        sha256=asked.sha256,
        user=asked.user,
        reason=reason,
        deprecated_at_ms=now_ms,
        admission_partitions=asked.admission_partitions,
        resent=resent,
    )


def quarantined_by(asked: QuarantineShard, number: int, now_ms: int, resent: bool) -> ShardQuarantined:
    """A shard as it is asked to be quarantined."""
    return ShardQuarantined(
        dataset=asked.dataset,
        sha256=asked.sha256,
        shard=asked.shard,
        split=asked.split,
        evidence=asked.evidence,
        number=number,
        quarantined_at_ms=now_ms,
        admission_partitions=asked.admission_partitions,
        resent=resent,
    )


def released_by(asked: ReleaseShard, number: int, now_ms: int) -> ShardReleased:
    """A shard as it is asked to be released."""
    return ShardReleased(
        dataset=asked.dataset,
        sha256=asked.sha256,
        shard=asked.shard,
        user=asked.user,
        reason=asked.reason,
        number=number,
        released_at_ms=now_ms,
        admission_partitions=asked.admission_partitions,
    )
