"""The loader over a published split: exact at any number of ranks over uneven shards, its order by shards, its bad samples counted."""

import json
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.profiles import examples
from tests.support.published_shards import published, written
from trainhouse.events.model.dataset_keys import index_key, shard_key
from trainhouse.workers import Session
from trainhouse.workers.data import Blocks, DamagedShardError, InvalidDataError, Loader, Mixture
from trainhouse.workers.data.batches import Share
from trainhouse.workers.data.data_loader import Excess, Reading, make_loader
from trainhouse.workers.data.order import ShardShuffled
from trainhouse.workers.data.published_data import open_cache, open_split
from trainhouse.workers.data.settings import DataSettings
from trainhouse.workers.data.sharded_dataset import BadSample, ShardedDataset
from trainhouse.workers.session.context import Context
from trainhouse.workers.session.errors import InvalidUseError

PROJECT = "default"


def number_of(sample: dict[str, Any]) -> int:
    return int(sample["cls"])


def as_list(samples: list[Any]) -> list[Any]:
    return samples


def loader(dataset: Any, batch: int, rank: int = 0, size: int = 1, **more: Any) -> Loader:
    reading = Reading(more.pop("workers", 0), more.pop("decode", number_of), as_list, max_bad=more.pop("max_bad", 0.001))
    return make_loader(
        dataset, Share(batch, rank, size), more.pop("seed", 5), more.pop("shuffle", Blocks(3, 2)), more.pop("last", None), reading
    )


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> list[ShardedDataset]:
    return [written(tmp_path_factory.mktemp("shards"), sizes) for sizes in ([30], [1, 20, 3], [7, 7, 7], [1] * 11)]


