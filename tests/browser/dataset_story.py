"""Datasets for the pages: one with three versions, drift, bad shards and a job that reads it; and one with nothing but a version."""

from __future__ import annotations

from tests.browser.story import Story
from tests.support.dataset_versions import manifest
from trainhouse.events import DatasetVersion, DatasetVersionDeprecated, DatasetVersionPublished, JobId, NodeId, ShardEvidence, ShardFault
from trainhouse.events.model.bad_shard import ShardQuarantined, ShardReleased
from trainhouse.events.model.dataset import DataField, schema_hash_of, version_of
from trainhouse.events.model.dataset_drift import DatasetDriftMeasured, DriftVerdict, FieldDrift
from trainhouse.events.model.job import JobAdmitted, JobState, JobStatus, JobSubmitted
from trainhouse.events.model.spec import JobSpec
from trainhouse.events.wire import topics

NAME, LONELY, READER = "support-chats", "lonely", "reader-1"
COLUMNS = {"json.text": "text", "json.user": "text", "json.score": "float|int"}


def version(rows: int, dataset: str = NAME, **types: str) -> DatasetVersion:
    """A version of two splits, of 40 and 3 shards."""
    fields = tuple(DataField(name=name, type=kind, optional=name == "json.score") for name, kind in sorted(types.items()))

    def split(shards: int, first: int) -> dict[str, object]:
        listed = [
            {"sha256": f"{first + n:064x}", "index_sha256": "2" * 64, "bytes": 127 << 20, "samples": rows // 50} for n in range(shards)
        ]
        return {"shards": listed, "samples": shards * (rows // 50), "bytes": shards * (127 << 20)}

    splits = {"train": split(40, rows), "validation": split(3, 2 * rows)}
    total = {"row_count": 43 * (rows // 50), "bytes": 43 * (127 << 20)}
    made = manifest(splits=splits, fields=fields, schema_hash=schema_hash_of(fields), licence="CC-BY-4.0", **total)
    return version_of(made, dataset, "research")


def before_newest() -> DatasetVersion:
    """The version that READER reads, which one is newer than."""
    return version(200_000, **COLUMNS)


def tell_datasets(story: Story) -> None:
    """All of it."""
    first, second, third = version(100_000, **COLUMNS), before_newest(), version(250_000, **COLUMNS, jpg="image")
    for at_s, each, tag in ((10, first, "1.0.0"), (20, second, "1.1.0"), (30, third, "2.0.0"), (31, version(50, LONELY), None)):
        told = DatasetVersionPublished(version=each, semver=tag, created_by="ada", published_at_ms=story.ms(at_s))
        story.put(topics.DATASETS, told, at_s)
    gone = DatasetVersionDeprecated(
        dataset=NAME, sha256=first.sha256, user="bo", reason="names were not removed", deprecated_at_ms=story.ms(40)
    )
    story.put(topics.DATASETS, gone, 40)
    _drift(story, second, third)
    _shards(story, second)
    _reader(story, second)


def _drift(story: Story, before: DatasetVersion, after: DatasetVersion) -> None:
    moved = FieldDrift(
        field="json.score", verdict=DriftVerdict.DRIFTED, reason="PSI 0.31 is above 0.1; new values", psi=0.31, psi_limit=0.1,
        ks=0.22, ks_limit=0.1, missing=0.08, missing_before=0.01,
    )  # fmt: skip
    others = (
        FieldDrift(field="jpg", verdict=DriftVerdict.ADDED),
        FieldDrift(field="json.text", verdict=DriftVerdict.STABLE, psi=0.02, psi_limit=0.1),
        FieldDrift(field="json.user", verdict=DriftVerdict.STABLE, psi=0.01, psi_limit=0.1),
    )
    measured = DatasetDriftMeasured(
        dataset=NAME, project="research", sha256=after.sha256, against_sha256=before.sha256, predecessor=True, row_count=after.row_count,
        row_count_before=before.row_count, fields=(moved, *others), fields_compared=4, fields_drifted=1, fields_changed=1, user="ada",
        at_ms=story.ms(32),
    )  # fmt: skip
    story.put(topics.TRACKING, measured, 32)


def _shards(story: Story, of: DatasetVersion) -> None:
    named = {"dataset": NAME, "sha256": of.sha256, "split": "train"}
    evidence = ShardEvidence(
        fault=ShardFault.WRONG_HASH,
        sample="chat-004711",
        expected="CRC-32 1f2e3d4c",
        seen="CRC-32 99aabbcc, also when it was read again",
        job_id=JobId(READER),
        rank=3,
        node_id=NodeId("node-0001"),
    )
    for number, shard in enumerate(("7a" * 32, "b3" * 32), 1):
        about = named | {"shard": shard, "evidence": evidence, "number": number, "quarantined_at_ms": story.ms(50 + number)}
        story.put(topics.DATASETS, ShardQuarantined.model_validate(about), 50 + number)
    whole = ShardReleased(
        dataset=NAME, sha256=of.sha256, shard="7a" * 32, user="ada", reason="it is whole again", number=3, released_at_ms=story.ms(60)
    )
    story.put(topics.DATASETS, whole, 60)


def _reader(story: Story, of: DatasetVersion) -> None:
    spec = JobSpec.model_validate(
        {
            "name": "reads-chats",
            "user": "ada",
            "team": "language",
            "project": "research",
            "purpose": "research",
            "pool": "a100",
            "runtime": {"command": ["python", "train.py"]},
            "data": {"dataset": str(of.name), "split": "train"},
        }
    )
    at_ms = story.ms(45)
    story.put(topics.JOBS, JobSubmitted(job_id=JobId(READER), spec=spec), 45)
    admitted = JobAdmitted(job_id=JobId(READER), spec=spec, spec_sha256="cd" * 32, submission_id="reader", submitted_at_ms=at_ms)
    story.put(topics.CONTROL, admitted, 45)
    whose = {"name": spec.name, "project": spec.project, "team": spec.team, "user": spec.user, "pool": spec.pool, "purpose": "research"}
    about = {"job_id": READER, "status_seq": 1, "state": JobState.PENDING, "attempt": 0, "epoch": 1, "world_size": 1}
    story.put(topics.STATUS, JobStatus.model_validate(about | whose | {"submitted_at_ms": at_ms, "updated_at_ms": at_ms}), 46)
