"""An output: pieces are whole or not there, and the version follows from them alone."""

from __future__ import annotations

import hashlib
import io
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.profiles import examples
from trainhouse.checkpointing.stores.object_store import ObjectStat
from trainhouse.events.model.artifact import OF_DATASET
from trainhouse.events.model.artifact_keys import manifest_key, reference_key
from trainhouse.events.model.dataset import DatasetVersion, DataShard
from trainhouse.events.model.dataset_keys import index_key, shard_key
from trainhouse.events.model.output_names import (
    piece_profiles_key,
    pieces_prefix,
    rank_piece_key,
    rank_pieces_prefix,
    staged_index_key,
    staged_shard_key,
)
from trainhouse.workers.data.errors import DamagedShardError, InvalidDataError
from trainhouse.workers.data.outputs import sealing
from trainhouse.workers.data.outputs.pieces import Piece
from trainhouse.workers.data.outputs.sealing import seal, sweep_staged
from trainhouse.workers.data.outputs.staged_shard import check_index
from trainhouse.workers.data.outputs.written_once import MOST_TURNS
from trainhouse.workers.data.outputs.written_output import FolderOutputStore, JobOutputStore, Output
from trainhouse.workers.data.published_data import open_folder, open_split
from trainhouse.workers.data.publishing.field_profiles import FieldProfiles
from trainhouse.workers.data.publishing.sample_fields import canonical
from trainhouse.workers.data.settings import DataSettings
from trainhouse.workers.data.shards.index import Field, IndexBuilder, Located
from trainhouse.workers.data.stored_versions import problems_of, read_manifest, read_profiled, shards_of


def output(store: Any, rank: int = 0, epoch: int = 0, shard_bytes: int = 8192) -> Output:
    return Output(JobOutputStore(store, "j", "out", epoch, rank), rank, shard_bytes)


def sealed(store: Any, epoch: int = 0) -> DatasetVersion:
    return seal(store, "j", "lm", "out", epoch)


def texts(store: Any, version: DatasetVersion, split: str = "train") -> list[bytes]:
    found = open_split(f"out@sha256:{version.sha256}", "lm", split, store, DataSettings(cache_gib=0))
    return [found[n]["txt"] for n in range(len(found))]


def test_what_ranks_write_is_one_version_that_a_loader_reads() -> None:
    store = MemoryObjectStore()
    for rank in (1, 0):
        with output(store, rank) as out:
            for n in range(20):
                out.add({"txt": f"{rank}-{n}", "json": {"n": n}}, split="test" if n % 5 == 0 else "train")
    version = sealed(store)
    assert version.row_count == 40 and version.project == "lm" and sorted(version.splits) == ["test", "train"]
    assert version.splits["train"].shards > 2
    assert texts(store, version, "test") == [f"{rank}-{n}".encode() for rank in (0, 1) for n in (0, 5, 10, 15)]
    manifest = read_manifest(store, "lm", version.sha256)
    [source] = manifest.sources
    assert (source.kind, source.job, source.files) == ("job", "j", 2)
    assert {field.name: field.type for field in manifest.fields} == {"json": "json", "json.n": "int", "txt": "text"}
    assert manifest.splits["train"].statistics["txt"].samples == 32
    assert not [problem for _, shard in shards_of(manifest) for problem in problems_of(store, "lm", shard)]


def test_a_named_piece_stays_over_attempts_and_what_is_added_beside_does_not() -> None:
    store = MemoryObjectStore()
    first = output(store)
    with first.piece("part-0") as piece:
        piece.add({"txt": "kept"})
    first.add({"txt": "of the first attempt"})
    first.close()
    second = output(store, epoch=1)
    assert second.pieces() == {"part-0"}
    second.add({"txt": "of the second"})
    second.close()
    assert texts(store, sealed(store, epoch=1)) == [b"kept", b"of the second"]


