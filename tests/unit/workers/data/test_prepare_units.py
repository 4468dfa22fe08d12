"""Units of a preparation over a store: whichever ranks and attempts do them, in whatever order, the version is the same."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.profiles import examples
from trainhouse.events.model.dataset import DatasetVersion
from trainhouse.events.model.spec import DataReference
from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.outputs.sealing import seal
from trainhouse.workers.data.outputs.written_output import JobOutputStore, Output
from trainhouse.workers.data.prepare.preparation import Preparation
from trainhouse.workers.data.prepare.preparation_job import UnitReader, name_of, open_tokenizer, write_unit
from trainhouse.workers.data.prepare.row_steps import ColumnMoments
from trainhouse.workers.data.prepare.unit_steps import UnitSteps
from trainhouse.workers.data.published_data import open_split
from trainhouse.workers.data.settings import DataSettings

ROWS = 60


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINHOUSE_DATA_CACHE_GIB", "0")


def source(store: MemoryObjectStore) -> str:
    """A version of several shards."""
    with Output(JobOutputStore(store, "s", "raw", 0, 0), 0, shard_bytes=8192) as out:
        for n in range(ROWS):
            out.add({"json": {"n": n, "text": f"  Row {n} ", "user": n % 7}, "bin": b"x" * 10})
    return f"raw@sha256:{seal(store, 's', 'lm', 'raw', 0).sha256}"


def rules(version: str, **fields: Any) -> Preparation:
    return Preparation.parse({"source": version, "output": "out"} | fields)


def prepared(store: MemoryObjectStore, steps: UnitSteps, ranks: int = 1, chance: random.Random | None = None) -> DatasetVersion:
    """Runs it with so many ranks in turn; where there is `chance`, attempts are killed within units."""
    units, job = UnitReader(store, "lm", steps.rules.source, "lm"), f"j{ranks}-{id(chance)}"
    for epoch in range(4):
        killed = False
        moments = ColumnMoments(steps.rules.normalise)
        for rank in range(ranks):
            for unit in units.units[rank::ranks]:
                moments = steps.moments(units.samples(unit), unit[0]).merged(moments)
        for rank in range(ranks):
            out = Output(JobOutputStore(store, job, "out", epoch, rank), rank)
            for unit in units.units[rank::ranks]:
                if name_of(unit) in out.pieces():
                    continue
                if chance is not None and epoch < 3 and chance.random() < 0.3:
                    piece = out.piece(name_of(unit))
                    steps.write(units.samples(unit), unit[0], moments, piece)
                    piece.drop()
                    killed = True
                    break
                write_unit(units, steps, unit, moments, out)
        if not killed:
            break
    return seal(store, job, "lm", "out", epoch)


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
    units = UnitReader.of(DataReference(dataset=source(store), owner="lm", purpose="research"), "vision", store)
    assert sum(len(list(units.samples(unit))) for unit in units.units) == ROWS
