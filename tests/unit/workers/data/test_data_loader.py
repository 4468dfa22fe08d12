"""The loader: exact over passes, ranks, layouts, worker processes, kills and resizes; its state is of what was used.

Among them what users of other loaders met: torchtitan #811 (fewer ranks lose positions), torchdata #1437 (a pass lost at a resume between
passes), datasets #7447 (passes shortened after a resume, with workers that live on), streaming #617 (a hang at the end of a pass) and
#869 (a resume beyond a pass), torchft #292 (ranks that come and go).
"""

import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.profiles import examples
from trainhouse.events.model.parallelism import Parallelism
from trainhouse.workers import Session
from trainhouse.workers.data import Blocks, InvalidDataError, Loader, Mixture
from trainhouse.workers.data.batches import Share
from trainhouse.workers.data.data_loader import Reading, make_loader
from trainhouse.workers.data.order import BlockShuffled, Order, Sequential, Shuffled
from trainhouse.workers.session.context import Context

Shuffle = bool | Blocks


def as_list(samples: list[Any]) -> list[Any]:
    return samples


def loader(samples: Any, batch: int, rank: int = 0, size: int = 1, **more: Any) -> Loader:
    """The loader of one data rank, over `samples` or so many numbers."""
    dataset = range(samples) if isinstance(samples, int) else samples
    reading = Reading(more.pop("workers", 0), more.pop("decode", None), as_list)
    return make_loader(dataset, Share(batch, rank, size), more.pop("seed", 5), more.pop("shuffle", True), more.pop("last", None), reading)


def gang(samples: Any, batch: int, size: int, state: dict[str, Any] | None = None, **more: Any) -> list[Loader]:
    loaders = [loader(samples, batch, rank, size, **more) for rank in range(size)]
    for each in loaders:
        if state is not None:
            each.load_state_dict(json.loads(json.dumps(state)))
    return loaders


def taken(loaders: list[Loader], batches: int) -> list[int]:
    """Samples of the next batches of a gang, in the order of its data ranks; all of its states must be alike."""
    used = [sample for _ in range(batches) for each in loaders for sample in next(each)]
    assert all(each.state_dict() == loaders[0].state_dict() for each in loaders)
    return used


def reference(order: Order, samples: int, last: str | None = None, batch: int = 1) -> list[int]:
    """The first so many samples: whole passes one after another, the last batch of each as asked."""
    result: list[int] = []
    data_pass = 0
    while len(result) < samples:
        each = order.indices(np.full(order.samples, data_pass), np.arange(order.samples)).tolist()
        rest = len(each) % batch
        if last == "drop" and rest:
            each = each[:-rest]
        elif last == "pad" and rest:
            each += (each * batch)[: batch - rest]
        result += each
        data_pass += 1
    return result[:samples]


@st.composite
def lives(draw: st.DrawFn) -> tuple[int, int, list[tuple[int, int, int]]]:
    """Samples, a batch, and the lives of a job: data ranks, batches up to its last save, and batches that a kill then loses."""
    batch = draw(st.sampled_from([4, 8, 12, 24]))
    sizes = st.sampled_from([size for size in (1, 2, 3, 4, 6, 8) if batch % size == 0])
    samples = draw(st.integers(8, 60))
    return samples, batch, draw(st.lists(st.tuples(sizes, st.integers(0, 12), st.integers(0, 3)), min_size=1, max_size=5))


@settings(max_examples=examples(150))
@given(lives(), st.integers(0, 2**64 - 1), st.sampled_from([True, False, Blocks(3, 2)]))
def test_kills_and_resizes_lose_and_repeat_no_sample(job: tuple[int, int, list[tuple[int, int, int]]], seed: int, shuffle: Shuffle) -> None:
    samples, batch, parts = job
    used: list[int] = []
    state = None
    for size, saved, lost in parts:
        loaders = gang(samples, batch, size, state, seed=seed, shuffle=shuffle)
        used += taken(loaders, saved)
        state = loaders[0].state_dict()
        taken(loaders, lost)
    order: Order = Shuffled(samples, seed) if shuffle is True else Sequential(samples)
    if isinstance(shuffle, Blocks):
        order = BlockShuffled(samples, seed, shuffle)
    assert used == reference(order, len(used))
    passes = len(used) // samples
    assert Counter(used[: passes * samples]) == Counter({sample: passes for sample in range(samples) if passes})


@settings(max_examples=examples(60))
@given(lives(), st.sampled_from(["drop", "pad"]))
def test_a_last_batch_is_dropped_or_padded_on_request(job: tuple[int, int, list[tuple[int, int, int]]], last: str) -> None:
    samples, batch, parts = job
    if last == "drop" and samples < batch:
        samples += batch
    used, state = [], None
    for size, saved, _ in parts:
        loaders = gang(samples, batch, size, state, last=last)
        used += taken(loaders, saved)
        state = loaders[0].state_dict()
    assert used == reference(Shuffled(samples, 5), len(used), last, batch)


