"""Runs of steps and their shards, against the batches that a loader gives and the order evaluated sample by sample."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.profiles import examples
from trainhouse.workers.data import Blocks, Mixture
from trainhouse.workers.data.batches import Batches, Share
from trainhouse.workers.data.data_loader import Loader, Reading, make_loader
from trainhouse.workers.data.order import Order, ShardShuffled
from trainhouse.workers.data.step_reads import STRETCH_STEPS, Run, StepRuns, Stretch, shard_ends_of, stretches


def loader(dataset: Any, batch: int, last: Any, runs: StepRuns, shuffle: bool = True, rank: int = 0, size: int = 1) -> Loader:
    made = make_loader(dataset, Share(batch, rank, size), 7, shuffle, last, Reading(0, None, list))
    made.reads = runs
    return made


def indices_of(run: Run, order: Order) -> list[list[int]]:
    """Indices of each step of a run, position by position."""
    found = []
    for step in range(run.steps):
        begin = run.begin + step * run.per_step
        places = [divmod(begin + k, order.samples) for k in range(run.per_step)]
        passes = [run.begin // order.samples if run.padded else data_pass for data_pass, _ in places]
        found.append(order.indices(np.array(passes), np.array([at for _, at in places])).tolist())
    return found


@settings(max_examples=examples(150))
@given(
    st.integers(3, 40),
    st.integers(1, 12),
    st.sampled_from([None, "drop", "pad"]),
    st.lists(st.integers(0, 4), min_size=1, max_size=25),
    st.integers(0, 24),
    st.integers(1, 4),
)
def test_runs_give_what_each_step_used_in_its_order_also_after_a_resume_and_resize(
    samples: int, batch: int, last: Any, batches: list[int], saved_at: int, size: int
) -> None:
    """`batches`: of each step."""
    if last == "drop":
        samples = max(samples, batch)
    runs, used, state = StepRuns(1), [], None
    one = loader(range(samples), batch, last, runs)
    for step, count in enumerate(batches):
        if step == saved_at:
            state = one.state_dict()
        used.append([sample for _ in range(count) for sample in next(one)])
        runs.finished(step)
    found: dict[int, list[int]] = {}
    for run in runs.runs:
        for step, indices in enumerate(indices_of(run, one.order), run.first_step):
            found.setdefault(step, []).extend(indices)
    assert [found.get(step, []) for step in range(len(batches))] == used
    if state is not None and batch % size == 0 and size <= samples:
        again = StepRuns(2)
        other = loader(range(samples), batch, last, again, rank=size - 1, size=size)
        other.load_state_dict(state)
        for step, count in enumerate(batches[saved_at:], saved_at):
            for _ in range(count):
                next(other)
            again.finished(step)
        here = [part for run in runs.runs if (part := run.within(saved_at, len(batches)))]
        assert [(r.first_step, r.steps, r.begin, r.per_step, r.padded) for r in again.runs] == [
            (r.first_step, r.steps, r.begin, r.per_step, r.padded) for r in here
        ]


def test_a_regular_program_has_one_run_however_many_passes_it_goes_through() -> None:
    runs = StepRuns(1)
    one = loader(range(10), 4, None, runs)
    for step in range(100):
        next(one), next(one)
        runs.finished(step)
    assert runs.runs == [Run(1, 0, 100, 0, 8)]


@st.composite
def reads(draw: st.DrawFn) -> tuple[list[int], int, list[int], list[int]]:
    """Samples of shards, a batch, batches of each step, and steps of which the shards are counted together."""
    sizes = draw(st.lists(st.integers(0, 9), min_size=1, max_size=8).filter(lambda sizes: sum(sizes) > 0))
    counts = draw(st.lists(st.integers(0, 3), min_size=1, max_size=20))
    return sizes, draw(st.integers(1, 9)), counts, draw(st.lists(st.integers(0, len(counts)), max_size=3))


@settings(max_examples=examples(150))
@given(reads(), st.sampled_from([None, "pad"]))
def test_the_shards_of_a_stretch_are_those_of_each_sample_that_its_steps_used(
    read: tuple[list[int], int, list[int], list[int]], last: Any
) -> None:
    sizes, batch, counts, ends = read
    order = ShardShuffled(sizes, 11, Blocks(3, 2))
    runs = StepRuns(1)
    one = Loader(range(order.samples), order, _batches(order, batch, last), Reading(0, None, list))
    one.reads = runs
    shard_of = np.repeat(np.arange(len(sizes)), sizes)
    expected: dict[int, Counter[int]] = {}
    for step, count in enumerate(counts):
        for _ in range(count):
            for sample in next(one):
                expected.setdefault(int(shard_of[sample]), Counter())[step] += 1
        runs.finished(step)
    stretch = Stretch(1, 0)
    for end in [*sorted(ends), len(counts)]:  # counted piece by piece, as a report is due
        stretch.add(runs.runs, end, order, shard_ends_of([sizes]))
    found = stretch.shards
    assert {number: each.samples for number, each in found.items()} == {n: sum(steps.values()) for n, steps in expected.items()}
    for number, each in found.items():
        assert [step for first, steps in each.runs for step in range(first, first + steps)] == sorted(expected[number])
        assert all(a + n < b for (a, n), (b, _) in zip(each.runs, each.runs[1:], strict=False))  # as few runs as can be


def _batches(order: Order, batch: int, last: Any) -> Batches:
    return Batches(order, Share(batch), last)


def test_a_mixture_counts_the_shards_of_all_its_parts() -> None:
    runs = StepRuns(1)
    one = loader(Mixture([(range(6), 1), (range(4), 2)]), 3, None, runs)
    used = []
    for step in range(5):
        used.append(Counter(next(one)))
        runs.finished(step)
    stretch = Stretch(1, 0)
    stretch.add(runs.runs, 5, one.order, shard_ends_of([[6], [4]]))
    assert {n: (s.samples, s.runs) for n, s in stretch.shards.items()} == {0: (5, [(0, 5)]), 1: (10, [(0, 5)])}


def test_stretches_begin_at_multiples_and_cuts() -> None:
    assert stretches(5, 9, ()) == [(0, 9)]
    assert stretches(5, 9, (3, 7)) == [(3, 7), (7, 9)]
    assert stretches(STRETCH_STEPS + 1, 2 * STRETCH_STEPS + 1, (4,)) == [
        (STRETCH_STEPS, 2 * STRETCH_STEPS),
        (2 * STRETCH_STEPS, 2 * STRETCH_STEPS + 1),
    ]
    assert stretches(4, 4, ()) == []
