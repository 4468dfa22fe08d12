"""The contract of copies into host memory: on this host, on a stream that is late, and on a device where there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext

import pytest
import torch

from trainhouse.checkpointing.staging.arena import Arena
from trainhouse.checkpointing.staging.copier import Copier, CopyStream, CudaCopyStream, Mark

torch.set_num_threads(1)


class LateStream:
    """A stream of copies that are late: each is done when a mark after it is waited for or held, with the values that are there then."""

    def __init__(self) -> None:
        self.pinned: list[int] = []
        self.late = self.followed = 0
        self._copies: list[Callable[[], object]] = []

    def follow(self) -> None:
        self.followed += 1

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        self.late += 1
        self._copies.append(lambda: target.copy_(source))

    def mark(self) -> Mark:
        return _LateMark(self._copies)

    def pin(self, memory: torch.Tensor) -> Iterator[None]:
        self.pinned.append(memory.numel())
        return iter(())

    def may_pin_beside(self) -> bool:
        return True


class _LateMark:
    """`hold` does the copies at once: this host cannot let what comes next wait."""

    def __init__(self, copies: list[Callable[[], object]]) -> None:
        self._copies = copies

    def wait(self) -> None:
        while self._copies:
            self._copies.pop(0)()

    def hold(self) -> None:
        self.wait()


class Trained:
    """A model with a buffer that its forward pass changes, and an optimizer with moments."""

    def __init__(self, device: str) -> None:
        self.model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.backward()
        self.optimizer.step()

    def backward(self) -> None:
        self.optimizer.zero_grad()
        self.model(torch.randn(4, 8, device=next(self.model.parameters()).device)).square().sum().backward()

    def tensors(self) -> list[torch.Tensor]:
        moments = [t for state in self.optimizer.state.values() for t in state.values() if isinstance(t, torch.Tensor)]
        return [*self.model.state_dict().values(), *moments, next(self.model.parameters()).detach().t()]


@pytest.fixture(params=["host", "late", "cuda"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, CopyStream | None]]:
    if request.param == "cuda":
        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")
        yield "cuda", CudaCopyStream(torch.device("cuda"))
        return
    if request.param == "late":
        monkeypatch.setattr("trainhouse.checkpointing.staging.copier._in_host_memory", lambda tensor: False)
        yield "cpu", LateStream()
        return
    yield "cpu", None


def staged(copier: Copier, arena: Arena, tensors: list[torch.Tensor]) -> tuple[list[tuple[int, int]], Callable[[], None]]:
    """Begins to copy the tensors one after the other; returns where they are."""
    sizes = [t.numel() * t.element_size() for t in tensors]
    arena.reserve(sum(sizes))
    copier.begin(arena.whole)
    places, at = [], 0
    for tensor, size in zip(tensors, sizes, strict=True):
        copier.copy(arena.tensor(at, size), tensor)
        places.append((at, size))
        at += size
    return places, copier.end()


def pin(stream: CudaCopyStream, arena: Arena) -> None:
    for _ in stream.pin(arena.whole):
        pass


def host_bytes(tensor: torch.Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def _step(training: Trained) -> None:
    training.backward()  # changes the buffers
    training.optimizer.step()


def _write_outside_of_a_step(training: Trained) -> None:
    """As a clamp, a swap of averages, a load of a state or a replayed graph does."""
    with torch.no_grad():
        for tensor in training.tensors():
            tensor.mul_(7).add_(1)


@pytest.mark.parametrize("change", [_step, _write_outside_of_a_step])
def test_what_was_there_at_the_call_is_copied_whatever_training_does_then(
    kind: tuple[str, CopyStream | None], change: Callable[[Trained], None]
) -> None:
    device, stream = kind
    training, arena, copier = Trained(device), Arena(), Copier(stream)
    for _ in range(3):
        tensors = training.tensors()
        expected = [host_bytes(t) for t in tensors]
        places, copied = staged(copier, arena, tensors)
        change(training)
        copied()
        assert [bytes(arena.view(*place)) for place in places] == expected
    if isinstance(stream, LateStream):
        assert stream.followed == 3 * 2, "at the beginning, and behind the rows that the device writes for a tensor that is not contiguous"
        assert stream.late == 3 * len(tensors) and stream.pinned == [arena.size_bytes], "memory that stays is pinned once, all of it"


def test_values_of_every_kind_are_copied_row_by_row(kind: tuple[str, CopyStream | None]) -> None:
    device, stream = kind
    tensors = [
        torch.randn(3, 5, device=device).t(),
        torch.randn(4, dtype=torch.complex64, device=device).conj(),
        torch.tensor(3.5, dtype=torch.float64, device=device),
        torch.empty(0, 4, device=device),
        torch.randn(8, device=device).to(torch.float8_e4m3fn),
        torch.arange(7, dtype=torch.uint8, device=device)[1:],
        torch.randn(6, device=device)[::2],
    ]
    arena, copier = Arena(), Copier(stream)
    places, copied = staged(copier, arena, tensors)
    copied()
    assert [bytes(arena.view(*place)) for place in places] == [host_bytes(t.resolve_conj()) for t in tensors]


def test_rows_that_the_device_still_writes_are_waited_for(kind: tuple[str, CopyStream | None]) -> None:
    device, stream = kind
    wide = 8192 if device == "cuda" else 64
    tensor = torch.arange(wide * wide, dtype=torch.float32, device=device).reshape(wide, wide).t()
    arena, copier = Arena(), Copier(stream)
    for _ in range(3):
        places, copied = staged(copier, arena, [tensor])
        copied()
        found = torch.frombuffer(arena.view(*places[0]), dtype=torch.float32).reshape(wide, wide)
        assert torch.equal(found, tensor.cpu())
        arena.tensor(0, arena.size_bytes).zero_()


@pytest.fixture
def on_device() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")


def test_memory_at_the_address_of_one_that_is_gone_gets_the_values(on_device: None) -> None:
    addresses = set()
    for number in range(6):
        arena, copier = Arena(), Copier(CudaCopyStream(torch.device("cuda")))
        tensors = [torch.full((2**20,), float(number + 1), device="cuda")]
        places, copied = staged(copier, arena, tensors)
        copied()
        assert [bytes(arena.view(*place)) for place in places] == [host_bytes(t) for t in tensors]
        addresses.add(arena.whole.data_ptr())
        arena.close()
        del arena, copier, copied
    assert len(addresses) < 6, "an address came again"


@pytest.mark.parametrize("mebibytes", [4, 64])
def test_memory_that_another_left_pinned_when_it_was_unmapped_gets_the_values(on_device: None, mebibytes: int) -> None:
    """The driver then takes the address for pages that are no longer there; of a larger range nobody can make it forget a part."""
    others = Arena()
    others.reserve(mebibytes * 2**20)
    begin, end, runtime = others.whole.data_ptr(), others.whole.data_ptr() + others.size_bytes, torch.cuda.cudart()  # type: ignore[no-untyped-call]
    assert int(runtime.cudaHostRegister(begin, others.size_bytes, 0)) == 0
    others.close()
    tensors = [torch.full((2**19,), 7.0, device="cuda"), torch.arange(5, device="cuda")]
    elsewhere = []  # mappings that keep what came to other addresses from coming there again
    try:
        for _ in range(200):
            arena = Arena()
            arena.reserve(4 * 2**20)
            if begin <= arena.whole.data_ptr() < end:
                break
            elsewhere.append(arena)
        assert begin <= arena.whole.data_ptr() < end, "this test needs the mapping to come there again"
        stream = CudaCopyStream(torch.device("cuda"))
        pin(stream, arena)
        places, copied = staged(Copier(stream), arena, tensors)
        copied()
        assert [bytes(arena.view(*place)) for place in places] == [host_bytes(t) for t in tensors]
    finally:
        runtime.cudaHostUnregister(begin)
        torch.zeros(1, device="cuda")


def test_memory_that_is_pinned_stays_mapped_until_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """On any host: the order of pins and unpins that the driver sees, and that an address it holds is not written to by the device."""
    driver = Driver()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: driver)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: None)
    stream, arena = CudaCopyStream(torch.device("cpu")), Arena()
    arena.reserve(8)
    first = arena.whole.data_ptr()
    pin(stream, arena)
    arena.reserve(arena.size_bytes + 1)
    pin(stream, arena)
    assert driver.pinned == {arena.whole.data_ptr(): arena.size_bytes} and driver.forgotten == [first]
    second = arena.whole.data_ptr()
    arena.close()
    assert driver.pinned, "the driver may still write there"
    del stream
    assert driver.pinned == {} and driver.forgotten == [first, second]


def test_what_another_left_pinned_is_forgotten_or_not_written_to_by_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: driver)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: None)
    arena = Arena()
    arena.reserve(8)
    begin = arena.whole.data_ptr()
    driver.pinned[begin] = 4096
    stream = CudaCopyStream(torch.device("cpu"))
    pin(stream, arena)
    assert driver.pinned == {begin: arena.size_bytes} and driver.forgotten == [begin]
    driver.pinned = {begin - 4096: arena.size_bytes}
    pin(stream, arena)
    assert driver.pinned == {begin - 4096: arena.size_bytes}, "a part of a range cannot be forgotten"
    stream.copy(arena.tensor(0, 3), torch.tensor([1, 2, 3], dtype=torch.uint8))
    assert arena.view(0, 3) == bytes([1, 2, 3])


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """CUDA as far as pinning goes, with parts of 4 MiB."""
    driver = Driver()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: driver)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: _Stream())
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)
    monkeypatch.setattr("trainhouse.checkpointing.staging.copier.PIN_BYTES", 4 * 2**20)
    return driver


class _Stream:
    device = torch.device("cpu")

    def wait_stream(self, other: object) -> None: ...


def test_what_was_pinned_beside_training_is_not_pinned_again_and_the_rest_is(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr("trainhouse.checkpointing.staging.copier._relaxed", lambda: True)
    arena = Arena()
    arena.reserve(11 * 2**20)
    copier, begin = Copier(CudaCopyStream(torch.device("cpu"))), arena.whole.data_ptr()
    preparing = copier.prepare(arena.whole)
    next(preparing)
    assert driver.pinned == {begin: 4 * 2**20}, "a part at each step"
    copier.begin(arena.whole)
    parts = {begin: 4 * 2**20, begin + 4 * 2**20: 4 * 2**20, begin + 8 * 2**20: 4 * 2**20}
    assert driver.pinned == parts and driver.forgotten == []
    copier.begin(arena.whole)
    assert driver.pinned == parts and driver.forgotten == [], "memory that stays is pinned once"
    arena.reserve(13 * 2**20)
    copier.begin(arena.whole)
    assert driver.forgotten == list(parts), "all of it is unpinned before it is unmapped"
    assert sum(driver.pinned.values()) == arena.size_bytes and min(driver.pinned) == arena.whole.data_ptr()


def test_nothing_is_pinned_beside_training_that_may_be_capturing_a_graph(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainhouse.checkpointing.staging.copier._relaxed", lambda: False)
    arena = Arena()
    arena.reserve(8)
    assert list(Copier(CudaCopyStream(torch.device("cpu"))).prepare(arena.whole)) == [] and driver.pinned == {}


def test_no_copy_is_to_two_parts_that_were_pinned_each_by_itself(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    arena, stream = Arena(), CudaCopyStream(torch.device("cpu"))
    arena.reserve(12 * 2**20)
    pin(stream, arena)
    tensor = torch.arange(9 * 2**20 + 5, dtype=torch.int32).view(torch.uint8)[: 9 * 2**20 + 5]
    copied: list[tuple[int, int]] = []
    plain = torch.Tensor.copy_

    def copy(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
        copied.append((target.data_ptr() - arena.whole.data_ptr(), target.numel()))
        return plain(target, source)

    monkeypatch.setattr(torch.Tensor, "copy_", copy)
    stream.copy(arena.tensor(100, tensor.numel()), tensor)
    assert copied == [(100, 4 * 2**20 - 100), (4 * 2**20, 4 * 2**20), (8 * 2**20, 2**20 + 105)]
    assert arena.view(100, tensor.numel()) == tensor.numpy().tobytes()


def test_a_part_that_the_driver_refuses_leaves_those_before_it_pinned(driver: Driver) -> None:
    arena, stream = Arena(), CudaCopyStream(torch.device("cpu"))
    arena.reserve(12 * 2**20)
    begin = arena.whole.data_ptr()
    driver.most = 2
    pin(stream, arena)
    assert list(driver.pinned) == [begin, begin + 4 * 2**20]
    stream.copy(arena.tensor(9 * 2**20, 3), torch.tensor([1, 2, 3], dtype=torch.uint8))
    assert arena.view(9 * 2**20, 3) == bytes([1, 2, 3])
    del stream
    assert driver.pinned == {}


class Driver:
    """CUDA's registrations of host memory: it refuses what overlaps one, and forgets one by its first address alone."""

    def __init__(self) -> None:
        self.pinned: dict[int, int] = {}
        self.forgotten: list[int] = []
        self.most = 1000

    def cudaHostRegister(self, begin: int, size_bytes: int, flags: int) -> int:
        if any(begin < other + size and other < begin + size_bytes for other, size in self.pinned.items()):
            return 712
        if len(self.pinned) == self.most:
            return 2
        self.pinned[begin] = size_bytes
        return 0

    def cudaHostUnregister(self, begin: int) -> int:
        if self.pinned.pop(begin, None) is None:
            return 713
        self.forgotten.append(begin)
        return 0