def test_a_piece_whose_block_raises_is_not_there() -> None:
    store = MemoryObjectStore()
    out = output(store)
    with pytest.raises(ZeroDivisionError), out.piece("p") as piece:
        piece.add({"txt": "x"})
        raise ZeroDivisionError
    assert not out.pieces()


def test_of_two_pieces_of_one_name_the_first_counts() -> None:
    store = MemoryObjectStore()
    late = output(store, epoch=0).piece("p")
    late.add({"txt": "late"})
    with output(store, epoch=1).piece("p") as piece:
        piece.add({"txt": "first"})
    late.close()
    assert texts(store, sealed(store, epoch=1)) == [b"first"]


def test_an_empty_record_of_a_piece_counts_as_not_there_and_is_got_over(capsys: pytest.CaptureFixture[str]) -> None:
    store = MemoryObjectStore()
    for torn in ("p.json", "p.json.2"):
        store.put(f"{pieces_prefix('j', 'out')}{torn}", b"")
    assert not output(store).pieces() and "p.json" in "".join(capsys.readouterr())
    with pytest.raises(InvalidDataError, match=r"p\.json(\.2)? is no record of a piece"):
        sealed(store)
    for text in ("first", "second"):
        with output(store).piece("p") as piece:
            piece.add({"txt": text})
    with output(store).piece("p.json.3") as piece:
        piece.add({"txt": "of another name"}, key="k")
    assert output(store).pieces() == {"p", "p.json.3"} and texts(store, sealed(store)) == [b"first", b"of another name"]
    assert store.get(f"{pieces_prefix('j', 'out')}p.json") == b"", "nothing is replaced"


@pytest.mark.parametrize("torn", [b"", b'{"closed":tr', b'{"closed":"?"}'])
def test_of_torn_records_of_a_piece_the_first_whole_one_is_sealed(torn: bytes) -> None:
    store, alone = MemoryObjectStore(), MemoryObjectStore()
    store.put(f"{pieces_prefix('j', 'out')}p.json", torn)
    for each in (alone, store):
        out = output(each)
        assert not out.pieces(), "a torn one counts as not there: the piece is written again"
        with out.piece("p") as piece:
            piece.add({"txt": "whole"})
        assert out.pieces() == {"p"} == output(each, rank=1).pieces()
    assert sealed(store).sha256 == sealed(alone).sha256


def test_of_each_record_of_a_piece_that_is_whole_a_rank_reads_once() -> None:
    store, read = MemoryObjectStore(), list[str]()
    out = output(store)
    for name in ("a", "b"):
        with out.piece(name) as piece:
            piece.add({"txt": name})
    get = store.get
    store.get = lambda key: read.append(key) or get(key)  # type: ignore[method-assign,func-returns-value]
    assert out.pieces() == out.pieces() == {"a", "b"} and len(read) == 2


def test_a_record_with_torn_ones_under_all_of_its_keys_is_said_to_be_so() -> None:
    store = MemoryObjectStore()
    for turn in ("", *(f".{turn}" for turn in range(2, MOST_TURNS + 1))):
        store.put(f"{pieces_prefix('j', 'out')}p.json{turn}", b"")
    piece = output(store).piece("p")
    piece.add({"txt": "x"})
    with pytest.raises(DamagedShardError, match=r"p\.json and those beside it are torn; remove them"):
        piece.close()


@given(seed=st.integers(0, 2**32), pieces=st.integers(1, 6), epochs=st.integers(1, 3))
@settings(max_examples=examples(25), deadline=None)
def test_killed_anywhere_and_begun_anew_the_same_pieces_are_the_same_version(seed: int, pieces: int, epochs: int) -> None:
    chance, store, whole = random.Random(seed), MemoryObjectStore(), MemoryObjectStore()
    for epoch in range(epochs):
        out = output(store, epoch=epoch)
        for number in range(pieces):
            if f"p{number}" in out.pieces():
                continue
            piece = out.piece(f"p{number}")
            for n in range(number + 1):
                piece.add({"txt": f"{number}-{n}"})
            if epoch < epochs - 1 and chance.random() < 0.4:
                piece.drop()  # killed here; the next attempt goes on
                break
            piece.close()
    out = output(whole)
    for number in range(pieces):
        with out.piece(f"p{number}") as piece:
            for n in range(number + 1):
                piece.add({"txt": f"{number}-{n}"})
    assert sealed(store, epochs - 1) == sealed(whole) == sealed(store, epochs - 1)


