"""The example program on four gloo ranks, in every layout: the losses of one rank, and restores of one layout in another."""

from typing import Any

import pytest

from tests.support.example_layouts import SAVED_AT, STEPS, TOLERANCE, layouts_of, losses_alone, name_of, pairs_of, run_all

RANKS = 4
NAMES = [name_of(layout) for layout in layouts_of(RANKS)]
PAIRS = [(name_of(saved), name_of(other)) for saved, other in pairs_of(RANKS)]
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def alone() -> list[float]:
    return losses_alone(RANKS)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[Any, Any]]:
    return run_all(RANKS, tmp_path_factory.mktemp("layouts"))


@pytest.mark.parametrize("layout", NAMES)
def test_a_layout_trains_as_one_rank_does(alone: list[float], ranks: list[dict[Any, Any]], layout: str) -> None:
    assert alone[-1] < alone[0] - 0.5, "it learns"
    for found in ranks:
        assert [found[layout][step] for step in range(STEPS)] == pytest.approx(alone, rel=TOLERANCE)


@pytest.mark.parametrize(("saved", "other"), PAIRS)
def test_a_checkpoint_of_one_layout_goes_on_in_another(alone: list[float], ranks: list[dict[Any, Any]], saved: str, other: str) -> None:
    there: dict[str, str] = {}
    here: dict[str, str] = {}
    for found in ranks:
        same, restored, losses = found[saved, other]
        there, here = there | same, here | restored
        assert [losses[step] for step in range(SAVED_AT, STEPS)] == pytest.approx(alone[SAVED_AT:], rel=TOLERANCE)
        assert sorted(losses) == list(range(SAVED_AT, STEPS)), "no step is taken twice"
    assert here == there and len(here) > 100, "weights and moments, bit for bit"
