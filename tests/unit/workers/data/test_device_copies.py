"""The contract of copies to a device: on a stream that is late, and on a device where there is one."""

from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import pytest
import torch

from trainhouse.workers.data.batches import Share
from trainhouse.workers.data.data_loader import Reading, make_loader
from trainhouse.workers.data.device_copies import CudaSideStream, DeviceCopies, SideStream

torch.set_num_threads(1)
Pair = namedtuple("Pair", ["tokens", "length"])


class LateStream:
    """A stream whose copies have their values only once they are handed over. `meta` stands for the device of what was not."""

    def __init__(self) -> None:
        self._late: list[Callable[[], object]] = []
        self.handed_over: list[int] = []

    def copy(self, source: torch.Tensor) -> torch.Tensor:
        target = torch.full_like(source, 99)
        self._late.append(lambda: target.copy_(source))
        return target

    def hand_over(self, copies: list[torch.Tensor]) -> None:
        for begun in self._late:
            begun()
        self._late = []
        self.handed_over.append(len(copies))


@pytest.fixture(params=["late", "cuda"])
def stream(request: pytest.FixtureRequest) -> SideStream:
    if request.param == "late":
        return LateStream()
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return CudaSideStream(torch.device("cuda"))


def test_tensors_anywhere_in_a_batch_are_copied_and_all_else_is_as_it_was(stream: SideStream) -> None:
    batch = {
        "x": torch.arange(6).reshape(2, 3),
        "pairs": [Pair(torch.ones(2), 3), (torch.zeros(1), "text")],
        "ordered": OrderedDict(a=torch.tensor(7.0)),
        "none": None,
    }
    moved = DeviceCopies(stream).of(batch)
    assert moved["x"] is not batch["x"] and moved["x"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert type(moved["pairs"][0]) is Pair and moved["pairs"][0].tokens.tolist() == [1, 1] and moved["pairs"][0].length == 3
    assert moved["pairs"][1][0].tolist() == [0] and moved["pairs"][1][1] == "text"
    assert type(moved["ordered"]) is OrderedDict and moved["ordered"]["a"].item() == 7 and moved["none"] is None
    if isinstance(stream, LateStream):
        assert stream.handed_over == [4], "once for all tensors of a batch"
    else:
        assert moved["x"].is_cuda and moved["ordered"]["a"].is_cuda


def test_what_has_no_tensor_or_is_there_already_is_not_copied(stream: SideStream) -> None:
    there = torch.ones(2, device="meta")
    copies = DeviceCopies(stream)
    assert copies.of(["a", 1]) == ["a", 1] and copies.of({"x": there})["x"] is there
    if isinstance(stream, LateStream):
        assert stream.handed_over == []


def test_a_loaders_batches_are_copied_in_order_while_the_device_is_busy(stream: SideStream) -> None:
    """Each batch is used at once, on training's stream, behind much other work there: the values are those of the host."""
    reading = Reading(pinned=isinstance(stream, CudaSideStream), decode=_large)
    loader = make_loader(range(40), Share(4), 7, True, None, reading)
    loader.copies = DeviceCopies(stream)
    plain = make_loader(range(40), Share(4), 7, True, None, Reading(decode=_large))
    device = "cuda" if isinstance(stream, CudaSideStream) else "cpu"
    busy = torch.ones(2048, 2048, device=device) if device == "cuda" else torch.ones(8, 8)
    sums: list[Any] = []
    for _ in range(25):
        busy = (busy @ busy).clamp_(0, 1)
        batch = next(loader)
        sums.append((batch.double().sum(), next(plain).double().sum()))
        batch.fill_(-1)
        del batch
    assert all(one.item() == other.item() for one, other in sums)
    assert loader.state_dict() == plain.state_dict()


def _large(sample: int) -> torch.Tensor:
    return torch.full((64, 1024), float(sample))