def test_a_rank_that_did_not_close_its_output_makes_none() -> None:
    store = MemoryObjectStore()
    output(store, rank=3).add({"txt": "x"})
    with pytest.raises(InvalidDataError, match=r"rank 3 .* had not closed output out"):
        sealed(store)


def test_an_output_without_samples_is_none() -> None:
    with pytest.raises(InvalidDataError, match="output out has no sample"):
        sealed(MemoryObjectStore())


def test_a_shard_that_is_not_what_its_name_says_is_not_copied() -> None:
    store = MemoryObjectStore()
    with output(store) as out:
        out.add({"txt": "x"})
    [shard] = Piece.model_validate(orjson.loads(store.get(rank_piece_key("j", "out", 0, 0)))).splits["train"].shards
    store.put(staged_shard_key("j", "out", shard.sha256), b"\0" * shard.bytes)
    with pytest.raises(InvalidDataError, match="has other contents"):
        sealed(store)
    assert store.stat(shard_key("lm", shard.sha256)) is None


def test_a_record_that_is_none_is_refused() -> None:
    store = MemoryObjectStore()
    store.put(rank_piece_key("j", "out", 0, 0), b"{]")
    with pytest.raises(InvalidDataError, match="no record of a piece"):
        sealed(store)


def forged(store: MemoryObjectStore, record: dict[str, Any], key: str = rank_piece_key("j", "out", 0, 0)) -> None:
    store.put(key, orjson.dumps(record))


def a_shard(**more: Any) -> dict[str, Any]:
    return {"sha256": "c" * 64, "index_sha256": "c" * 64, "bytes": 1, "samples": 1} | more


def a_record(*shards: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"closed": True, "splits": {"train": {"shards": list(shards)}}, "fields": {}} | more


class SizedStore(MemoryObjectStore):
    """A store in which one object has a size of its own, and cannot be read."""

    def __init__(self, key: str, size_bytes: int) -> None:
        super().__init__()
        self.key, self.size_bytes = key, size_bytes

    def stat(self, key: str) -> ObjectStat | None:
        found = super().stat(key)
        return found if found is None or key != self.key else replace(found, size_bytes=self.size_bytes)

    def get(self, key: str) -> bytes:
        assert key != self.key, "read, though it is too large"
        return super().get(key)


@pytest.mark.parametrize(
    ("key", "size_bytes", "claimed", "why"),
    [
        (staged_shard_key("j", "out", "c" * 64), 500 << 30, 1, "a shard 4294967296 at most"),
        (staged_shard_key("j", "out", "c" * 64), 500 << 30, 500 << 30, "a shard 4294967296 at most"),
        (staged_shard_key("j", "out", "c" * 64), 2, 1, "has 2 bytes, and a piece of output out says 1"),
        (staged_index_key("j", "out", "c" * 64), 500 << 30, 1, "an index 67108864 at most"),
    ],
)
def test_what_is_larger_than_it_may_be_is_not_read(key: str, size_bytes: int, claimed: int, why: str) -> None:
    store = SizedStore(key, size_bytes)
    for staged in (staged_shard_key("j", "out", "c" * 64), staged_index_key("j", "out", "c" * 64)):
        store.put(staged, b"x")
    forged(store, a_record(a_shard(bytes=claimed)))
    with pytest.raises(InvalidDataError, match=why):
        sealed(store)
    assert not list(store.list("datasets/"))


