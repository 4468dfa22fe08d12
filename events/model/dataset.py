"""Versions of datasets: the manifest, whose hash is the version's id, and the events by which versions come and are deprecated.

Holds: a manifest is about contents alone (no name, person, time, path or machine), so equal inputs have equal ids everywhere; that of a
job's output names the job, not its attempt. A version
never changes; a semver tag belongs to the version that was first published with it; a name belongs to the project that first published
under it.
Never: a sample's content.
"""

import builtins
import hashlib
from typing import Any, Final

import orjson
from pydantic import Field, model_validator

from trainhouse.events.model.absence import is_absent, is_no
from trainhouse.events.model.base import Event, Model
from trainhouse.events.model.bounds import MOST_COUNT, ByteCount, Count, CutText, InputText, ShortText, SmallCount, TimestampMs
from trainhouse.events.model.dataset_names import DatasetName, FieldName, Semver, SplitName
from trainhouse.events.model.default_project import DEFAULT_PROJECT
from trainhouse.events.model.ids import JobId, PoolName
from trainhouse.events.model.labels import MOST_QUARANTINED, Label, Sha256
from trainhouse.events.model.version_names import VersionName

FORMAT: Final = 1
MOST_SPLITS: Final = 16
MOST_SHARDS: Final = 1_000_000
MOST_FIELDS: Final = 1024
MOST_PURPOSES: Final = 64
MOST_SOURCES: Final = 64
MOST_ARTIFACTS: Final = 16
MOST_SCHEMA_BYTES: Final = 64 * 1024
"""Of fields as events carry them, as JSON; of a version with more, events have the hash alone."""


class DataField(Model):
    """One field of each sample: the extension of its member in a shard, or a column of its `json` as `json.COLUMN`."""

    name: FieldName = Field(description="extension of the member, or `json.` and the column")
    type: Label = Field(
        description="bytes, text, image, json, or of a column: bool, int, float, text, list, object, alternatives joined by |"
    )
    optional: bool = Field(False, description="whether some samples lack it, or have null")


class FieldStatistics(Model):
    """Figures of one field over all samples of a split, all of them whole numbers, so that they are equal on every machine."""

    samples: Count = Field(description="samples that have the field")
    bytes: ByteCount = Field(description="bytes of its values")
    least_bytes: ByteCount = Field(description="bytes of the smallest value")
    most_bytes: ByteCount = Field(description="bytes of the largest value")


class DataShard(Model):
    """One shard: a tar named by its content, and its index."""

    sha256: Sha256 = Field(description="SHA-256 of the tar, in hexadecimal")
    index_sha256: Sha256 = Field(description="SHA-256 of its index, in hexadecimal")
    bytes: ByteCount = Field(description="size of the tar")
    samples: Count = Field(description="samples in it")


class DataSplit(Model):
    """One split: its shards in the order of reading, and figures over its samples."""

    shards: tuple[DataShard, ...] = Field(min_length=1, max_length=MOST_SHARDS, description="shards, in the order of reading")
    samples: Count = Field(ge=1, description="samples in all shards")
    bytes: ByteCount = Field(description="bytes of all shards")
    statistics: dict[FieldName, FieldStatistics] = Field(default_factory=dict, max_length=MOST_FIELDS, description="figures by field")


class DataSource(Model):
    """Source of a version: its kind and the hash of its contents."""

    kind: Label = Field(description="folder, jsonl, csv, parquet, webdataset or mds; job: what its ranks wrote")
    sha256: Sha256 = Field(description="SHA-256 over all that was read, in hexadecimal; of a job: over the hashes of its shards")
    bytes: ByteCount = Field(description="bytes that were read")
    files: Count = Field(description="files that were read; of a job: pieces that were written")
    job: JobId | None = Field(None, exclude_if=is_absent, description="job that wrote it as its output; absent: it was read from files")


class NamedArtifact(Model):
    """Artifact of the dataset's project that its samples were made with."""

    name: DatasetName = Field(description="what it is to them, such as tokenizer")
    sha256: Sha256 = Field(description="SHA-256 of the artifact's manifest, in hexadecimal")


