"""Splits by time: no sample of a later split is older than one of an earlier split."""

import json
import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.fakes.memory_store import MemoryObjectStore
from trainhouse.events.model.dataset import Manifest
from trainhouse.events.model.dataset_keys import shard_key
from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.published_data import stored_sample
from trainhouse.workers.data.publishing.bounded_files import LocalRoot
from trainhouse.workers.data.publishing.publication import Publication, Terms
from trainhouse.workers.data.publishing.rebuilding import rebuild_shards
from trainhouse.workers.data.publishing.sources import source_of
from trainhouse.workers.data.publishing.time_split import TimeSplitRule
from trainhouse.workers.data.stored_versions import problems_of, shards_of

SPLITS = "train,validation=2026-05-01,test=2026-06-01T12:00:00+02:00"


def published(path: Path, rows: list[dict[str, Any]], rule: TimeSplitRule, objects: MemoryObjectStore | None = None) -> Manifest:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Publication(source_of(LocalRoot(path)), rule, Terms()).publish(objects or MemoryObjectStore(), "sales")


def split(value: object, text: str = SPLITS) -> str:
    return TimeSplitRule.parse(text, "at").split_of("k", {"at": value})


def test_a_time_is_in_the_split_that_began_last() -> None:
    assert [split(at) for at in ("1999-01-01", "2026-04-30T23:59:59.999999999Z", "2026-05-01", "2026-05-01T00:30:00+01:00")] == [
        "train", "train", "validation", "train",
    ]  # fmt: skip
    assert [split(at) for at in ("2026-06-01T09:59:59Z", "2026-06-01T10:00:00Z")] == ["validation", "test"]
    numbers = "train,test=1790000000.5"
    assert [split(at, numbers) for at in (0, 1_790_000_000, 1_790_000_000.5, 2e9)] == ["train", "train", "test", "test"]
    assert split("1790000001", numbers) == "test", "as CSV has numbers"


def test_integers_are_compared_as_integers() -> None:
    begin = 1_790_000_000_000_000_001  # ns, and no float
    for text in (f"train,test={begin}", f"train,a=-5.5,test={begin}"):
        rule = TimeSplitRule.parse(text, "at")
        assert TimeSplitRule.of_json(rule.canonical_json()) == rule
        assert [rule.split_of("k", {"at": at}) for at in (begin - 1, begin, str(begin - 1), str(begin), float(begin))] == [
            rule.names[-2], "test", rule.names[-2], "test", rule.names[-2],
        ]  # fmt: skip
    assert json.loads(rule.canonical_json())["begins"] == {"a": -5.5, "test": begin}
    # An integer that is a float too is written as one, as ever.
    assert '{"test":1.79e+18}' in TimeSplitRule.parse("train,test=1790000000000000000", "at").canonical_json()
    assert '{"test":5.0}' in TimeSplitRule.parse("train,test=5", "at").canonical_json()
    assert split(2**64 - 1, f"train,test={2**64 - 1}") == "test" == split(10**20, f"train,test={10**20 - 1}")


@pytest.mark.parametrize("value", [None, "yesterday", True, [1], {"a": 1}, "", "9999-12-31T23:59:59-12:00"])
def test_a_sample_without_a_time_is_refused(value: object) -> None:
    with pytest.raises(InvalidDataError, match=r"sample 'k': its 'at' is .* no time to be split by"):
        split(value)
    with pytest.raises(InvalidDataError, match="its 'at' is a number, and splits begin at ISO 8601; write both alike"):
        split(5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train", "2 to 16"),
        ("train=0.9,test=0.1", "all but the first with the time"),
        ("train,test=soon", "test=soon: that is no time"),
        ("train,test", "that is no time"),
        ("train,train=2026-01-01", "each split once"),
        ("train,a=2026-01-02,b=2026-01-01", "each later than the one before"),
        ("train,a=2026-01-02,b=7", "all ISO 8601, or all numbers"),
        ("tr/ain,a=2026-01-02", "each split once"),
    ],
)
def test_splits_that_cannot_be_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidDataError, match=message):
        TimeSplitRule.parse(text, "at")


def test_a_published_version_is_split_by_time_in_any_order_of_rows(tmp_path: Path) -> None:
    begin = datetime.fromisoformat("2026-04-01T00:00:00+00:00")
    rows = [{"at": (begin + timedelta(hours=5 * n)).isoformat(), "n": n} for n in range(400)]
    random.Random(1).shuffle(rows)
    rule, objects = TimeSplitRule.parse(SPLITS, "at"), MemoryObjectStore()
    made = published(tmp_path / "a.jsonl", rows, rule, objects)
    assert {name: part.samples for name, part in made.splits.items()} == {"train": 144, "validation": 151, "test": 105}
    times = {
        name: [json.loads(stored_sample(objects, "sales", part, n).fields["json"])["at"] for n in (0, part.samples - 1)]
        for name, part in made.splits.items()
    }
    assert max(times["train"]) < min(times["validation"]) <= max(times["validation"]) < min(times["test"])
    assert json.loads(made.split_rule) == {
        "by_time": "at", "first": "train", "begins": {"validation": "2026-05-01T00:00:00+00:00", "test": "2026-06-01T10:00:00+00:00"},
    }  # fmt: skip
    again = TimeSplitRule.parse("train,validation=2026-05-01T00:00Z,test=2026-06-01T10:00Z", "at")
    assert published(tmp_path / "b.jsonl", rows, again).sha256() == made.sha256()


def test_shards_of_splits_by_time_are_rebuilt_from_their_source(tmp_path: Path) -> None:
    source, objects = tmp_path / "a.jsonl", MemoryObjectStore()
    made = published(source, [{"at": n} for n in range(30)], TimeSplitRule.parse("z,b=10,a=20", "at"), objects)
    shards = [shard.sha256 for _, shard in shards_of(made)]
    for shard in shards:
        objects.delete(shard_key("sales", shard))
    assert rebuild_shards(objects, "sales", made, shards, LocalRoot(source), 128 << 20) == {}
    assert [problems_of(objects, "sales", shard) for _, shard in shards_of(made)] == [[]] * 3


def test_an_empty_split_names_itself(tmp_path: Path) -> None:
    with pytest.raises(InvalidDataError, match=r"split test of .* is empty"):
        published(tmp_path / "a.jsonl", [{"at": "2026-01-01"}, {"at": "2026-05-02"}], TimeSplitRule.parse(SPLITS, "at"))
