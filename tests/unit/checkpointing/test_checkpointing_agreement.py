"""Agreement of ranks about one state: numbers that differ, structures that must not, and which elements of tensors are compared."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from trainhouse.checkpointing.errors import InvalidStateError
from trainhouse.checkpointing.state.agreement import RankState, Union, rank_state, union
from trainhouse.checkpointing.state.state_tree import take_apart, unpack


def state_of(values: dict[str, Any]) -> RankState:
    return rank_state(take_apart(values), (), sampled=True)


def agreed(*values: dict[str, Any]) -> Union:
    """The union of ranks 0, 3, 6 and so on."""
    return union({3 * n: state_of(held) for n, held in enumerate(values)})


def plateau(loss: float) -> dict[str, Any]:
    """State of a schedule that a rank steps with a validation loss of its own."""
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(torch.optim.SGD(nn.Linear(1, 1).parameters(), 0.1))
    schedule.step(loss)
    return schedule.state_dict()


@pytest.mark.parametrize(
    ("lowest", "other", "says"),
    [
        (plateau(0.7), plateau(0.701), {"part.best": "0.7 on rank 0, 0.701 on rank 3"}),
        (
            {"scale": 65536.0, "_growth_tracker": 7},
            {"scale": 32768.0, "_growth_tracker": 0},
            {"part.scale": "65536.0 on rank 0, 32768.0 on rank 3", "part._growth_tracker": "7 on rank 0, 0 on rank 3"},
        ),
        ({"best": None}, {"best": 1}, {"part.best": "None on rank 0, 1 on rank 3"}),
        ({"on": False, "n": 1}, {"on": True, "n": 1.0}, {"part.on": "False on rank 0, True on rank 3"}),
        ({"losses": [0.1, 0.2]}, {"losses": [0.1]}, {"part.losses": "[0.1, 0.2] on rank 0, [0.1] on rank 3"}),
        ([{"lr": 0.1}, {"lr": 0.2}], [{"lr": 0.1}, {"lr": 0.3}], {"part.[1].lr": "0.2 on rank 0, 0.3 on rank 3"}),
        ({"at": "a.txt"}, {"at": "b.txt"}, {"part.at": "'a.txt' on rank 0, 'b.txt' on rank 3"}),
        (float("nan"), float("nan"), {}),
    ],
)
def test_numbers_that_differ_are_the_lowest_ranks(lowest: Any, other: Any, says: dict[str, str]) -> None:
    both = agreed({"part": lowest, "w": torch.ones(2)}, {"part": other, "w": torch.ones(2)})
    assert repr(unpack(both.skeleton)["part"]) == repr(lowest)
    assert set(both.unlike) == set(says)
    for name, values in says.items():
        assert both.unlike[name].startswith(f"{name}: {values}; rank 0's is saved, and restored on all ranks"), both.unlike[name]


def test_a_number_that_only_some_ranks_have_is_the_lowest_of_theirs() -> None:
    both = agreed({"a": 1}, {"a": 1, "b": {"c": 2}}, {"a": 4, "b": {"c": 3}})
    assert unpack(both.skeleton) == {"a": 1, "b": {"c": 2}}
    assert [text.split(";")[0] for text in both.unlike.values()] == ["a: 1 on rank 0, 4 on rank 6", "b.c: 2 on rank 3, 3 on rank 6"]


@pytest.mark.parametrize(
    ("lowest", "other", "says"),
    [
        (7, torch.ones(2), "part: 7 on rank 0, a tensor on rank 3"),
        (None, torch.ones(2), "part: None on rank 0, a tensor on rank 3"),
        ({"a": 1}, 7, r"part: \{'a': 1\} on rank 0, 7 on rank 3"),
        ({"a": [torch.ones(2)]}, {"a": [torch.ones(2)] * 2}, r"part.a: \[.*\] on rank 0, \[.*\] on rank 3"),
        ([{"lr": 0.1}], [{"lr": 0.1}] * 2, "part: .* on rank 0, .* on rank 3"),
        (torch.ones(2), torch.ones(3), r"part: torch.float32 \(2,\) on rank 0, torch.float32 \(3,\) on rank 3"),
        (torch.ones(2), torch.ones(2).bfloat16(), r"part: torch.float32 \(2,\) on rank 0, torch.bfloat16 \(2,\) on rank 3"),
        (torch.ones(2), torch.zeros(2), "part: rank 3 holds other values than rank 0"),
    ],
)
def test_another_structure_under_one_name_is_refused(lowest: Any, other: Any, says: str) -> None:
    with pytest.raises(InvalidStateError, match=f"^{says};"):
        agreed({"part": lowest}, {"part": other})


@pytest.mark.parametrize("shape", [(), (5,), (8, 64), (4, 3), (3, 5, 7), (2, 1, 40)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.bool, torch.float8_e4m3fn])
def test_equal_tensors_in_another_memory_order_agree(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    rows = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    order = tuple(reversed(range(rows.dim())))
    columns = rows.permute(order).contiguous().permute(order)
    assert agreed({"w": rows}, {"w": columns}).unlike == {}
    assert state_of({"w": rows}).samples == state_of({"w": columns}).samples


@pytest.mark.parametrize("name", ["float4_e2m1fn_x2", "bits8", "uint4"])
def test_tensors_of_a_dtype_without_numbers_are_not_compared(name: str) -> None:
    packed = torch.ones(4, 4, dtype=torch.uint8).view(getattr(torch, name))
    for tensor in (packed, packed.t()):
        state = state_of({"w": tensor, "v": torch.ones(1)})
        assert state.samples == {"v": (1.0,)} and "w" in state.layouts
