"""Versions that are unhealthy, or break what a job reads, are refused at submission; what that needs is known since one level."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.dataset_versions import manifest, publish
from tests.unit.scheduler.core.intake.test_core_directory import Directory, refused, submit
from tests.unit.scheduler.core.intake.test_directory_datasets import admitted
from trainhouse.events import (
    DatasetVersion,
    DatasetVersionPublished,
    QuarantineShard,
    ReleaseShard,
    ShardEvidence,
    ShardFault,
    ShardQuarantined,
)
from trainhouse.events.model.dataset import MOST_SCHEMA_BYTES, DataField, schema_hash_of, version_of
from trainhouse.scheduler.core.intake import datasets as datasets_module
from trainhouse.scheduler.core.intake.datasets import SIZES_SINCE, Datasets
from trainhouse.scheduler.core.intake.directory import DirectoryMachine

SHARDS = 20


def sized(samples: int = 100) -> DatasetVersion:
    """A version of two splits, of which train has 20 shards."""

    def split(shards: int, first: int) -> dict[str, Any]:
        listed = [{"sha256": f"{first + n:064x}", "index_sha256": "2" * 64, "bytes": 1024, "samples": samples} for n in range(shards)]
        return {"shards": listed, "samples": shards * samples, "bytes": shards * 1024}

    splits = {"train": split(SHARDS, 0), "test": split(2, 100)}
    rows = (SHARDS + 2) * samples
    return version_of(manifest(splits=splits, row_count=rows, bytes=(SHARDS + 2) * 1024), "speech", "default")


def fields(**types: str) -> dict[str, Any]:
    """Facts of a version with these columns."""
    of = tuple(DataField(name=f"json.{name}", type=kind) for name, kind in sorted(types.items()))
    return {"fields": of, "schema_hash": schema_hash_of(of)}


def version(licence: str = "", dataset: str = "speech", **types: str) -> DatasetVersion:
    return version_of(manifest(licence=licence, **fields(**types)), dataset, "default")


def lose(
    of: DatasetVersion, number: int, split: str | None = "train", fault: ShardFault = ShardFault.MISSING, sample: str = "s1"
) -> QuarantineShard:
    evidence = ShardEvidence(fault=fault, sample=sample)
    return QuarantineShard(dataset=of.dataset, sha256=of.sha256, shard=f"{number:064x}", split=split, evidence=evidence)


def asked(directory: Directory, job: str, **data: Any) -> str:
    """The reason of a refusal; empty for a job that is admitted."""
    effects = directory.feed(submit(job, data={"dataset": "speech@1.0.0"} | data))
    return "" if getattr(effects[0].event, "spec_sha256", None) else refused(effects)


def with_version(of: DatasetVersion, directory: Directory | None = None) -> Directory:
    directory = directory or Directory().with_pools()
    directory.feed(publish(of, "1.0.0"))
    return directory


def test_a_version_with_more_lost_than_the_job_allows_is_refused_with_the_shards_and_ways_out() -> None:
    directory = with_version(sized())
    assert asked(directory, "a", split="train") == ""
    directory.feed(lose(sized(), 3))
    reason = asked(directory, "b", split="train")
    assert (
        "speech@1.0.0 is unhealthy: 1 of the 20 shards of split train cannot be read (000000000000), some 100 of its 2000 samples" in reason
    )
    assert "more than max_bad=0.001 allows" in reason and "`trainhouse data quarantine rebuild speech@1.0.0 --from PATH`" in reason
    assert asked(directory, "c", split="train", max_bad=0.05) == "" and asked(directory, "d", split="test") == ""
    assert "name the split that it reads by data.split" in asked(directory, "e")
    assert "max_bad=0 allows" in asked(directory, "f", split="train", max_bad=0)
    directory.feed(ReleaseShard(dataset="speech", sha256=sized().sha256, shard=f"{3:064x}"))
    assert asked(directory, "g", split="train") == ""


@pytest.mark.parametrize(
    ("fault", "sample", "lost"),
    [
        (ShardFault.MISSING, "s1", True),
        (ShardFault.WRONG_HASH, "", True),
        (ShardFault.WRONG_HASH, "s1", False),
        (ShardFault.TRUNCATED, "s1", False),
        (ShardFault.UNDECODABLE, "s1", False),
    ],
)
def test_of_a_shard_with_a_bad_sample_the_others_count_as_good(fault: ShardFault, sample: str, lost: bool) -> None:
    """One bad sample of two thousand is what the default allows; the rest of the shard is read."""
    directory = with_version(sized())
    directory.feed(lose(sized(), 3, fault=fault, sample=sample))
    assert bool(asked(directory, "a", split="train")) == lost


def test_one_bad_sample_is_always_allowed_unless_none_is() -> None:
    directory = with_version(sized(samples=1))
    directory.feed(lose(sized(samples=1), 3))
    assert asked(directory, "a", split="train") == "" and "is unhealthy" in asked(directory, "b", split="train", max_bad=0)


def test_no_more_shards_count_as_lost_than_the_split_has() -> None:
    directory = with_version(sized())
    for number in range(SHARDS + 5):
        directory.feed(lose(sized(), 1_000 + number))
    assert "20 of the 20 shards of split train cannot be read" in (reason := asked(directory, "a", split="train"))
    assert "some 2000 of its 2000 samples" in reason


def test_a_lost_shard_of_no_split_counts_where_there_is_but_one() -> None:
    directory = with_version(sized())
    directory.feed(lose(sized(), 3, split=None))
    assert asked(directory, "a") == ""
    alone = version_of(manifest(), "speech", "default")
    other = with_version(alone)
    other.feed(lose(alone, 1, split=None))
    assert "is unhealthy" in asked(other, "a")


@pytest.mark.parametrize(
    ("needed", "why"),
    [
        ({"json.text": "text"}, ""),
        ({"json.n": "float|int"}, ""),
        ({"json.n": "float"}, "spec.data.fields: speech@1.0.0 breaks what the job reads: json.n is int, not float"),
        ({"json.gone": "text", "json.n": "text"}, "json.gone is not in it, json.n is int, not text. Name a version that has these fields"),
    ],
)
def test_a_version_that_lacks_a_field_or_has_another_type_is_refused(needed: dict[str, str], why: str) -> None:
    directory = with_version(version(text="text", n="int", more="list"))
    reason = asked(directory, "a", fields=needed)
    assert why in reason and bool(why) == bool(reason)


def test_a_later_version_that_breaks_the_schema_of_the_one_before_is_refused() -> None:
    directory = with_version(version(text="text", user="text", n="int"))
    directory.feed(publish(version(text="text", user="text", n="int", more="text"), "1.1.0"))
    directory.feed(publish(version(text="text", n="float"), "2.0.0"))
    assert asked(directory, "a", dataset="speech@1.1.0", schema_of="speech@1.0.0") == ""
    reason = asked(directory, "b", dataset="speech@2.0.0", schema_of="speech@1.0.0")
    assert reason.startswith(
        "spec.data.schema_of: speech@2.0.0 breaks the schema of speech@1.0.0: json.n is float, not int, json.user is not in it"
    )
    assert asked(directory, "c", schema_of="speech@1.0.0") == ""
    assert "spec.data.schema_of: dataset speech has no version 9.0.0" in asked(directory, "d", schema_of="speech@9.0.0")
    assert "there is no dataset noise" in asked(directory, "e", schema_of="noise@9.0.0")


def test_fields_with_another_hash_are_refused_and_too_many_are_left_out() -> None:
    with pytest.raises(ValueError, match="another hash than schema_hash"):
        DatasetVersion.model_validate(version(text="text").model_dump() | {"schema_hash": "1" * 64})
    many = version(**{f"{'x' * 900}{n}": "text" for n in range(MOST_SCHEMA_BYTES // 900)})
    assert many.fields == ()
    directory = with_version(many)
    assert "the fields of speech@1.0.0 are not known to intake" in asked(directory, "a", fields={"json.text": "text"})
    assert asked(directory, "b", schema_of=str(many.name)) == "", "it is of one schema, whatever it is"


def test_below_the_level_nothing_of_it_is_known_and_published_again_it_is() -> None:
    directory, of = Directory().with_pools(), sized()
    directory.machine = directory.machine.at(SIZES_SINCE - 1)
    [_, told] = directory.feed(publish(of, "1.0.0"))
    assert isinstance(told.event, DatasetVersionPublished) and told.event.version.fields == () != of.fields
    directory.feed(lose(of, 3))
    assert asked(directory, "a", split="train") == ""
    assert "an update is not finished" in asked(directory, "b", fields={"txt": "text"})
    before = directory.machine.dump(directory.state)
    assert b"sizes" not in before and b"schemas" not in before and b"lost" not in before
    directory.machine = directory.machine.at(SIZES_SINCE)
    directory.feed(lose(of, 4))
    assert asked(directory, "c", split="train") == "", "sizes are not known yet"
    late = Directory().with_pools()
    late.feed(told.event)
    for effect in directory.feed(publish(of, "1.0.0", partitions=2)):
        late.feed(effect.event, str(effect.event_id))
    for each in (directory, late):
        assert "1 of the 20 shards" in asked(each, "d", split="train")
        assert "txt is text, not image" in asked(each, "e", split="test", fields={"txt": "image"})


def test_another_partition_has_the_same_and_a_state_is_read_back_alike() -> None:
    one, other = Directory().with_pools(), Directory().with_pools()
    requests = [publish(sized(), "1.0.0"), publish(version(text="text"), "2.0.0"), publish(version("MIT", text="text"), "2.1.0")]
    requests += [lose(sized(), 3), lose(sized(), 101, "test"), lose(sized(), 4)]  # type: ignore[list-item]
    requests.append(ReleaseShard(dataset="speech", sha256=sized().sha256, shard=f"{4:064x}"))  # type: ignore[arg-type]
    for request in requests:
        decided = one.feed(request)[-1].event
        assert other.feed(decided) == [] and other.feed(decided) == []
    assert {shard for _, shard in other.state.datasets.get("speech", sized().sha256).lost} == {f"{3:064x}", f"{101:064x}"}  # type: ignore[union-attr]
    machine = DirectoryMachine(control_partitions=4)
    dumped = machine.dump(other.state)
    assert machine.dump(machine.load(dumped)) == dumped == machine.dump(machine.load(dumped))
    read = Datasets.load(other.state.datasets.dump())
    for project in (None, "default"):
        assert read.held(project) == other.state.datasets.held(project) == one.state.datasets.held(project)
    [effect] = one.feed(publish(sized(), "1.0.0"))
    assert isinstance(effect.event, DatasetVersionPublished) and effect.event.quarantine is not None
    assert [each.split for each in effect.event.quarantine.lost] == ["test", "train"]


def test_schemas_count_once_and_none_is_kept_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {f"{'x' * 80}{n}": "text" for n in range(100)}
    directory = with_version(version("A", **table))
    held = directory.state.datasets.held("default").size_bytes
    directory.feed(publish(version("B", **table), "1.1.0"))
    again = directory.state.datasets.held("default").size_bytes
    assert held > 10_000 and again - held < 1000
    monkeypatch.setattr(datasets_module, "MAX_BYTES", 2 * again + 2000)
    directory.feed(publish(version("C", **table), "1.2.0"))
    assert "so many versions are known" in refused(directory.feed(publish(version("D", **table, y="text"), "1.3.0")))
    assert admitted(directory.feed(submit("a", data={"dataset": "speech@1.2.0", "fields": {f"json.{'x' * 80}1": "text"}}))).job_id == "a"


def test_what_a_directory_decided_carries_no_more_than_it_did_before() -> None:
    """A shard's event is as it was: what is lost follows from its evidence."""
    directory = with_version(sized())
    decided = directory.feed(lose(sized(), 3))[-1].event
    assert isinstance(decided, ShardQuarantined) and "lost" not in decided.model_dump(mode="json")
