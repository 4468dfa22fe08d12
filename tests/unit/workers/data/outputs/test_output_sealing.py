"""An output: pieces are whole or not there, and the version follows from them alone."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.profiles import examples
from trainhouse.events.model.dataset import DatasetVersion
from trainhouse.events.model.dataset_names import shard_key
from trainhouse.events.model.output_names import rank_piece_key, staged_shard_key
from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.outputs.pieces import Piece
from trainhouse.workers.data.outputs.sealing import seal, sweep_staged
from trainhouse.workers.data.outputs.written_output import FolderOutputStore, JobOutputStore, Output
from trainhouse.workers.data.published_data import open_folder, open_split
from trainhouse.workers.data.settings import DataSettings
from trainhouse.workers.data.stored_versions import problems_of, read_manifest, shards_of


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
    assert sweep_staged(store, lambda job_id: job_id == "j", grace_s=50) == 3
    assert [stat.key for stat in store.list("jobs/")] == ["jobs/j/commits/0000000000"]
    assert texts(store, version) == [b"x"]  # what is published stays