@settings(max_examples=examples(15))
@given(
    st.integers(0, 3),
    st.lists(st.tuples(st.sampled_from([1, 2, 3, 4, 6]), st.integers(0, 9), st.integers(0, 2)), min_size=1, max_size=4),
    st.integers(0, 2**64 - 1),
    st.sampled_from([True, Blocks(3, 2), False]),
)
def test_kills_and_resizes_lose_and_repeat_no_sample_of_uneven_shards(
    datasets: list[ShardedDataset], number: int, parts: list[tuple[int, int, int]], seed: int, shuffle: bool | Blocks
) -> None:
    dataset = datasets[number]
    used: list[int] = []
    state = None
    for size, saved, lost in parts:
        loaders = [loader(dataset, 12, rank, size, seed=seed, shuffle=shuffle) for rank in range(size)]
        for each in loaders:
            if state is not None:
                each.load_state_dict(json.loads(json.dumps(state)))
        used += [sample for _ in range(saved) for each in loaders for sample in next(each)]
        state = loaders[0].state_dict()
        assert all(each.state_dict() == state for each in loaders)
        for _ in range(lost):
            next(loaders[0])
    alone = loader(dataset, 12, seed=seed, shuffle=shuffle)
    assert used == [sample for _ in range(len(used) // 12) for sample in next(alone)]
    passes = len(used) // len(dataset)
    assert Counter(used[: passes * len(dataset)]) == Counter({sample: passes for sample in range(len(dataset)) if passes})


def test_worker_processes_read_shards_of_their_own_and_a_store_after_the_fork(datasets: list[ShardedDataset]) -> None:
    dataset = datasets[1]
    dataset[0]  # opened here too
    several, alone = loader(dataset, 4, workers=2), loader(dataset, 4)
    assert [next(several) for _ in range(15)] == [next(alone) for _ in range(15)]


def test_the_state_is_small_and_another_version_is_refused(datasets: list[ShardedDataset]) -> None:
    state = loader(datasets[0], 4, seed=2**64 - 1, shuffle=True).state_dict()
    assert len(json.dumps(state | {"samples": 10**8, "data_pass": 10**9, "position": 10**8})) <= 220
    assert state["scope"] == "gang" and state["shuffle"] == ["shards", 1024, 16]
    state = loader(datasets[2], 4, shuffle=False).state_dict()
    with pytest.raises(InvalidDataError, match=r"saved over the contents .* it is another version; give the version that it had then"):
        loader(range(21), 4, shuffle=False).load_state_dict(state | {"samples": 21})
    mixed = loader(Mixture([(datasets[0], 3), (datasets[1], 1)]), 4)
    assert len(next(mixed)) == 4


def damaged(tmp_path: Path, numbers: set[int]) -> ShardedDataset:
    """A dataset of 40 samples, of which these have other contents than their hash."""
    dataset = written(tmp_path, [40])
    path = tmp_path / dataset.shards[0].tar_name
    content = bytearray(path.read_bytes())
    for number in numbers:
        content[512 + 1024 * number] ^= 1
    path.write_bytes(content)
    return dataset


@pytest.mark.parametrize("workers", [0, 2])
def test_places_of_bad_samples_stay_empty_and_nobody_elses_order_moves(tmp_path: Path, workers: int) -> None:
    """streaming #759: one bad shard ended training."""
    bad = {3, 17}
    each = loader(damaged(tmp_path, bad), 8, workers=workers, shuffle=True, max_bad=0.1)
    order = ShardShuffled([40], 5, Blocks())
    for batch in range(5):
        positions = range(8 * batch, 8 * batch + 8)
        expected = [int(order.indices(*map(_array, (0, position)))[0]) for position in positions]
        assert next(each) == [sample for sample in expected if sample not in bad]
        assert each.weight == 1 - len(bad & set(expected)) / 8
    assert each.bad == 2 and each.state_dict()["position"] == 0


def _array(number: int) -> Any:
    return np.array([number])


def test_more_bad_samples_than_allowed_end_the_program(tmp_path: Path) -> None:
    each = loader(damaged(tmp_path, {0, 1, 2, 3}), 8, shuffle=False, max_bad=0.05)
    with pytest.raises(DamagedShardError, match=r"4 samples could not be read .* more than max_bad allows, 2 of 40: publish"):
        next(each)
    all_bad = loader(damaged(tmp_path, set(range(40))), 8, max_bad=1.0)
    with pytest.raises(DamagedShardError, match="none of the 8 samples of this rank's batch can be read or decoded"):
        next(all_bad)


def test_a_sample_that_is_bad_in_each_pass_counts_once_for_the_bound(tmp_path: Path) -> None:
    each = loader(damaged(tmp_path, {3}), 8, shuffle=False)  # 40 samples: 0.001 of them allow one
    for _ in range(5 * 4):
        next(each)
    assert each.bad == 4
    none = loader(damaged(tmp_path / "none", {3}), 8, shuffle=False, max_bad=0.0)
    with pytest.raises(DamagedShardError, match=r"1 samples could not be read .* more than max_bad allows, 0 of 40"):
        next(none)


def test_the_bound_of_a_mixture_is_of_its_datasets_samples(tmp_path: Path) -> None:
    parts = [(damaged(tmp_path / "one", set(range(0, 40, 4))), 1), (damaged(tmp_path / "other", set()), 1)]
    each = loader(Mixture(parts), 8, max_bad=0.1)
    with pytest.raises(DamagedShardError, match=r"9 samples could not be read .* more than max_bad allows, 8 of 80: publish"):
        for _ in range(200):
            next(each)
    enough = loader(Mixture(parts), 8, max_bad=0.125)
    for _ in range(200):
        next(enough)
    assert enough.bad > 10


@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_without_any_good_sample_has_another_one_with_no_weight(tmp_path: Path, workers: int) -> None:
    each = loader(damaged(tmp_path, {3, 39}), 1, workers=workers, shuffle=False, max_bad=1.0)
    batches, weights = [], []
    for _ in range(41):
        batches.append(next(each))
        weights.append(each.weight)
    assert batches == [[number if number not in (3, 39) else (number + 1) % 40] for number in (*range(40), 0)]
    assert weights == [0.0 if number in (3, 39) else 1.0 for number in range(41)] and each.bad == 2
    assert each.state_dict()["position"] == 1


def exchange(loaders: list[Loader]) -> None:
    """The counts of all ranks, as a session adds them up."""
    total = loaders[0].bad_of_gang + sum(each.bad_here for each in loaders)
    for each in loaders:
        each.exchanged(total)


@settings(max_examples=examples(15))
@given(
    st.lists(st.tuples(st.sampled_from([1, 2, 3, 4, 6]), st.integers(0, 9), st.integers(0, 2)), min_size=1, max_size=4),
    st.sets(st.integers(0, 39), max_size=6),  # of more, none of those that stand in may be good
    st.sampled_from([True, Blocks(3, 2), False]),
)
def test_bad_samples_leave_their_places_empty_at_any_size_and_are_counted_over_restarts(
    parts: list[tuple[int, int, int]], bad: set[int], shuffle: bool | Blocks
) -> None:
    """streaming #759."""
    with tempfile.TemporaryDirectory() as folder:
        dataset = damaged(Path(folder), bad)
        order = ShardShuffled([40], 5, shuffle if isinstance(shuffle, Blocks) else Blocks())
        state, step = None, 0
        for size, saved, lost in parts:
            loaders = [loader(dataset, 12, rank, size, shuffle=shuffle, max_bad=1.0) for rank in range(size)]
            for each in loaders:
                each.gathered = True
                if state is not None:
                    each.load_state_dict(json.loads(json.dumps(state)))
            for _ in range(saved):
                places = [divmod(12 * step + place, 40) for place in range(12)]
                numbers = [p if shuffle is False else int(order.indices(_array(d), _array(p))[0]) for d, p in places]
                for rank, each in enumerate(loaders):
                    own = numbers[12 // size * rank : 12 // size * (rank + 1)]
                    batch = next(each)
                    assert each.weight == 1 - sum(number in bad for number in own) / len(own)
                    assert batch == [number for number in own if number not in bad] or (each.weight == 0 and len(batch) == 1)
                step += 1
            exchange(loaders)
            state = loaders[0].state_dict()
            for _ in range(lost):
                next(loaders[0])
        used = [divmod(position, 40) for position in range(12 * step)]
        expected = [p if shuffle is False else int(order.indices(_array(d), _array(p))[0]) for d, p in used]
        assert state is not None and state.get("bad", 0) == sum(number in bad for number in expected)


def test_ranks_together_have_too_many_where_each_alone_has_not_and_what_is_accepted_comes_on_top(tmp_path: Path) -> None:
    dataset = damaged(tmp_path, {0, 6, 12, 18})
    loaders = [loader(dataset, 8, rank, 2, shuffle=False, max_bad=0.05) for rank in range(2)]
    for each in loaders:
        each.gathered = True
    for _ in range(2):
        assert [len(next(each)) for each in loaders]
    assert [each.bad_here for each in loaders] == [1, 2] and not any(each.excess() for each in loaders)
    exchange(loaders)
    excess = loaders[1].excess()
    assert excess is not None and (excess.bad, excess.allowed, excess.samples) == (3, 2, 40)
    state = loaders[0].state_dict()
    assert state["bad"] == 3
    reading = Reading(0, number_of, as_list, max_bad=0.05, accepted_bad=3)
    going_on = make_loader(dataset, Share(8), 5, False, None, reading)
    going_on.gathered = True
    going_on.load_state_dict(state)
    for _ in range(3):
        next(going_on)
    assert going_on.excess() is None and going_on.bad_here == 1
    for _ in range(2):
        next(going_on)
    assert going_on.excess() is None, "a new pass allows its own share"


@pytest.mark.parametrize(("saved_by", "read_by", "count"), [("a", "a", 3), ("a", "b", 0), ("", "b", 3), ("a", "", 0)])
def test_the_count_of_another_job_that_a_job_begins_from_is_not_its_own(tmp_path: Path, saved_by: str, read_by: str, count: int) -> None:
    """Of a state without a job's id the count is taken, as before there was one."""
    dataset = damaged(tmp_path, {0, 1, 2})
    saved, begun = (
        make_loader(dataset, Share(8), 5, False, None, Reading(0, number_of, as_list, max_bad=0.1, job_id=job))
        for job in (saved_by, read_by)
    )
    next(saved)
    exchange([saved])
    begun.load_state_dict(json.loads(json.dumps(saved.state_dict())))
    assert begun.bad_of_gang == count and begun.state_dict()["position"] == 8


class Found:
    """What a loader reported."""

    def __init__(self) -> None:
        self.shards: list[tuple[str, str, str, str]] = []
        self.excesses: list[Excess] = []

    def found(self, bad: BadSample) -> None:
        self.shards.append((bad.shard, str(bad.fault), bad.sample, bad.seen))

    def exceeded(self, excess: Excess) -> None:
        self.excesses.append(excess)


@pytest.mark.parametrize("workers", [0, 1])
def test_evidence_names_the_shard_the_sample_and_what_was_there(tmp_path: Path, workers: int) -> None:
    objects = MemoryObjectStore()
    version = published(tmp_path / "shards", [4, 4, 4, 4, 16], objects)
    dataset = open_split(version, PROJECT, "train", objects, DataSettings(cache_gib=0))
    missing, cut, wrong, whole, _ = dataset.shards
    objects.delete(shard_key(PROJECT, missing.sha256))
    objects.put(shard_key(PROJECT, cut.sha256), objects.get(shard_key(PROJECT, cut.sha256))[:1500])
    objects.put(index_key(PROJECT, wrong.sha256), objects.get(index_key(PROJECT, missing.sha256)))
    first = {shard.sha256: dataset._ends[n] - shard.samples for n, shard in enumerate(dataset.shards)}[whole.sha256]

    def decode(sample: dict[str, Any]) -> int:
        if sample["__key__"] == f"s{first_key}":
            raise ValueError("no label Ada Lovelace")
        return int(sample["cls"])

    first_key = int(dataset[int(first)]["cls"])
    each = loader(dataset, 32, workers=workers, shuffle=False, max_bad=1.0, decode=decode)
    each.reports = reports = Found()
    batch = next(each)
    assert len(batch) == 32 - 4 - 3 - 4 - 1 and each.weight == len(batch) / 32
    by_shard = {shard: (fault, sample, seen) for shard, fault, sample, seen in reversed(reports.shards)}
    assert by_shard[missing.sha256] == ("missing", "", "no such object")
    assert by_shard[cut.sha256][0] == "truncated" and by_shard[cut.sha256][2].endswith("bytes")
    assert by_shard[wrong.sha256][0] == "wrong_hash"
    assert whole.sha256 not in by_shard, "what decode raises says nothing of a shard whose bytes are as published"


def test_a_bad_sample_costs_no_other_one_of_its_shard_its_second_read(tmp_path: Path) -> None:
    """Which places are empty does not follow from what was bad before."""
    objects = MemoryObjectStore()
    version = published(tmp_path / "shards", [6], objects)
    dataset = open_split(version, PROJECT, "train", objects, DataSettings(cache_gib=0))
    key = shard_key(PROJECT, dataset.shards[0].sha256)
    content = bytearray(objects.get(key))
    content[512] ^= 1
    objects.put(key, bytes(content))
    each = loader(dataset, 3, shuffle=False, max_bad=1.0)
    assert next(each) == [1, 2]
    asked, get_range = [], objects.get_range

    def damaged_once(*args: Any) -> bytes:
        read = get_range(*args)
        asked.append(args)
        return read if len(asked) > 1 else bytes([read[0] ^ 1]) + read[1:]

    objects.get_range = damaged_once  # type: ignore[method-assign]
    assert next(each) == [3, 4, 5] and len(asked) == 4


def test_a_store_without_the_versions_manifest_is_away_and_its_shards_are_not_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A proxy or an emptied bucket that answers 404 to everything."""
    objects = MemoryObjectStore()
    version = published(tmp_path / "shards", [6], objects)
    dataset = open_split(version, PROJECT, "train", objects, DataSettings(cache_gib=0))
    kept = {found.key: objects.get(found.key) for found in objects.list("")}
    for key in kept:
        objects.delete(key)
    stat = objects.stat

    def back_after_this(key: str) -> Any:
        answer = stat(key)
        for name, content in kept.items():
            objects.put(name, content)
        return answer

    objects.stat = back_after_this  # type: ignore[method-assign]
    each = loader(dataset, 6, shuffle=False)
    assert next(each) == list(range(6)) and each.bad == 0
    assert "the loader waits for the store, its shards are not at fault: memory: " in capsys.readouterr().err


@pytest.mark.parametrize("max_bad", [-0.1, 1.5, float("nan")])
def test_a_share_of_bad_samples_that_is_none_is_refused(datasets: list[ShardedDataset], max_bad: float) -> None:
    with pytest.raises(InvalidDataError, match=r"max_bad=.*: give a share of the samples, from 0 to 1"):
        loader(datasets[0], 4, max_bad=max_bad)


def test_a_sample_that_cannot_be_decoded_leaves_its_place_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def decode(sample: dict[str, Any]) -> int:
        return 1 // (int(sample["cls"]) - 4)

    each = loader(written(tmp_path, [1000]), 10, decode=decode, shuffle=False)
    assert len(next(each)) == 9 and each.weight == 0.9 and each.bad == 1
    assert f"sample 4 of {tmp_path} is left out: decode raised ZeroDivisionError: integer division" in capsys.readouterr().err


def test_reports_hold_nothing_of_what_a_sample_contains(tmp_path: Path) -> None:
    """An error's text often quotes the value that it is about."""

    def decode(sample: dict[str, Any]) -> int:
        return int("Ada Lovelace")

    each = loader(written(tmp_path, [4]), 2, decode=decode, max_bad=0.2)
    each.reports = reports = Found()
    with pytest.raises(DamagedShardError, match="the last one because: decode raised ValueError; these are more"):
        next(each)
    assert not any(shard for shard, *_ in reports.shards) and "Ada" not in repr((reports.shards, reports.excesses))


def test_a_split_is_opened_by_the_hash_of_its_version(tmp_path: Path) -> None:
    objects = MemoryObjectStore()
    version = published(tmp_path / "shards", [5, 9], objects)
    for gib in (0, 1):
        dataset = open_split(version, PROJECT, "train", objects, DataSettings(cache_dir=tmp_path / "cache", cache_gib=gib))
        each = loader(dataset, 7, workers=2)
        assert Counter(sample for _ in range(2) for sample in next(each)) == Counter(range(14))
    assert any((tmp_path / "cache" / PROJECT).glob("*.idx"))
    with pytest.raises(InvalidDataError, match="has no split 'test': name one of train"):
        open_split(version, PROJECT, "test", objects, DataSettings())
    with pytest.raises(InvalidDataError, match=r"numbers@1.0.0: name the version by its hash"):
        open_split("numbers@1.0.0", PROJECT, "train", objects, DataSettings())


def test_a_cache_in_memory_that_was_not_asked_for_is_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A confined job's folder for temporary files is in memory, which counts for its limit."""
    if not any(part.mountpoint == "/dev/shm" and part.fstype == "tmpfs" for part in psutil.disk_partitions(all=True)):
        pytest.skip("/dev/shm is no tmpfs here")
    monkeypatch.setattr(tempfile, "tempdir", "/dev/shm")
    for gib, most_bytes in ((None, 2**30), (100, 2**30), (0.5, 2**29)):
        cache = open_cache(DataSettings(cache_gib=gib), PROJECT)
        assert cache is not None and 0 < cache.most_bytes <= most_bytes
    assert open_cache(DataSettings(cache_gib=0), PROJECT) is None
    named = open_cache(DataSettings(cache_dir=Path("/dev/shm/none"), cache_gib=100), PROJECT)
    assert named is not None and named.most_bytes == 100 * 2**30
    on_disk = open_cache(DataSettings(cache_dir=tmp_path, cache_gib=100), PROJECT)
    assert on_disk is not None and on_disk.most_bytes == 100 * 2**30


def test_a_session_without_a_version_says_how_to_name_one(tmp_path: Path) -> None:
    missing = pytest.raises(InvalidUseError, match=r"loader\('train'\): the job's spec names no version of a dataset; give data:")
    with Session.start(context=Context(spool=tmp_path / "spool.jsonl")) as session, missing:
        session.loader("train", batch=4)
    assert Context.from_env({"TRAINHOUSE_DATASET": "digits@1.0.0"}).data is not None
    with pytest.raises(InvalidUseError, match="TRAINHOUSE_DATASET='digits'"):
        Context.from_env({"TRAINHOUSE_DATASET": "digits"})


def test_fewer_shards_than_ranks_and_workers_give_each_its_samples(tmp_path: Path) -> None:
    """datasets #8669: workers without data; webdataset #225: uneven shards hang DDP."""
    dataset = written(tmp_path, [50])
    loaders = [loader(dataset, 16, rank, 8, workers=1, shuffle=True) for rank in random.Random(1).sample(range(8), 8)]
    batches = [[next(each) for each in loaders] for _ in range(6)]
    assert all(len(share) == 2 for batch in batches for share in batch)
    used = [sample for batch in batches for share in batch for sample in share]
    assert len(set(used[:48])) == 48
