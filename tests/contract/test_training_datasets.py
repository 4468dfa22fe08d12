"""The views of datasets on the real engine: versions with their tags and what deprecated them, shards in quarantine, and grants."""

from __future__ import annotations

from pathlib import Path

from tests.support.dataset_versions import version
from tests.support.tables.alert_tables import tables_in
from trainhouse.events import (
    DatasetAccessRefused,
    DatasetGranted,
    DatasetGrantRevoked,
    DatasetVersionDeprecated,
    DatasetVersionPublished,
    JobId,
    NodeId,
    ShardEvidence,
    ShardFault,
    ShardQuarantined,
    ShardReleased,
)
from trainhouse.events.wire import topics

NOW_MS = 1_790_000_000_000


def test_a_version_is_one_row_however_often_and_under_how_many_tags_it_was_published(tmp_path: Path) -> None:
    one, two = version(), version(licence="MIT", purposes=("research", "teaching"))
    said = [
        DatasetVersionPublished(version=one, semver="1.0.0", created_by="ada", published_at_ms=NOW_MS),
        DatasetVersionPublished(version=one, semver="1.0.1", created_by="bo", published_at_ms=NOW_MS + 5),
        DatasetVersionPublished(version=two, created_by="bo", published_at_ms=NOW_MS + 9),
        DatasetVersionDeprecated(dataset="speech", sha256=one.sha256, user="cy", reason="wrong", deprecated_at_ms=NOW_MS + 20),
        DatasetVersionDeprecated(dataset="unseen", sha256="0" * 64, user="cy", reason="wrong", deprecated_at_ms=NOW_MS + 20),
    ]
    with tables_in(tmp_path / "clickhouse") as tables:
        tables.put(topics.DATASETS, said, NOW_MS)
        tables.put(topics.DATASETS, said[:2], NOW_MS)
        first, second = tables.ask("SELECT * FROM training_datasets ORDER BY published_at", {})
    assert first["version"] == str(one.name) and first["tags"] == ["1.0.0", "1.0.1"] and first["created_by"] == "ada"
    assert (first["deprecated"], first["deprecated_reason"], first["deprecated_by"]) == (1, "wrong", "cy")
    assert (first["splits"], first["split_samples"], first["split_shards"], first["row_count"]) == (["train"], [10], [1], 10)
    assert (first["field_names"], first["field_types"], first["field_optional"]) == (["txt"], ["text"], [0])
    assert second["tags"] == [] and second["deprecated"] == 0 and second["deprecated_at"] is None
    assert second["purposes"] == ["research", "teaching"] and second["licence"] == "MIT" and second["project"] == "default"


def test_a_shard_is_one_row_with_its_evidence_and_its_release(tmp_path: Path) -> None:
    one = version()
    named = {"dataset": "speech", "sha256": one.sha256, "shard": "1" * 64}
    evidence = ShardEvidence(
        fault=ShardFault.TRUNCATED, sample="s3", expected="40 bytes", seen="7 bytes", job_id=JobId("j"), rank=3, node_id=NodeId("n1")
    )
    found = ShardQuarantined.model_validate(named | {"split": "train", "evidence": evidence, "number": 1, "quarantined_at_ms": NOW_MS})
    other = found.model_copy(update={"shard": "2" * 64, "number": 2, "quarantined_at_ms": NOW_MS + 1})
    released = ShardReleased.model_validate(named | {"user": "ada", "reason": "whole", "number": 3, "released_at_ms": NOW_MS + 9})
    with tables_in(tmp_path / "clickhouse") as tables:
        tables.put(topics.DATASETS, [found, other, released], NOW_MS)
        tables.put(topics.DATASETS, [found], NOW_MS)
        first, second = tables.ask("SELECT * FROM quarantined_shards ORDER BY quarantined_at", {})
    assert (first["version"], first["shard"], first["split"], first["fault"]) == (str(one.name), "1" * 64, "train", "truncated")
    assert (first["sample"], first["expected"], first["seen"]) == ("s3", "40 bytes", "7 bytes")
    assert (first["job_id"], first["rank"], first["node_id"]) == ("j", 3, "n1")
    assert (first["released"], first["released_by"], first["released_reason"]) == (1, "ada", "whole")
    assert (second["shard"], second["released"], second["released_at"]) == ("2" * 64, 0, None)