def test_another_batch_size_goes_on_at_the_same_sample() -> None:
    used = taken(first := gang(50, 8, 4), 5)
    used += taken(gang(50, 6, 3, first[0].state_dict()), 10)
    assert used == reference(Shuffled(50, 5), 100)


def test_a_resume_between_two_passes_begins_the_next_one() -> None:
    """torchdata #1437, streaming #869: the state at the very end of a pass, and one from far beyond the first."""
    for passes in (1, 2, 1000):
        before = loader(12, 4)
        for _ in range(3 * passes):
            next(before)
        assert before.data_pass == passes and before.state_dict()["position"] == 0
        after = gang(12, 4, 1, before.state_dict())
        assert Counter(taken(after, 3)) == Counter(range(12)) and after[0].data_pass == passes + 1


def test_worker_processes_survive_passes_and_give_the_same_after_a_resume() -> None:
    """datasets #7447, streaming #617: passes after a resume are whole, and their ends hang nobody."""
    before = loader(20, 4, workers=2, decode=lambda sample: (sample, os.getpid()))
    used = [next(before) for _ in range(8)]
    processes = {process for batch in used for _, process in batch}
    assert len(processes) == 2 and os.getpid() not in processes
    after = loader(20, 4, workers=2, decode=lambda sample: (sample, os.getpid()))
    after.load_state_dict(before.state_dict())
    used += [next(after) for _ in range(17)]
    assert [sample for batch in used for sample, _ in batch] == reference(Shuffled(20, 5), 100)
    state = after.state_dict()
    rest = [sample for _ in range(5) for sample, _ in next(after)]
    after.load_state_dict(state)  # what was read ahead by then is given to nobody
    assert [sample for _ in range(5) for sample, _ in next(after)] == rest
    assert len({process for batch in used[8:] for _, process in batch}) == 2


def test_the_state_is_of_what_was_used_and_small() -> None:
    each = loader(10**8, 64, workers=1, seed=2**64 - 1)
    assert each.state_dict()["position"] == 0
    next(each)
    assert each.state_dict()["position"] == 64  # the worker has read two batches more
    largest = {"data_pass": 10**9, "position": 10**8 - 1}
    assert len(json.dumps(each.state_dict() | largest)) <= 200 and each.state_dict()["scope"] == "gang"
    mixed = loader(Mixture([(range(10**8), 3), (range(10**8), 1)]), 64, seed=2**64 - 1)
    assert len(json.dumps(mixed.state_dict() | largest)) <= 200


def test_a_mixture_goes_on_exactly_too() -> None:
    mixture = Mixture([(range(10), 3), (range(100, 104), 1)])
    used = taken(first := gang(mixture, 8, 4), 3)
    used += taken(gang(mixture, 8, 2, first[0].state_dict()), 7)
    assert used == taken(gang(mixture, 8, 1), 10)
    of_first = [sample for sample in used if sample < 100]
    assert Counter(of_first) == Counter(dict.fromkeys(range(10), 6))
    assert Counter(sample for sample in used if sample >= 100) == Counter(dict.fromkeys(range(100, 104), 5))


def test_a_mixture_counts_no_passes() -> None:
    """Each of its datasets has its own; a number that stays 0 would end no loop over passes."""
    each = loader(Mixture([(range(3), 1)]), 3)
    taken([each], 4)
    assert each.data_pass is None


def test_a_hugging_face_style_dataset_is_read_a_batch_at_a_time() -> None:
    asked: list[int] = []

    class Table:
        def __len__(self) -> int:
            return 9

        def __getitem__(self, index: int) -> int:
            raise AssertionError("samples are read together")

        def __getitems__(self, indices: list[int]) -> list[int]:
            asked.append(len(indices))
            return [10 * index for index in indices]

    assert taken([loader(Table(), 6, decode=lambda sample: sample + 1)], 3) == [10 * i + 1 for i in reference(Shuffled(9, 5), 18)]
    assert asked == [6, 6, 6]


def test_no_generator_of_the_program_is_drawn_from() -> None:
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index, union-attr]
    taken([loader(9, 3)], 5)
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index, union-attr]
    assert torch.equal(before[0], after[0]) and before[1:] == after[1:]


def test_what_cannot_be_exact_is_refused() -> None:
    cases = [
        (lambda: loader(100, 10, 0, 4), "a batch of 10 samples does not divide over 4 data ranks: .* take a multiple of 4"),
        (lambda: loader(100, 0), "batch=0: give at least 1"),
        (lambda: loader(100, 4, shuffle="yes"), "shuffle='yes': give True, False or Blocks"),
        (lambda: loader(0, 4), "the dataset has 0 samples: give one that has at least 1"),
        (lambda: loader(3, 4, 0, 4), "the dataset has 3 samples and the gang 4 data ranks: take fewer ranks"),
        (lambda: loader(3, 4, last="drop"), "last='drop' would drop every batch of 4: take a smaller batch"),
        (lambda: loader(9, 4, last="keep"), "last='keep': give 'drop', 'pad' or None"),
        (lambda: loader(9, 4, workers=-1), "workers=-1: give the number of worker processes"),
        (lambda: loader(iter([1, 2]), 1), "list_iterator is no map-style dataset: an exact order needs a length and samples by index"),
        (lambda: Mixture([(Mixture([(range(3), 1)]), 1)]), "a mixture of mixtures: give all datasets in one Mixture"),
        (lambda: Mixture([]), "give at least one dataset with its weight"),
        (lambda: loader(Mixture([(range(3), 1)]), 1, last="pad"), "a mixture has no last batch"),
    ]
    for make, message in cases:
        with pytest.raises(InvalidDataError, match=message):
            make()


