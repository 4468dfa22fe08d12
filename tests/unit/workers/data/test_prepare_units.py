"""Units of a preparation over a store: whichever ranks and attempts do them, in whatever order, the version is the same."""

from __future__ import annotations

import hashlib
import io
import json
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.profiles import examples
from tests.unit.workers.session.test_session_boundary import SavedInMemory
from trainhouse.events.model.dataset import DatasetVersion
from trainhouse.events.model.node import RankActivity
from trainhouse.events.model.output_names import work_prefix
from trainhouse.events.model.spec import DataReference
from trainhouse.workers.data.errors import DamagedShardError, InvalidDataError
from trainhouse.workers.data.outputs.sealing import seal
from trainhouse.workers.data.outputs.staged_shard import MOST_SHARD_BYTES
from trainhouse.workers.data.outputs.written_output import JobOutputStore, Output
from trainhouse.workers.data.prepare.preparation import Preparation
from trainhouse.workers.data.prepare.preparation_job import run
from trainhouse.workers.data.prepare.row_runs import Run, UnitRecord, WorkStore
from trainhouse.workers.data.prepare.row_steps import ColumnMoments
from trainhouse.workers.data.prepare.shard_plan import PlannedPiece, planned_pieces
from trainhouse.workers.data.prepare.source_units import UnitReader
from trainhouse.workers.data.prepare.tokens import open_tokenizer
from trainhouse.workers.data.prepare.unit_steps import UnitSteps, _own_key, moments_of, pieces_of
from trainhouse.workers.data.published_data import open_split
from trainhouse.workers.data.settings import DataSettings
from trainhouse.workers.data.stored_versions import read_manifest, read_profiled
from trainhouse.workers.session import Session
from trainhouse.workers.session.context import Context
from trainhouse.workers.session.logging.sink import open_sink
from trainhouse.workers.session.process_groups import Gang

ROWS = 60


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINHOUSE_DATA_CACHE_GIB", "0")


def source(store: MemoryObjectStore, rows: int = ROWS, shard_bytes: int = 8192) -> str:
    """A version of several shards."""
    with Output(JobOutputStore(store, "s", "raw", 0, 0), 0, shard_bytes) as out:
        for n in range(rows):
            out.add({"json": {"n": n, "text": f"  Row {n} ", "user": n % 7}, "bin": b"x" * 10})
    return f"raw@sha256:{seal(store, 's', 'lm', 'raw', 0).sha256}"


def rules(version: str, **fields: Any) -> Preparation:
    return Preparation.parse({"source": version, "output": "out"} | fields)


def reader(store: MemoryObjectStore, steps: UnitSteps) -> UnitReader:
    return UnitReader(store, "lm", steps.rules.source, steps.shard_bytes)


def prepared(store: MemoryObjectStore, steps: UnitSteps, ranks: int = 1, chance: random.Random | None = None) -> DatasetVersion:
    """Runs it with so many ranks in turn; where there is `chance`, attempts are killed within units and pieces, and have other ranks."""
    source, job = reader(store, steps), f"j{ranks}-{id(chance)}"
    work = WorkStore(store, work_prefix(job, "out"))

    def killed() -> bool:
        return chance is not None and epoch < 3 and chance.random() < 0.2

    for epoch in range(4):
        count = ranks if chance is None else chance.randint(1, ranks)
        if not all(_units(source, steps, work, rank, count, killed) for rank in range(count)):
            continue
        records = [work.record(unit.name) for unit in source.units]
        planned, moments = pieces_of(records, steps), moments_of(records, steps.rules)
        if all(_pieces(store, job, epoch, rank, planned[rank::count], source, steps, work, moments, killed) for rank in range(count)):
            break
    return seal(store, job, "lm", "out", epoch)