@pytest.mark.parametrize(
    ("bound", "most", "why"),
    [
        ("MOST_PIECES", 2, "more than 2 pieces"),
        ("MOST_RECORDS_BYTES", 500, "more than 500 bytes together"),
        ("MOST_OUTPUT_SHARDS", 2, "more than 2 shards"),
        ("MOST_MANIFEST_BYTES", 100, "and may have 100"),
    ],
)
def test_an_output_beyond_a_bound_is_none(bound: str, most: int, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, bound, most)
    store = MemoryObjectStore()
    out = output(store)
    for number in range(3):
        with out.piece(f"p{number}") as piece:
            piece.add({"txt": str(number)})
    with pytest.raises(InvalidDataError, match=why):
        sealed(store)
    assert not list(store.list("datasets/"))


@pytest.mark.parametrize(
    "record",
    [
        a_record(*[a_shard(samples=2**53)] * 2),
        a_record(a_shard(), fields={"f": {"samples": 1, "types": ["x" * 100, "y" * 100]}}),
    ],
)
def test_a_forged_record_is_refused(record: dict[str, Any]) -> None:
    store = MemoryObjectStore()
    forged(store, record)
    with pytest.raises(InvalidDataError, match=r"write outputs by session\.output alone"):
        sealed(store)


def test_a_record_that_is_named_after_no_rank_is_refused() -> None:
    store = MemoryObjectStore()
    forged(store, {"closed": True}, rank_pieces_prefix("j", "out", 0) + "abc.json")
    with pytest.raises(InvalidDataError, match=r"abc\.json is named after no rank"):
        sealed(store)


def shard_of(store: MemoryObjectStore, job_id: str = "j") -> DataShard:
    [shard] = Piece.model_validate(orjson.loads(store.get(rank_piece_key(job_id, "out", 0, 0)))).splits["train"].shards
    return shard


def write_common(store: MemoryObjectStore, job_id: str) -> None:
    with Output(JobOutputStore(store, job_id, "out", 0, 0), 0, 8192) as out:
        for n in range(3):
            out.add({"txt": f"common {n}", "json": {"n": n}}, key=f"k{n}")


def other_index(shard: DataShard, how: str) -> bytes:
    """An index of the same tar that its writer does not make."""
    if how == "garbage":
        return b"garbage"
    built = IndexBuilder()
    built.add(Located("k0", (Field("txt", 512, 8),), bytes(16), 0))
    return built.content(shard.sha256, shard.bytes)


@pytest.mark.parametrize("how", ["garbage", "fewer samples"])
@pytest.mark.parametrize("tar_is_there", [False, True])
def test_a_job_spoils_no_shard_of_another_job(how: str, tar_is_there: bool) -> None:
    store = MemoryObjectStore()
    write_common(store, "evil")
    shard = shard_of(store, "evil")
    tar_key = staged_shard_key("evil", "out", shard.sha256)
    index = other_index(shard, how)
    store.put(staged_index_key("evil", "out", shard.sha256), index)
    if not tar_is_there:
        store.delete(tar_key)
    of_index = shard.model_copy(update={"index_sha256": hashlib.sha256(index).hexdigest(), "samples": 1})
    forged(store, a_record(of_index.model_dump()), rank_piece_key("evil", "out", 0, 0))
    for before in (True, False):
        with pytest.raises(InvalidDataError):
            seal(store, "evil", "lm", "out", 0)
        if before:
            assert not list(store.list("datasets/"))
            write_common(store, "good")
            version = seal(store, "good", "lm", "out", 0)
    assert [problems_of(store, "lm", each) for _, each in shards_of(read_manifest(store, "lm", version.sha256))] == [[]]


def test_an_index_that_is_another_than_the_tars_is_replaced() -> None:
    store = MemoryObjectStore()
    write_common(store, "j")
    shard = shard_of(store)
    good = store.get(staged_index_key("j", "out", shard.sha256))
    for bad in (b"spoiled", bytes(len(good))):
        store.put(index_key("lm", shard.sha256), bad)
        sealed(store)
        assert store.get(index_key("lm", shard.sha256)) == good