def test_a_checkpoint_of_another_order_is_refused() -> None:
    state = loader(100, 4).state_dict()
    with pytest.raises(InvalidDataError, match=r"saved over 100 samples, and the dataset has 99: .* give the dataset that it had then, or"):
        loader(99, 4).load_state_dict(state)
    with pytest.raises(InvalidDataError, match=r"saved with seed 5, and is made with 6 now: .* put 5 back, or begin a new job"):
        loader(100, 4, seed=6).load_state_dict(state)
    with pytest.raises(InvalidDataError, match="saved with shuffle True, and is made with"):
        loader(100, 4, shuffle=Blocks()).load_state_dict(state)
    mixture = Mixture([(range(10), 3), (range(20), 1)])
    with pytest.raises(InvalidDataError, match="saved with mixture "):
        loader(Mixture([(range(10), 2), (range(20), 1)]), 4).load_state_dict(loader(mixture, 4).state_dict())
    for saved, now in ((mixture, 30), (30, mixture)):
        with pytest.raises(InvalidDataError, match="saved with mixture "):
            loader(now, 4).load_state_dict(loader(saved, 4).state_dict())


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_names_its_sample(workers: int) -> None:
    def decode(sample: int) -> int:
        return sample // (sample - 3)

    each = loader(5, 1, shuffle=False, workers=workers, decode=decode)
    taken([each], 3)
    with pytest.raises(ZeroDivisionError) as caught:
        next(each)
    assert "decoding sample 3 of the dataset" in str(caught.value) + "".join(getattr(caught.value, "__notes__", []))
    assert each.state_dict()["position"] == 3


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_that_failed_comes_again(workers: int, tmp_path: Path) -> None:
    """Else the program that catches the error trains on the next batch while the state is that of the one that failed."""

    def decode(sample: int) -> int:
        if sample == 4 and not (tmp_path / "failed").exists():
            (tmp_path / "failed").touch()
            raise OSError("the storage did not answer")
        return sample

    each = loader(12, 2, shuffle=False, workers=workers, decode=decode)
    used: list[int] = []
    with pytest.raises(OSError, match="the storage did not answer"):
        while True:
            used += next(each)
    assert used == [0, 1, 2, 3] and each.state_dict()["position"] == 4
    assert taken([each], 5) == [4, 5, 6, 7, 8, 9, 10, 11, 0, 1] and each.state_dict()["position"] == 2


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stop_iteration_of_the_dataset_does_not_end_the_loop(workers: int) -> None:
    each = loader(6, 1, shuffle=False, workers=workers, decode=lambda sample: next(iter(range(3)[sample:])))
    assert taken([each], 3) == [0, 1, 2]
    with pytest.raises(RuntimeError, match="raised StopIteration, which would end the training loop") as caught:
        next(each)
    assert "decoding sample 3" in str(caught.value.__cause__) + "".join(getattr(caught.value.__cause__, "__notes__", []))


def test_worker_processes_of_other_shares_and_positions_draw_other_random_numbers() -> None:
    def drawn(rank: int, state: dict[str, Any] | None = None) -> list[tuple[float, float]]:
        each = loader(40, 4, rank, 2, workers=1, decode=lambda _: (torch.rand(1).item(), random.random()))
        if state is not None:
            each.load_state_dict(state)
        return next(each)  # type: ignore[no-any-return]

    later = loader(40, 4).state_dict() | {"position": 8}
    assert drawn(0) == drawn(0), "ranks of one share read the same"
    assert len({number for numbers in (drawn(0), drawn(1), drawn(0, later)) for pair in numbers for number in pair}) == 12


def test_a_session_makes_one_with_its_seed_and_measures_the_wait_for_it(tmp_path: Path) -> None:
    with Session.start(context=Context(spool=tmp_path / "spool.jsonl", seed=11)) as session:
        each = session.loader(range(40), batch=4, collate=as_list)
        session.track(loader=each)
        used = [sample for _ in session.steps(10) for sample in next(each)]
        assert used == reference(Shuffled(40, 11), 40)
        assert session._progress.activity.now.data_wait_s > 0


def test_ranks_of_one_share_of_the_data_read_the_same() -> None:
    """Tensor parallelism and pipelines: the batch divides over data ranks, not over ranks."""
    layout = Parallelism(dp=2, tp=2)
    batches = [next(loader(40, 6, layout.data_rank(rank), layout.data_size)) for rank in range(4)]
    assert batches[0] == batches[1] and batches[2] == batches[3] and batches[0] + batches[2] == reference(Shuffled(40, 5), 6)
