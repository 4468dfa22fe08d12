"""The order of samples: each pass has each sample once, at any position in constant time, evenly over all permutations."""

import random
from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.profiles import examples
from trainhouse.workers.data import Blocks, InvalidDataError
from trainhouse.workers.data.order import MOST_SAMPLES, PASSES_KEPT, BlockShuffled, Mixed, Order, Sequential, ShardShuffled, Shuffled

SEEDS = st.integers(0, 2**64 - 1)
GOLDEN_SHUFFLED = [4, 7, 6, 9, 8, 3, 5, 1, 0, 2]
GOLDEN_BLOCKS = [4, 5, 1, 3, 0, 2, 6, 8, 9, 7]
GOLDEN_SHARDS = [2, 5, 0, 8, 6, 7, 1, 9, 4, 3]
SIZES = st.lists(st.integers(0, 300), min_size=1, max_size=20).filter(any)


def whole_pass(order: Order, data_pass: int = 0) -> list[int]:
    return order.indices(np.full(order.samples, data_pass), np.arange(order.samples)).tolist()  # type: ignore[no-any-return]


@settings(max_examples=examples(200))
@given(st.integers(1, 3000), SEEDS, st.integers(0, 2**40), st.integers(1, 70), st.integers(1, 9))
def test_each_pass_has_each_sample_once(samples: int, seed: int, data_pass: int, block: int, window: int) -> None:
    for order in (Shuffled(samples, seed), BlockShuffled(samples, seed, Blocks(block, window)), Sequential(samples)):
        assert sorted(whole_pass(order, data_pass)) == list(range(samples))


@given(st.integers(2**31, MOST_SAMPLES - 1), SEEDS)
def test_positions_far_into_a_huge_dataset_have_samples_of_their_own(samples: int, seed: int) -> None:
    position = np.append(samples - 1 - np.arange(500), np.arange(500))
    for order in (Shuffled(samples, seed), BlockShuffled(samples, seed, Blocks())):
        indices = order.indices(np.zeros(1000, np.int64), position)
        assert len(set(indices.tolist())) == 1000 and indices.min() >= 0 and indices.max() < samples


@pytest.mark.parametrize("samples", [2, 3, 4])
def test_all_permutations_of_a_small_dataset_come_up_alike(samples: int) -> None:
    passes = 12_000
    order = Shuffled(samples, 7)
    indices = order.indices(np.repeat(np.arange(passes), samples), np.tile(np.arange(samples), passes)).reshape(passes, samples)
    counts = Counter(map(tuple, indices.tolist()))
    expected = passes / len(list(permutations(range(samples))))
    assert sum((counts[each] - expected) ** 2 / expected for each in permutations(range(samples))) < 60  # chi square of at most 23 degrees


def test_passes_and_seeds_have_orders_of_their_own_and_neighbours_are_torn_apart() -> None:
    orders = [whole_pass(Shuffled(1000, seed), data_pass) for seed in (0, 1, 2**63) for data_pass in (0, 1, 2)]
    for number, one in enumerate(orders):
        assert abs(np.corrcoef(one, np.arange(1000))[0, 1]) < 0.15
        assert all(sum(a == b for a, b in zip(one, other, strict=True)) < 12 for other in orders[:number])


def test_the_order_of_a_seed_never_changes() -> None:
    """A resumed job of another release, machine or NumPy goes on in the same order."""
    assert whole_pass(Shuffled(10, 3), 2) == GOLDEN_SHUFFLED
    assert whole_pass(BlockShuffled(10, 3, Blocks(3, 2)), 2) == GOLDEN_BLOCKS
    assert whole_pass(ShardShuffled([3, 0, 2, 4, 1], 3, Blocks(2, 2)), 2) == GOLDEN_SHARDS