def test_the_last_change_of_a_shard_is_the_one_with_the_highest_number_whatever_the_clock_says(tmp_path: Path) -> None:
    named = {"dataset": "speech", "sha256": version().sha256, "shard": "1" * 64}
    evidence = ShardEvidence(fault=ShardFault.TRUNCATED, seen="old", job_id=JobId("j"), rank=3, node_id=NodeId("n1"))
    found = ShardQuarantined.model_validate(named | {"evidence": evidence, "number": 1, "quarantined_at_ms": NOW_MS + 9})
    released = ShardReleased.model_validate(named | {"user": "ada", "number": 2, "released_at_ms": NOW_MS + 9})
    by_hand = ShardEvidence(fault=ShardFault.MISSING, seen="new")
    again = found.model_copy(update={"evidence": by_hand, "number": 3, "quarantined_at_ms": NOW_MS})
    with tables_in(tmp_path / "clickhouse") as tables:
        tables.put(topics.DATASETS, [found, released, again], NOW_MS)
        [row] = tables.ask("SELECT * FROM quarantined_shards", {})
    assert (row["fault"], row["seen"], row["rank"], row["job_id"]) == ("missing", "new", None, "")
    assert (row["released"], row["released_at"]) == (0, None)


def test_a_grant_is_one_row_with_its_end_and_all_that_was_done_is_in_the_audit(tmp_path: Path) -> None:
    one = version()
    named = {"dataset": "speech", "sha256": one.sha256, "owner": "default", "project": "vision", "purpose": "research"}
    given = DatasetGranted.model_validate(named | {"user": "ada", "reason": "a paper", "number": 1, "granted_at_ms": NOW_MS + 9})
    over = DatasetGrantRevoked.model_validate(named | {"user": "bo", "reason": "it is out", "number": 2, "revoked_at_ms": NOW_MS + 9})
    of_all = given.model_copy(update={"sha256": None, "number": 3, "granted_at_ms": NOW_MS + 10})
    again = given.model_copy(update={"user": "cy", "number": 4, "granted_at_ms": NOW_MS})
    refused = DatasetAccessRefused.model_validate(
        {
            "reference": "speech@1.0.0",
            "owner": "default",
            "project": "vision",
            "purpose": "adverts",
            "user": "eve",
            "job_id": "j",
            "submission_id": "s",
            "reason": "no grant",
            "refused_at_ms": NOW_MS + 20,
        }
    )
    with tables_in(tmp_path / "clickhouse") as tables:
        tables.put(topics.DATASETS, [given, over, of_all], NOW_MS)
        tables.put(topics.AUDIT, [refused], NOW_MS)
        first, second = tables.ask("SELECT * FROM dataset_grants ORDER BY version DESC", {})
        audit = tables.ask("SELECT kind, action, target, project, user, reason, text, job_id, outcome FROM audit ORDER BY action", {})
        tables.put(topics.DATASETS, [again], NOW_MS)
        [holds] = tables.ask("SELECT granted_by, revoked, revoked_by, revoked_at FROM dataset_grants WHERE version != ''", {})
    assert (first["version"], first["owner"], first["project"], first["purpose"]) == (str(one.name), "default", "vision", "research")
    assert (first["granted_by"], first["reason"], first["revoked"], first["revoked_by"]) == ("ada", "a paper", 1, "bo")
    assert first["revoked_reason"] == "it is out" and first["revoked_at"] is not None
    assert (second["version"], second["sha256"], second["revoked"], second["revoked_at"]) == ("", "", 0, None)
    assert holds == {"granted_by": "cy", "revoked": 0, "revoked_by": "", "revoked_at": None}
    done, of_all_too, ended, use = ({**row} for row in audit)
    assert {done["target"], of_all_too["target"]} == {str(one.name), "speech"} and done["user"] == "ada" and done["kind"] == "accepted"
    assert ended["action"] == "revoke dataset grant" and ended["user"] == "bo" and ended["text"] == "project vision, purpose research"
    assert (use["kind"], use["action"], use["target"], use["project"]) == ("refused", "use dataset", "speech@1.0.0", "default")
    assert (use["user"], use["reason"], use["job_id"], use["outcome"], use["text"]) == ("eve", "no grant", "j", "refused", "project vision")