class Manifest(Model):
    """The whole description of a version, stored as canonical JSON under its own hash."""

    format: int = Field(FORMAT, ge=1, le=FORMAT, description="version of this format")
    fields: tuple[DataField, ...] = Field(max_length=MOST_FIELDS, description="fields of a sample, by name")
    schema_hash: Sha256 = Field(description="SHA-256 of `fields` as canonical JSON, in hexadecimal")
    splits: dict[SplitName, DataSplit] = Field(min_length=1, max_length=MOST_SPLITS, description="splits by name")
    split_config_hash: Sha256 = Field(description="SHA-256 of the rule by which samples were split, in hexadecimal")
    split_rule: InputText = Field(description="that rule, as canonical JSON")
    row_count: Count = Field(description="samples of all splits")
    bytes: ByteCount = Field(description="bytes of all shards")
    sources: tuple[DataSource, ...] = Field((), max_length=MOST_SOURCES, description="what was read")
    licence: ShortText = Field("", description="licence of the data, as its owner calls it")
    purposes: tuple[Label, ...] = Field((), max_length=MOST_PURPOSES, description="purposes that jobs may use it for; empty: any")
    artifacts: tuple[NamedArtifact, ...] = Field(
        (), max_length=MOST_ARTIFACTS, exclude_if=is_absent, description="artifacts that its samples were made with, by name"
    )

    @classmethod
    def of(cls, fields: tuple[DataField, ...], splits: dict[str, DataSplit], split_rule: str, **more: Any) -> "Manifest":
        """A manifest with the hashes and sums that follow from its fields, splits and split rule. `more`: its other fields."""
        return cls(
            fields=fields,
            schema_hash=schema_hash_of(fields),
            splits=splits,
            split_config_hash=hashlib.sha256(split_rule.encode()).hexdigest(),
            split_rule=split_rule,
            row_count=sum(split.samples for split in splits.values()),
            bytes=sum(split.bytes for split in splits.values()),
            **more,
        )

    @model_validator(mode="after")
    def _consistent(self) -> "Manifest":
        if self.schema_hash != schema_hash_of(self.fields):
            raise ValueError("schema_hash is not the hash of the fields; the manifest was changed, publish again")
        if self.split_config_hash != hashlib.sha256(self.split_rule.encode()).hexdigest():
            raise ValueError("split_config_hash is not the hash of split_rule; the manifest was changed, publish again")
        for name, split in self.splits.items():
            if split.samples != sum(s.samples for s in split.shards) or split.bytes != sum(s.bytes for s in split.shards):
                raise ValueError(f"splits.{name}: its shards have other sums than it names; the manifest was changed, publish again")
        if self.row_count != sum(s.samples for s in self.splits.values()) or self.bytes != sum(s.bytes for s in self.splits.values()):
            raise ValueError("row_count or bytes is not the sum over the splits; the manifest was changed, publish again")
        return self

    def canonical_json(self) -> builtins.bytes:
        """The bytes that are stored and hashed: sorted JSON."""
        return orjson.dumps(self.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)

    def sha256(self) -> str:
        """Hex SHA-256 of the canonical JSON: the version's id."""
        return hashlib.sha256(self.canonical_json()).hexdigest()


def schema_hash_of(fields: tuple[DataField, ...]) -> str:
    """Hex SHA-256 of the fields as canonical JSON."""
    return hashlib.sha256(_schema_json(fields)).hexdigest()


def schema_bytes(fields: tuple[DataField, ...]) -> int:
    """Size of the fields as canonical JSON; 0 of none."""
    return len(_schema_json(fields)) if fields else 0


def _schema_json(fields: tuple[DataField, ...]) -> bytes:
    return orjson.dumps([f.model_dump(mode="json") for f in fields], option=orjson.OPT_SORT_KEYS)


class SplitSize(Model):
    """Size of one split, as events carry it."""

    samples: Count = Field(description="samples of the split")
    bytes: ByteCount = Field(description="bytes of its shards")
    shards: SmallCount = Field(description="its shards")


class DatasetVersion(Model):
    """Facts of one version that events carry; the manifest in the object store has the rest."""

    dataset: DatasetName = Field(description="name of the dataset")
    sha256: Sha256 = Field(description="SHA-256 of the manifest, in hexadecimal: the version's id")
    project: Label = Field(DEFAULT_PROJECT, description="project that owns the dataset")
    schema_hash: Sha256 = Field(description="SHA-256 of the schema, in hexadecimal")
    split_config_hash: Sha256 = Field(description="SHA-256 of the rule by which samples were split, in hexadecimal")
    splits: dict[SplitName, SplitSize] = Field(min_length=1, max_length=MOST_SPLITS, description="sizes of its splits by name")
    row_count: Count = Field(description="samples of all splits")
    bytes: ByteCount = Field(description="bytes of all shards")
    licence: ShortText = Field("", description="licence of the data, as its owner calls it")
    purposes: tuple[Label, ...] = Field((), max_length=MOST_PURPOSES, description="purposes that jobs may use it for; empty: any")
    fields: tuple[DataField, ...] = Field(
        (),
        max_length=MOST_FIELDS,
        exclude_if=is_absent,
        description="fields of a sample, of `schema_hash`; empty: not given",
    )

    @model_validator(mode="after")
    def _own_fields(self) -> "DatasetVersion":
        if self.fields and self.schema_hash != schema_hash_of(self.fields):
            raise ValueError("fields have another hash than schema_hash; publish with `trainhouse data publish`, or leave fields out")
        if schema_bytes(self.fields) > MOST_SCHEMA_BYTES:
            raise ValueError(f"fields take more than {MOST_SCHEMA_BYTES} bytes as JSON; leave them out")
        return self

    @property
    def name(self) -> VersionName:
        """The version by its content."""
        return VersionName(self.dataset, sha256=self.sha256)


