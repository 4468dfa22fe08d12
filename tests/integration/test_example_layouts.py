"""The example program on four gloo ranks, in every layout: the losses of one rank, and restores of one layout in another."""

from typing import Any

import pytest

from tests.support.example_layouts import TOLERANCE, judged, layouts_of, losses_alone, name_of, pairs_of, run_all
from trainhouse.events.model.parallelism import Parallelism
from trainhouse.workers.examples.laid_out import check
from trainhouse.workers.examples.model import ByteGPT

RANKS = 4
NAMES = [name_of(layout) for layout in layouts_of(RANKS)]
PAIRS = [(name_of(saved), name_of(other)) for saved, other in pairs_of(RANKS)]


def test_a_batch_that_does_not_divide_into_microbatches_is_refused_with_the_way_out() -> None:
    model, layout = ByteGPT(8, 3, 2, 4), Parallelism(pp=3)
    with pytest.raises(ValueError, match="batch 16 does not divide into 3 microbatches; give --batch a multiple of 3, or --microbatches N"):
        check(layout, model, 3, 16, 3)
    check(layout, model, 3, 15, 3)
    check(Parallelism(), model, 1, 16, 3)


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, dict[str, Any]]:
    """Results by layout, and by pair of layouts."""
    alone = losses_alone(RANKS)
    assert alone[-2] < alone[0] - 0.5, "it learns"
    found = run_all(RANKS, tmp_path_factory.mktemp("layouts"))
    return {(line["layout"], line["in"]) if "in" in line else line["layout"]: line for line in judged(found, alone, RANKS)}


@pytest.mark.parametrize("layout", NAMES)
def test_a_layout_trains_as_one_rank_does(lines: dict[Any, dict[str, Any]], layout: str) -> None:
    assert lines[layout]["difference"] < TOLERANCE


@pytest.mark.parametrize("pair", PAIRS, ids="-to-".join)
def test_a_checkpoint_of_one_layout_goes_on_in_another(lines: dict[Any, dict[str, Any]], pair: tuple[str, str]) -> None:
    assert lines[pair]["same_state"] and lines[pair]["tensors"] > 150, "weights and moments, bit for bit"
    assert lines[pair]["difference"] < TOLERANCE
