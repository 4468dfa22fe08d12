"""The format of a shard: WebDataset reads it, any sample is read alone, the bytes follow from the samples, and damage is named."""

import hashlib
import os
import tarfile
from pathlib import Path

import pytest
import webdataset
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.profiles import examples
from trainhouse.workers.data.errors import DamagedShardError, InvalidDataError
from trainhouse.workers.data.shards import Sample, Shard, ShardFile, ShardIndex, ShardWriter, members, read_sample

NAMES = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters="./"), min_size=1, max_size=120)
KEYS = st.lists(NAMES, min_size=1, max_size=3).map("/".join).filter(lambda key: not key.startswith("__"))
FIELDS = st.dictionaries(st.sampled_from(["txt", "jpg", "seg.png", "cls", "json"]), st.binary(max_size=1500), min_size=1)
SAMPLES = st.lists(st.tuples(KEYS, FIELDS), min_size=1, max_size=12, unique_by=lambda sample: sample[0])


def written(folder: Path, samples: list[tuple[str, dict[str, bytes]]], most_bytes: int = 1 << 20) -> list[Shard]:
    folder.mkdir(exist_ok=True)
    with ShardWriter(folder, most_bytes) as writer:
        for key, fields in samples:
            writer.add(key, fields)
    return writer.shards


def read_back(folder: Path, shard: Shard) -> list[Sample]:
    index, tar = ShardIndex.load(folder / shard.index_name), ShardFile(folder / shard.tar_name)
    index.check(shard.sha256, shard.size_bytes, shard.samples)
    return [read_sample(tar, index.locate(position)) for position in range(len(index))]


@settings(max_examples=examples(100))
@given(SAMPLES, st.integers(1, 8000))
def test_every_sample_is_read_back_alone_and_by_webdataset(
    tmp_path_factory: pytest.TempPathFactory, samples: list[tuple[str, dict[str, bytes]]], most_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("shards")
    shards = written(folder, samples, most_bytes)
    assert [(sample.key, sample.fields) for shard in shards for sample in read_back(folder, shard)] == samples
    paths = [str(folder / shard.tar_name) for shard in shards]
    theirs = list(webdataset.WebDataset(paths, shardshuffle=False, empty_check=False))
    assert [(each["__key__"], {name: each[name] for name in each if not name.startswith("__")}) for each in theirs] == samples


@settings(max_examples=examples(50))
@given(SAMPLES)
def test_names_and_bytes_follow_from_the_samples_alone(
    tmp_path_factory: pytest.TempPathFactory, samples: list[tuple[str, dict[str, bytes]]]
) -> None:
    folder, other = tmp_path_factory.mktemp("shards"), tmp_path_factory.mktemp("others")
    shards = written(folder, samples, 4000)
    turned = [(key, dict(reversed(fields.items()))) for key, fields in samples]
    assert written(other, turned, 4000) == shards
    for shard in shards:
        tar, index = (folder / shard.tar_name).read_bytes(), (folder / shard.index_name).read_bytes()
        assert (tar, index) == ((other / shard.tar_name).read_bytes(), (other / shard.index_name).read_bytes())
        assert (hashlib.sha256(tar).hexdigest(), hashlib.sha256(index).hexdigest()) == (shard.sha256, shard.index_sha256)
        assert len(tar) == shard.size_bytes
    assert sorted(os.listdir(folder)) == sorted({name for shard in shards for name in (shard.tar_name, shard.index_name)})


def test_headers_hold_nothing_of_the_machine(tmp_path: Path) -> None:
    (shard,) = written(tmp_path, [("a", {"txt": b"x"}), ("b/" + "c" * 150, {"txt": b"y"})])
    with tarfile.open(tmp_path / shard.tar_name) as tar:
        for member in tar:
            assert (member.mtime, member.uid, member.gid, member.uname, member.gname, member.mode) == (0, 0, 0, "", "", 0o644)


def test_a_shard_ends_before_the_sample_that_would_take_it_over_its_size(tmp_path: Path) -> None:
    shards = written(
        tmp_path, [(f"{number:02}", {"bin": bytes(2000)}) for number in range(20)] + [("large", {"bin": bytes(20_000)})], 10_000
    )
    assert [shard.samples for shard in shards] == [3, 3, 3, 3, 3, 3, 2, 1]
    assert all(shard.size_bytes <= 10_000 for shard in shards[:-1])


def test_a_writer_that_fails_leaves_no_file_that_reads_as_a_shard(tmp_path: Path) -> None:
    with pytest.raises(InvalidDataError, match="'a' comes twice in one shard"), ShardWriter(tmp_path) as writer:
        writer.add("a", {"txt": b"1"})
        writer.add("a", {"txt": b"2"})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("key", ["", "a.b", "/a", "a//b", "../a", "a/../b", "__a", "a\nb", "a/", "x" * 5000])
def test_keys_that_webdataset_would_read_as_others_are_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(InvalidDataError, match="sample key"), ShardWriter(tmp_path) as writer:
        writer.add(key, {"txt": b""})


@pytest.mark.parametrize("extension", ["", "TXT", ".txt", "a..b", "a/b", "__key__", "é"])
def test_extensions_that_webdataset_would_read_as_others_are_refused(tmp_path: Path, extension: str) -> None:
    with pytest.raises(InvalidDataError, match="no extension that WebDataset reads back"), ShardWriter(tmp_path) as writer:
        writer.add("a", {extension: b""})


def test_a_sample_without_fields_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidDataError, match="has no fields"), ShardWriter(tmp_path) as writer:
        writer.add("a", {})


def test_damage_is_named(tmp_path: Path) -> None:
    first, second = (written(tmp_path, [(key, {"txt": b"x" * 600})])[0] for key in "ab")
    tar, index = tmp_path / first.tar_name, ShardIndex.load(tmp_path / first.index_name)
    with pytest.raises(DamagedShardError, match=r"index of another shard: of .* put its own index beside the shard"):
        index.check(second.sha256, second.size_bytes, second.samples)
    content = tar.read_bytes()
    tar.write_bytes(content[:600] + b"y" + content[601:])
    with pytest.raises(DamagedShardError, match=r"is damaged: the 600 bytes of sample 'a' from byte 512 on have another checksum"):
        read_sample(ShardFile(tar), index.locate(0))
    tar.write_bytes(content[:700])
    with pytest.raises(DamagedShardError, match=r"is truncated: sample 'a' is 600 bytes from byte 512 on, and 188 are there"):
        read_sample(ShardFile(tar), index.locate(0))


def test_no_bytes_pass_for_an_index_that_they_are_not(tmp_path: Path) -> None:
    (shard,) = written(tmp_path, [(f"k{number}", {"txt": b"abc", "cls": b"1"}) for number in range(5)])
    content = (tmp_path / shard.index_name).read_bytes()
    for length in range(len(content)):
        with pytest.raises(DamagedShardError, match="no index of a shard"):
            ShardIndex(content[:length], "index")
    for place in range(len(content)):
        changed = content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :]
        try:
            index = ShardIndex(changed, "index")
            located = [index.locate(position) for position in range(len(index))]
        except DamagedShardError:
            continue
        assert all(each.start + each.length_bytes <= index.shard_bytes for each in located)


@given(
    NAMES | st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=110),
    st.integers(0, members.MOST_FIELD_BYTES),
)
def test_a_header_is_the_one_of_tarfile(key: str, length_bytes: int) -> None:
    info = tarfile.TarInfo(f"{key}.txt")
    info.size = length_bytes
    assert members.header(f"{key}.txt", length_bytes) == info.tobuf(tarfile.PAX_FORMAT)