def test_a_shard_that_was_not_staged_is_none_though_the_project_has_it() -> None:
    store = MemoryObjectStore()
    write_common(store, "victim")
    seal(store, "victim", "lm", "out", 0)
    store.put(rank_piece_key("thief", "out", 0, 0), store.get(rank_piece_key("victim", "out", 0, 0)))
    with pytest.raises(InvalidDataError, match=r"jobs/thief/outputs/out/shards/.* is missing"):
        seal(store, "thief", "lm", "out", 0)


def test_a_second_try_copies_what_is_missing_alone() -> None:
    store, copied = MemoryObjectStore(), set[DataShard]()
    write_common(store, "j")
    version = seal(store, "j", "lm", "out", 0, copied=copied)
    store.delete(staged_shard_key("j", "out", shard_of(store).sha256))
    assert seal(store, "j", "lm", "out", 0, copied=copied) == version and len(copied) == 1


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(25), deadline=None)
def test_of_each_tar_the_index_of_its_writer_is_the_only_one(seed: int) -> None:
    chance, store = random.Random(seed), MemoryObjectStore()
    with output(store) as out:
        for n in range(chance.randint(1, 5)):
            names = chance.sample(["txt", "jpg", "seg.png", "a"], chance.randint(1, 4))
            fields = {name: chance.randbytes(chance.choice([0, 1, 511, 512, 513, 3000])) for name in names}
            out.add(fields, key=chance.choice(["k", "é", "a/b", "long" * 40]) + str(n))
    [(_, shard), *_] = shards_of(read_manifest(store, "lm", sealed(store).sha256))
    tar, index = store.get(shard_key("lm", shard.sha256)), bytearray(store.get(index_key("lm", shard.sha256)))
    index[chance.randrange(len(index))] ^= 1 << chance.randrange(8)
    with pytest.raises(DamagedShardError):
        check_index(io.BytesIO(index), io.BytesIO(tar), shard, "index")


@pytest.mark.parametrize(
    ("sample", "more", "why"),
    [
        ({}, {}, "has no fields"),
        ({"txt": object()}, {}, "encode it"),
        ({"json": b"{]"}, {}, "its json is none"),
        ({"txt": "x"}, {"split": "a/b"}, "split 'a/b'"),
    ],
)
def test_what_no_shard_can_hold_is_refused(sample: dict[str, Any], more: dict[str, Any], why: str) -> None:
    out = output(MemoryObjectStore())
    with pytest.raises(InvalidDataError, match=why):
        out.add(sample, **more)


def test_files_are_written_as_publish_reads_them(tmp_path: Path) -> None:
    (tmp_path / "a-1.txt").write_text("one")
    (tmp_path / "a-2.txt").write_text("two")
    store = MemoryObjectStore()
    with output(store) as out:
        assert out.add_files(tmp_path) == 2
    assert texts(store, sealed(store)) == [b"one", b"two"]


def test_outside_of_a_job_shards_are_in_a_folder(tmp_path: Path) -> None:
    with Output(FolderOutputStore(tmp_path / "out"), 0) as out:
        out.add({"txt": "x"})
        with out.piece("p") as piece:
            piece.add({"txt": "y"})
        assert out.pieces() == {"p"}
    found = open_folder(tmp_path / "out")
    assert sorted(found[n]["txt"] for n in range(len(found))) == [b"x", b"y"]


def test_what_a_job_staged_is_swept_once_it_is_over_and_all_of_it_is_old() -> None:
    now = [1_000.0]
    store = MemoryObjectStore(clock=lambda: now[0])
    with output(store) as out:
        out.add({"txt": "x"})
    version = sealed(store)
    now[0] += 100
    store.put("jobs/j/commits/0000000000", b"")
    assert sweep_staged(store, lambda _: True, grace_s=200) == 0
    assert sweep_staged(store, lambda _: False, grace_s=50) == 0
    assert sweep_staged(store, lambda job_id: job_id == "j", grace_s=50) == 4
    assert [stat.key for stat in store.list("jobs/")] == ["jobs/j/commits/0000000000"]
    assert texts(store, version) == [b"x"]  # what is published stays