def _units(source: UnitReader, steps: UnitSteps, work: WorkStore, rank: int, count: int, killed: Callable[[], bool]) -> bool:
    for unit in source.units[rank::count]:
        if unit.name not in work.names():
            if killed():
                return False
            steps.keep(source.samples(unit), source.source_bytes, work, unit)
    return True


def _pieces(
    store: MemoryObjectStore,
    job: str,
    epoch: int,
    rank: int,
    planned: list[PlannedPiece],
    source: UnitReader,
    steps: UnitSteps,
    work: WorkStore,
    moments: ColumnMoments,
    killed: Callable[[], bool],
) -> bool:
    out = Output(JobOutputStore(store, job, "out", epoch, rank), rank, MOST_SHARD_BYTES)
    for piece in planned:
        if piece.name in out.pieces():
            continue
        writer = out.piece(piece.name)
        steps.write(piece, source.units, work, moments, writer)
        if killed():
            writer.drop()
            return False
        writer.close()
    return True


def shards(store: MemoryObjectStore, version: DatasetVersion, split: str) -> list[dict[str, Any]]:
    found = open_split(f"out@sha256:{version.sha256}", "lm", split, store, DataSettings(cache_gib=0))
    return [found[n] for n in range(len(found))]


def rows(store: MemoryObjectStore, version: DatasetVersion, split: str = "train") -> list[dict[str, Any]]:
    return [json.loads(sample["json"]) for sample in shards(store, version, split)]


@given(ranks=st.integers(1, 4), seed=st.integers(0, 2**32), shuffle=st.none() | st.integers(0, 5))
@settings(max_examples=examples(15), deadline=None)
def test_ranks_and_kills_change_nothing(ranks: int, seed: int, shuffle: int | None) -> None:
    store = MemoryObjectStore()
    fields: dict[str, Any] = {"split": {"shares": "train=0.7,test=0.3", "by": "user"}, "normalise": ["n"], "shuffle": shuffle}
    fields["shard_mib"] = 0.02
    steps = UnitSteps(rules(source(store), **fields))
    alone, shared = prepared(store, steps), prepared(store, steps, ranks, random.Random(seed))
    assert alone.splits == shared.splits and alone.row_count == ROWS
    assert all(rows(store, alone, split) == rows(store, shared, split) for split in alone.splits)


def test_all_steps_in_their_order() -> None:
    store = MemoryObjectStore()
    fields = {
        "check": {"n": {"type": "int", "most": 49}},
        "invalid": "drop",
        "clean": {"text": ["strip", "lower"]},
        "split": {"shares": "train=0.5,test=0.5", "by": "user"},
        "normalise": ["n"],
    }
    version = prepared(store, UnitSteps(rules(source(store), **fields)))
    assert version.row_count == 50 and set(version.splits) == {"train", "test"}
    train, test = rows(store, version), rows(store, version, "test")
    assert not {row["user"] for row in train} & {row["user"] for row in test}
    assert abs(np.mean([row["n"] for row in train])) < 1e-9 and abs(np.std([row["n"] for row in train]) - 1) < 1e-9
    assert all(row["text"].startswith("row ") for row in train + test)
    assert shards(store, version, "train")[0]["bin"] == b"x" * 10


def test_a_shuffle_changes_the_order_alone() -> None:
    store = MemoryObjectStore()
    version = source(store)
    plain, mixed = prepared(store, UnitSteps(rules(version))), prepared(store, UnitSteps(rules(version, shuffle=1)), 2)
    assert rows(store, plain) != rows(store, mixed)
    assert sorted(row["n"] for row in rows(store, mixed)) == [row["n"] for row in rows(store, plain)] == list(range(ROWS))


