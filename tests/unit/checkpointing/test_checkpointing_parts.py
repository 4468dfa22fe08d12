"""The small parts: taking states apart, staging, generators, settings, and the bounds of what is under way."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.profiles import examples
from trainhouse.checkpointing.chain.chunks import in_threads
from trainhouse.checkpointing.collective import Ranks
from trainhouse.checkpointing.errors import InvalidStateError, RankFailedError, StaleEpochError
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.staging.body_layout import PACK_BELOW_BYTES, PACK_BYTES, lay_out
from trainhouse.checkpointing.state import rng
from trainhouse.checkpointing.state.state_tree import put_together, take_apart, tensor_names, unpack

torch.set_num_threads(1)
KEYS = st.one_of(st.text(alphabet="ab.[]\\0", max_size=4), st.integers(0, 3), st.booleans())
LEAVES = st.one_of(st.none(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3), st.just("tensor"))
NESTED = st.recursive(
    LEAVES, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4), st.tuples(inner, inner))
)


def with_tensors(value: Any, made: list[torch.Tensor]) -> Any:
    if value == "tensor" and isinstance(value, str):
        made.append(torch.tensor([float(len(made))]))
        return made[-1]
    if isinstance(value, dict):
        return {k: with_tensors(v, made) for k, v in value.items()}
    return type(value)(with_tensors(v, made) for v in value) if isinstance(value, list | tuple) else value


def alike(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(alike(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    return bool(one == other)


@given(st.dictionaries(st.text(alphabet="ab.[]\\", max_size=3), NESTED, max_size=4))
@example({"": {"": {True: "tensor"}, True: "tensor"}})
@settings(max_examples=examples(60))
def test_apart_and_together_is_the_same(shape: dict[str, Any]) -> None:
    made: list[torch.Tensor] = []
    state = with_tensors(shape, made)
    apart = take_apart(state)
    skeleton = unpack(apart.skeleton)
    assert len(apart.tensors) == len(made) and sorted(tensor_names(skeleton)) == sorted(apart.tensors), "names are unique"
    assert alike(put_together(skeleton, apart.tensors), state)


def test_an_ordered_dict_stays_one() -> None:
    apart = take_apart({"model": torch.nn.Linear(1, 1).state_dict()})
    assert type(put_together(unpack(apart.skeleton), apart.tensors)["model"]) is OrderedDict


def test_a_skeleton_cannot_run_code() -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.system, ("true",)

    with pytest.raises(InvalidStateError):
        take_apart({"evil": Evil()})


def test_every_generator_goes_on_where_it_was() -> None:
    def draw() -> tuple[Any, ...]:
        return random.random(), random.gauss(0, 1), np.random.normal(), np.random.rand(), torch.rand(3).tolist()

    random.gauss(0, 1), np.random.normal()  # leaves half of a pair behind in both
    state = unpack(take_apart({"rng": 0}).skeleton) and rng.capture()
    expected = [draw() for _ in range(3)]
    rng.restore(state)
    assert [draw() for _ in range(3)] == expected


def test_a_ranks_generator_goes_on_at_the_device_that_it_has_now(monkeypatch: pytest.MonkeyPatch) -> None:
    put: dict[int, object] = {}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: put.__setitem__(device, state))
    rng.restore(rng.capture() | {"cuda": ["zero", "one", "two"], "device": 2})
    assert put == {0: "zero", 1: "two"}, "its own was the third of a node with more of the gang"
    put.clear()
    rng.restore(rng.capture() | {"cuda": ["zero", "one"]})
    assert put == {0: "zero", 1: "one"}, "a state of before says nothing of its device"


def test_small_things_are_packed_together_within_a_bound() -> None:
    layout = lay_out(3, [1000] * 20_000 + [PACK_BELOW_BYTES])
    spans, large = layout.spans[:-1], layout.spans[-1]
    taken: dict[int, int] = {}
    for span in spans:
        assert span.offset == taken.get(span.body, 0), "each begins where the one before ends"
        taken[span.body] = span.offset + span.size_bytes
    assert layout.bodies[large.body] == PACK_BELOW_BYTES and large.rank == 3
    assert all(layout.bodies[body] == size for body, size in taken.items())
    assert len(layout.bodies) == 4 and max(layout.bodies) < PACK_BYTES + PACK_BELOW_BYTES


def test_work_in_threads_is_in_order_bounded_and_ends_with_the_first_error() -> None:
    lock, begun, taken, most = threading.Lock(), 0, 0, 0

    def work(number: int) -> int:
        nonlocal begun, most
        with lock:
            begun += 1
            most = max(most, begun - taken)
        if number == 90:
            raise ValueError(number)
        return number

    results = in_threads(work, range(100), 3)
    for expected in range(90):
        assert next(results) == expected
        taken += 1
    with pytest.raises(ValueError):
        next(results)
    assert most <= 2 * 3 + 1 and begun < 100


def test_without_a_process_group_there_is_one_rank() -> None:
    alone = Ranks()
    assert (alone.rank, alone.world_size, alone.all(lambda: 7), alone.first(lambda: 8), alone.each(lambda: 9)) == (0, 1, [7], 8, 9)

    def fail() -> None:
        raise KeyError("k")

    with pytest.raises(RankFailedError, match="KeyError: 'k'"):
        alone.first(fail)


def test_errors_travel_between_ranks() -> None:
    import pickle

    error = pickle.loads(pickle.dumps(StaleEpochError("taken", mine=1, theirs=2)))
    assert (str(error), error.mine, error.theirs) == ("taken", 1, 2)


def test_settings_argument_over_environment_over_file_over_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "trainhouse.toml"
    file.write_text('[s3]\nendpoint = "http://file"\nbucket = "file"\nregion = "file"\n[kafka]\nbootstrap = "k:1"\n')
    monkeypatch.setenv("TRAINHOUSE_CONFIG", str(file))
    monkeypatch.setenv("TRAINHOUSE_S3_BUCKET", "environment")
    monkeypatch.setenv("TRAINHOUSE_S3_ENDPOINT", "http://environment")
    monkeypatch.setenv("TRAINHOUSE_S3_SECRET_KEY", "hush")
    found = StoreSettings(endpoint="http://argument")
    assert (found.endpoint, found.bucket, found.region, found.access_key) == ("http://argument", "environment", "file", None)
    assert "hush" not in repr(found) and found.address == "http://argument/environment"


def test_importing_the_package_is_light() -> None:
    code = "import sys, trainhouse.checkpointing, trainhouse.checkpointing.settings; print('torch' in sys.modules, 'boto3' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() == ["False", "False"]