def test_blocks_keep_reads_near_each_other() -> None:
    order = BlockShuffled(100_000, 3, Blocks(100, 4))
    window = order.indices(np.zeros(400, np.int64), np.arange(400))
    assert len(set((window // 100).tolist())) == 4 and np.abs(np.diff(window % 100)).mean() > 20


@settings(max_examples=examples(200))
@given(SIZES, SEEDS, st.integers(0, 2**40), st.integers(1, 70), st.integers(1, 9), st.randoms())
def test_uneven_shards_give_each_sample_once_a_pass_and_any_positions_asked_together(
    sizes: list[int], seed: int, data_pass: int, block: int, window: int, chance: random.Random
) -> None:
    order = ShardShuffled(sizes, seed, Blocks(block, window))
    passes = [whole_pass(order, data_pass + number) for number in range(5)]
    assert all(sorted(each) == list(range(sum(sizes))) for each in passes)
    asked = [(chance.randrange(5), chance.randrange(sum(sizes))) for _ in range(50)]
    indices = order.indices(np.array([data_pass + number for number, _ in asked]), np.array([position for _, position in asked]))
    assert indices.tolist() == [passes[number][position] for number, position in asked]


def test_a_group_of_shards_is_read_before_the_next_and_mixes_its_shards() -> None:
    sizes = [1000 + number for number in range(40)]
    order = ShardShuffled(sizes, 3, Blocks(50, 8))
    shard_of = np.repeat(np.arange(40), sizes)[whole_pass(order)]
    spans = [np.flatnonzero(shard_of == shard) for shard in range(40)]
    assert max(int(places[-1] - places[0]) for places in spans) < 8 * max(sizes)
    assert len(set(shard_of[:400].tolist())) >= 3
    assert whole_pass(order, 0)[:100] != whole_pass(order, 1)[:100]


def test_a_position_among_many_shards_is_found_by_search_and_tables_of_old_passes_go() -> None:
    order = ShardShuffled([10_000] * 10_000, 1, Blocks())
    indices = order.indices(np.repeat(np.arange(10), 100), np.tile(np.arange(100) * 999_983, 10)).reshape(10, 100)
    assert all(len(set(row)) == 100 for row in indices.tolist())
    assert len(order._tables) == PASSES_KEPT
    assert order.identity() == ShardShuffled([10_000] * 10_000, 1, Blocks()).identity() != ShardShuffled([10**8], 1, Blocks()).identity()


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 9)), min_size=1, max_size=4), SEEDS)
def test_a_mixture_is_exact_in_each_cycle_and_each_of_its_parts_in_each_pass(parts: list[tuple[int, int]], seed: int) -> None:
    weights = [weight for _, weight in parts]
    mixed = Mixed([Shuffled(samples, seed + number) for number, (samples, _) in enumerate(parts)], weights, seed)
    cycles = 100
    indices = mixed.indices(np.zeros(cycles * sum(weights), np.int64), np.arange(cycles * sum(weights)))
    first = np.cumsum([0, *(samples for samples, _ in parts)])
    part = np.searchsorted(first, indices, side="right") - 1
    for number, (samples, weight) in enumerate(parts):
        assert ((part == number).reshape(cycles, -1).sum(1) == weight).all()
        of_it = indices[part == number] - first[number]
        for data_pass in range(len(of_it) // samples):
            in_pass = of_it[data_pass * samples : (data_pass + 1) * samples].tolist()
            assert sorted(in_pass) == list(range(samples))


def test_what_has_no_order_is_refused() -> None:
    with pytest.raises(InvalidDataError, match="the dataset has 0 samples: give one that has at least 1"):
        Shuffled(0, 1)
    with pytest.raises(InvalidDataError, match=r"Blocks\(samples=0, window=16\): give numbers of at least 1"):
        Blocks(samples=0)
    with pytest.raises(InvalidDataError, match=r"weights \[0.5, 0.5\]: give each a whole number of at least 1, as 7 and 3"):
        Mixed([Shuffled(3, 1), Shuffled(4, 1)], [0.5, 0.5], 1)  # type: ignore[list-item]