def test_texts_become_tokens(tmp_path: Path) -> None:
    words = Tokenizer(models.WordLevel({"Row": 5, "[UNK]": 0}, unk_token="[UNK]"))  # type: ignore[arg-type]
    words.pre_tokenizer = pre_tokenizers.Whitespace()  # type: ignore[assignment]
    words.save(str(tmp_path / "words.json"))
    store = MemoryObjectStore()
    step = {"column": "text", "tokenizer": "words.json", "most_tokens": 1}
    wanted = rules(source(store), tokenise=step)
    version = prepared(store, UnitSteps(wanted, open_tokenizer(wanted, tmp_path)))
    sample = shards(store, version, "train")[3]
    assert np.load(io.BytesIO(sample["tokens.npy"])).tolist() == [5] and "text" not in json.loads(sample["json"])
    with pytest.raises(InvalidDataError, match="no tokenizer"):
        open_tokenizer(rules("a@1.0.0", tokenise=step | {"tokenizer": "none.json"}), tmp_path)


def test_the_id_of_a_version_stays_as_it_was(tmp_path: Path) -> None:
    """All steps at once, over keys and texts of all kinds: a hash that was written down before anything was made faster."""
    words = Tokenizer(models.BPE(vocab={c: n for n, c in enumerate("abcdefghijklmnopqrstuvwxyz0123456789é")}, merges=[]))
    words.pre_tokenizer = pre_tokenizers.Whitespace()  # type: ignore[assignment]
    words.save(str(tmp_path / "letters.json"))
    store, accented = MemoryObjectStore(), "cafe\u0301"
    with Output(JobOutputStore(store, "s", "raw", 0, 0), 0, 8192) as out:
        for n in range(300):
            text = f"\u2003 row\t\n {n} {accented * (n % 5)}  x\x1c{n * 7919} "
            row = {"n": n * 1.5 - 20, "text": text, "user": n % 7, "late": None if n % 3 else "2026", "flags": [n % 2 == 0] * (n % 4)}
            key = f"folder/{'k' * (n % 140)}é{n}" if n % 10 == 0 else f"{n}-{'k' * (n % 120)}"
            out.add({"json": row, "bin": b"x" * (n % 600), "seg.png": b""}, key=key)
    raw = f"raw@sha256:{seal(store, 's', 'lm', 'raw', 0).sha256}"
    fields = {
        "check": {"n": {"least": -5}},
        "invalid": "drop",
        "clean": {"text": ["nfc", "collapse", "lower"]},
        "split": {"shares": "train=0.7,test=0.3", "by": "user"},
        "normalise": ["n"],
        "tokenise": {"column": "text", "tokenizer": "letters.json", "most_tokens": 20, "keep_text": True},
        "shuffle": 7,
        "shard_mib": 0.1,
    }
    wanted = rules(raw, **fields)
    version = prepared(store, UnitSteps(wanted, open_tokenizer(wanted, tmp_path)), 2)
    found = read_profiled(store, "lm", version.sha256)
    assert found.profiles is not None
    # Without its source, which has the job's id.
    manifest = found.manifest.model_copy(update={"sources": ()}).canonical_json()
    kept = [hashlib.sha256(content).hexdigest()[:16] for content in (manifest, found.profiles.canonical_json())]
    golden = ("d98e0db99c3e461f", "4bb3465f10740394", "868b3c65bf23ddd0")  # pragma: allowlist secret
    assert version.row_count == 290 and (raw[-64:-48], *kept) == golden


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"check": {"other": {}}}, "has no other"),
        ({"normalise": ["text"]}, "only numbers are normalised"),
        ({"split": {"shares": "train=0.5,test=0.5", "by": "other"}}, "has no value 'other'"),
    ],
)
def test_rows_that_do_not_fit_end_it(fields: dict[str, Any], why: str) -> None:
    store = MemoryObjectStore()
    with pytest.raises(InvalidDataError, match=why):
        prepared(store, UnitSteps(rules(source(store), **fields)))


def test_units_of_another_projects_version_are_read_where_its_owner_has_them() -> None:
    store = MemoryObjectStore()
    units = UnitReader.of(DataReference(dataset=source(store), owner="lm", purpose="research"), "vision", store, 8192)
    assert len(units.units) > 5 and sum(len(list(units.samples(unit))) for unit in units.units) == ROWS