VALUES = st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=70)
ROWS = st.lists(st.dictionaries(st.sampled_from(["a", "b", "c"]), VALUES, min_size=1), min_size=1, max_size=60)


@given(rows=ROWS, pieces=st.integers(1, 5), seed=st.integers(0, 2**32))
@settings(max_examples=examples(40), deadline=None)
def test_distributions_are_those_of_all_samples_however_they_are_shared_out(rows: list[dict[str, Any]], pieces: int, seed: int) -> None:
    chance, store, wanted = random.Random(seed), MemoryObjectStore(), FieldProfiles()
    parts: list[list[dict[str, Any]]] = [[] for _ in range(pieces)]
    for row in rows:
        chance.choice(parts).append(row)
        wanted.add({"json": canonical(row)}, row)
    out = output(store)
    for number, part in enumerate(parts):
        with out.piece(f"p{number}") as piece:
            for row in part:
                piece.add({"json": row})
    version = sealed(store)
    found = read_profiled(store, "lm", version.sha256).profiles
    assert found is not None and found.splits == {"train": wanted.profiles()}


def test_many_values_and_numbers_are_merged_as_exactly() -> None:
    store, wanted = MemoryObjectStore(), FieldProfiles()
    for rank in range(3):
        with output(store, rank) as out:
            for n in range(700):
                row = {"few": f"v{n % 90}", "many": f"{rank}-{n}", "x": (n - 300) * 1.7**rank}
                out.add({"json": row})
                wanted.add({"json": canonical(row)}, row)
    found = read_profiled(store, "lm", sealed(store).sha256).profiles
    assert found is not None and found.splits == {"train": wanted.profiles()}
    assert found.splits["train"]["json.x"].numbers is not None and found.splits["train"]["json.x"].numbers.shift > 0


def test_a_piece_of_an_older_program_has_no_distributions_and_neither_has_the_version() -> None:
    store = MemoryObjectStore()
    with output(store) as out:
        out.add({"txt": "x"})
    key = rank_piece_key("j", "out", 0, 0)
    record = orjson.loads(store.get(key))
    profiles_sha256 = record.pop("profiles")
    store.put(key, orjson.dumps(record))
    assert read_profiled(store, "lm", sealed(store).sha256).profiles is None
    store.put(key, orjson.dumps(record | {"profiles": profiles_sha256}))
    total = {"least": 0, "most": 1, "total": "f" * 1024, "shift": 0, "bins": [1], "counts": [1]}
    for bad in (b"{]", b'{"splits": {"other": {}}}', orjson.dumps({"splits": {"train": {"txt": {"samples": 1, "numbers": total}}}})):
        store.put(piece_profiles_key("j", "out", hashlib.sha256(bad).hexdigest()), bad)
        store.put(key, orjson.dumps(record | {"profiles": hashlib.sha256(bad).hexdigest()}))
        with pytest.raises(InvalidDataError, match=r"write outputs by session.output alone"):
            sealed(store)


def test_an_artifact_that_is_not_there_gets_no_reference() -> None:
    store, sha256 = MemoryObjectStore(), "ab" * 32
    with output(store) as out:
        out.made_with("tokenizer", sha256)
        out.add({"txt": "x"})
    with pytest.raises(InvalidDataError, match="which project lm does not have"):
        sealed(store)
    assert not list(store.list("project-artifacts/"))
    store.put(manifest_key("lm", sha256), b"{}")
    version = sealed(store)
    assert store.stat(reference_key("lm", sha256, f"{OF_DATASET}{version.sha256}")) is not None