def version_of(manifest: Manifest, dataset: str, project: str) -> DatasetVersion:
    """The facts of a manifest that events carry."""
    return DatasetVersion(
        dataset=dataset,
        sha256=manifest.sha256(),
        project=project,
        schema_hash=manifest.schema_hash,
        split_config_hash=manifest.split_config_hash,
        splits={n: SplitSize(samples=s.samples, bytes=s.bytes, shards=len(s.shards)) for n, s in sorted(manifest.splits.items())},
        row_count=manifest.row_count,
        bytes=manifest.bytes,
        licence=manifest.licence,
        purposes=manifest.purposes,
        fields=manifest.fields if schema_bytes(manifest.fields) <= MOST_SCHEMA_BYTES else (),
    )


class PublishDataset(Event, type="trainhouse.dataset.publish.v1", public_input=True):
    """Request to publish a version whose manifest and shards are in the object store, and to give it a semver tag.

    `admission_partitions` is filled in by intake.
    """

    version: DatasetVersion = Field(description="facts of the version")
    semver: Semver | None = Field(None, description="tag that names it beside its hash; absent: none")
    user: str = Field("unknown", max_length=128)
    admission_partitions: int = Field(1, ge=1, le=1024, description="partitions of admission; filled in by intake")
    job_id: JobId | None = Field(
        None, exclude_if=is_absent, description="job whose output it is, by the job's scheduler alone; absent: it is none"
    )
    pool: PoolName | None = Field(None, exclude_if=is_absent, description="pool of that job, whose scheduler gets the answer")

    def subject(self) -> str:
        return self.version.dataset


class DeprecateDataset(Event, type="trainhouse.dataset.deprecate.v1", public_input=True):
    """Request that no new job names a version; jobs that were admitted go on, and its shards stay.

    `admission_partitions` is filled in by intake.
    """

    dataset: DatasetName = Field(description="name of the dataset")
    sha256: Sha256 = Field(description="SHA-256 of the version's manifest, in hexadecimal")
    user: str = Field("unknown", max_length=128)
    reason: str = Field(min_length=1, max_length=1024, description="why; those whose jobs are refused read it")
    admission_partitions: int = Field(1, ge=1, le=1024, description="partitions of admission; filled in by intake")

    def subject(self) -> str:
        return self.dataset


class LostShard(Model):
    """A shard in quarantine none of whose samples can be read."""

    shard: Sha256 = Field(description="SHA-256 of the shard's tar, in hexadecimal")
    split: SplitName = Field(description="split that it is of")


class ShardsInQuarantine(Model):
    """All shards of a version that are in quarantine, as of one change."""

    number: int = Field(ge=1, le=MOST_COUNT, description="number of the change among those of the version's shards")
    shards: tuple[Sha256, ...] = Field((), max_length=MOST_QUARANTINED, description="shards, by hash, sorted")
    lost: tuple[LostShard, ...] = Field(
        (), max_length=MOST_QUARANTINED, exclude_if=is_absent, description="those of them none of whose samples can be read"
    )


class DatasetVersionPublished(Event, type="trainhouse.dataset.version-published.v1"):
    """A version may be named by jobs, by its hash and, where it has one, by this tag."""

    version: DatasetVersion = Field(description="facts of the version")
    semver: Semver | None = Field(None, exclude_if=is_absent, description="tag that names it beside its hash; absent: none")
    created_by: ShortText = Field("unknown", description="user who published it")
    published_at_ms: TimestampMs = Field(description="time from which it counts, in milliseconds since 1970")
    admission_partitions: int = Field(1, ge=1, le=1024, description="partitions of admission")
    resent: bool = Field(False, exclude_if=is_no, description="whether it was decided before, and goes to admission alone, again")
    quarantine: ShardsInQuarantine | None = Field(
        None, exclude_if=is_absent, description="its shards in quarantine, for partitions that missed them; absent: none ever was"
    )
    job_id: JobId | None = Field(None, exclude_if=is_absent, description="job whose output it is; absent: it is none")

    def subject(self) -> str:
        return self.version.dataset


class DatasetVersionDeprecated(Event, type="trainhouse.dataset.version-deprecated.v1"):
    """No new job may name a version."""

    dataset: DatasetName = Field(description="name of the dataset")
    sha256: Sha256 = Field(description="SHA-256 of the version's manifest, in hexadecimal")
    user: ShortText = "unknown"
    reason: CutText = ""
    deprecated_at_ms: TimestampMs = Field(description="time from which it counts, in milliseconds since 1970")
    admission_partitions: int = Field(1, ge=1, le=1024, description="partitions of admission")
    resent: bool = Field(False, exclude_if=is_no, description="whether it was decided before, and goes to admission alone, again")

    def subject(self) -> str:
        return self.dataset