@pytest.mark.parametrize("shuffle", [None, 3])
@pytest.mark.parametrize("shard_bytes", [4096, 10**7])
def test_small_shards_are_joined_and_big_ones_cut(shuffle: int | None, shard_bytes: int) -> None:
    store = MemoryObjectStore()
    steps = UnitSteps(rules(source(store, 3000, shard_bytes), shuffle=shuffle, shard_mib=1))
    manifest = read_manifest(store, "lm", prepared(store, steps).sha256)
    sizes = [shard.bytes for shard in manifest.splits["train"].shards]
    assert len(sizes) == 6  # 3,000 rows of 2 KiB
    assert max(sizes) <= 1.05 * 2**20 and max(sizes) <= 1.1 * min(sizes)


def test_a_shuffle_is_over_the_whole_version_and_the_same_however_its_source_is_cut() -> None:
    store, other = MemoryObjectStore(), MemoryObjectStore()
    mixed = UnitSteps(rules(source(store, 2000), shuffle=1, shard_mib=0.5))
    version = prepared(store, mixed)
    order = [row["n"] for row in rows(store, version)]
    first = order[:500]
    assert max(first) > 1900 and min(first) < 100 and 900 < np.mean(first) < 1100
    assert prepared(other, UnitSteps(rules(source(other, 2000, 10**7), shuffle=1, shard_mib=0.5))).splits == version.splits


def test_samples_of_one_key_in_different_shards_stay_two() -> None:
    store = MemoryObjectStore()
    with Output(JobOutputStore(store, "s", "raw", 0, 0), 0, 2048) as out:
        for n in range(4):
            out.add({"json": {"n": n}}, key="same")
    version = f"raw@sha256:{seal(store, 's', 'lm', 'raw', 0).sha256}"
    made = prepared(store, UnitSteps(rules(version, shuffle=1)))
    assert sorted(row["n"] for row in rows(store, made)) == [0, 1, 2, 3]
    assert [sample["__key__"] for sample in shards(store, made, "train")] == ["same", "same-2", "same-3", "same-4"]


class LookedUp(dict[str, int]):
    """Keys that are taken; counts how often one was looked up."""

    times = 0

    def __contains__(self, key: object) -> bool:
        self.times += 1
        return super().__contains__(key)


def test_samples_of_one_key_cost_each_the_same() -> None:
    taken = LookedUp()
    assert [_own_key("same", taken) for _ in range(2000)][-1] == "same-2000"
    assert taken.times < 4000


@given(keys=st.lists(st.sampled_from(["a", "a-2", "a-3", "a-2-2", "b"]), max_size=30))
@settings(max_examples=examples(100))
def test_a_key_has_the_least_number_that_is_free(keys: list[str]) -> None:
    taken, wanted = dict[str, int](), list[str]()
    for key in keys:
        wanted.append(next(own for own in (key, *(f"{key}-{n}" for n in range(2, 40))) if own not in wanted))
    assert [_own_key(key, taken) for key in keys] == wanted


def test_rows_that_were_kept_and_are_damaged_are_not_read() -> None:
    store = MemoryObjectStore()
    steps = UnitSteps(rules(source(store)))
    units, work = reader(store, steps), WorkStore(store, "w/")
    unit = units.units[0]
    record = steps.keep(units.samples(unit), units.source_bytes, work, unit)
    [key] = [stat.key for stat in store.list("w/") if stat.key.endswith(".rows")]
    store.put(key, store.get(key)[:-1] + b"?")
    with pytest.raises(DamagedShardError, match="is damaged"):
        work.runs(unit.name, record.runs)


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """A session outside of a job, whose outputs lie in a folder."""
    monkeypatch.setenv("TRAINHOUSE_OUTPUTS_DIR", str(tmp_path / "made"))
    context = Context(spool=tmp_path / "spool.jsonl")
    with Session(context, Gang(context), open_sink(context), SavedInMemory()) as made:
        yield made


def test_an_attempt_that_finds_pieces_of_an_older_naming_writes_nothing(session: Session) -> None:
    """They are named after shards of the source: sealed together with those of a plan, each row would be in the version twice."""
    store = MemoryObjectStore()
    steps, work = UnitSteps(rules(source(store))), WorkStore(store, "w/")
    with session.output("out").piece("0000000-0123456789abcdef") as piece:
        piece.add({"json": {"n": 0}})
    with pytest.raises(InvalidDataError, match=r"output out has 1 pieces of another plan, as '0000000-0123.*Submit the preparation again"):
        run(session, reader(store, steps), steps, work)
    assert not work.names() and len(session.output("out").pieces()) == 1


def test_an_attempt_goes_on_with_pieces_of_its_own_plan_alone(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    store = MemoryObjectStore()
    version = source(store)
    steps, work = UnitSteps(rules(version, shard_mib=0.02)), WorkStore(store, "w/")
    run(session, reader(store, steps), steps, work)
    made = session.output("out").pieces()
    run(session, reader(store, steps), steps, work)
    assert "0 pieces done" in capsys.readouterr().out and session.output("out").pieces() == made
    # A later program that shares the same units out to other pieces.
    larger = UnitSteps(rules(version, shard_mib=1))
    units = reader(store, steps)
    with pytest.raises(InvalidDataError, match="pieces of another plan"):
        run(session, units, larger, work)
    assert session.output("out").pieces() == made


@pytest.mark.parametrize("torn", [b"", b'{"moments":{},"re', b"[]"])
def test_a_torn_record_of_a_unit_counts_as_not_there(torn: bytes, session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    store = MemoryObjectStore()
    steps, work = UnitSteps(rules(source(store), shard_mib=0.02)), WorkStore(store, "w/")
    first, *others = reader(store, steps).units
    store.put(f"w/{first.name}.1.json", torn)
    run(session, reader(store, steps), steps, work)
    written = "".join(capsys.readouterr())
    assert f"{1 + len(others)} units done" in written and f"w/{first.name}.1.json" in written and f"{ROWS} of {ROWS} rows" in written
    assert store.get(f"w/{first.name}.1.json") == torn and work.record(first.name).written
    run(session, reader(store, steps), steps, work)
    assert "0 units done" in capsys.readouterr().out


def test_records_of_units_are_read_while_the_rank_counts_as_busy(session: Session) -> None:
    class Watched(WorkStore):
        """Notes what the session was busy with at each record."""

        def record(self, unit: str) -> UnitRecord:
            busy.append(session._progress.activity.now.kind is RankActivity.BUSY)
            return super().record(unit)

    busy, store = list[bool](), MemoryObjectStore()
    steps = UnitSteps(rules(source(store)))
    run(session, reader(store, steps), steps, Watched(store, "w/"))
    assert busy and all(busy)


@given(
    sizes=st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=30), min_size=1, max_size=20),
    shard=st.integers(1, 3000),
    shuffled=st.booleans(),
)
@settings(max_examples=examples(60), deadline=None)
def test_each_run_is_in_one_piece_and_buckets_stay_together(sizes: list[list[int]], shard: int, shuffled: bool) -> None:
    units = [[Run("train", bucket, 0, size, 1, size, 0) for bucket, size in enumerate(of_unit)] for of_unit in sizes]
    planned = planned_pieces(units, shard, shuffled=shuffled)
    found = [each for piece in planned for each in piece.runs]
    wanted = [(number, run) for number, of_unit in enumerate(units) for run in of_unit]
    assert sorted(found) == sorted(wanted) and all(piece.runs for piece in planned)
    if shuffled:
        buckets = [{run.bucket for _, run in piece.runs} for piece in planned]
        assert all(max(a) < min(b) for a, b in pairwise(buckets))
    else:
        assert found == wanted
