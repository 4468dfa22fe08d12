"""Memory of a first save, made ready beside training: what is ready is taken over, what is short costs no save, and the thread ends."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.support.fakes.folder_store import FolderObjectStore
from tests.support.waiting import until
from tests.unit.checkpointing.test_checkpointing_copier import LateStream
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.share_estimate import OTHER_BYTES, share_bytes
from trainhouse.checkpointing.staging import arena as arena_module
from trainhouse.checkpointing.staging.arena import BLOCK_BYTES, Arena
from trainhouse.checkpointing.staging.copier import Copier
from trainhouse.checkpointing.staging.preparation import Preparation
from trainhouse.checkpointing.staging.writer import StagingMemory

torch.set_num_threads(1)
MIB = 2**20


def faults() -> int:
    """Pages that the kernel gave this thread so far."""
    return int(Path("/proc/thread-self/stat").read_text().rpartition(")")[2].split()[7])


def ended(name: str = "checkpoint-memory") -> bool:
    return all(thread.name != name for thread in threading.enumerate())


def leave_room(monkeypatch: pytest.MonkeyPatch, most_bytes: int) -> None:
    """The kernel has no more memory than this for an arena."""
    plain = os.posix_fallocate

    def allocate(fd: int, offset: int, size_bytes: int) -> None:
        if offset + size_bytes > most_bytes:
            raise OSError(errno.ENOSPC, "no space")
        plain(fd, offset, size_bytes)

    monkeypatch.setattr(arena_module.os, "posix_fallocate", allocate)


def no_note(sentence: str) -> None:
    raise AssertionError(sentence)


def test_writing_to_memory_that_is_ready_takes_no_page_fault() -> None:
    arena = Arena()
    Preparation(arena, Copier(), 64 * MIB)
    until(ended, "the end of the preparation", every_s=0.01)
    arena.reserve(64 * MIB)
    source = torch.ones(64 * MIB, dtype=torch.uint8)
    before = faults()
    arena.tensor(0, 64 * MIB).copy_(source)
    assert faults() - before < 64 * MIB // 4096 // 100
    fresh = Arena()
    fresh.reserve(64 * MIB)
    before = faults()
    fresh.tensor(0, 64 * MIB).copy_(source)
    assert faults() - before > 64 * MIB // 4096 // 100, "as it is for memory that is not"


def test_a_save_takes_over_what_is_ready_and_does_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    allocated: list[tuple[int, int]] = []
    plain = os.posix_fallocate

    def allocate(fd: int, offset: int, size_bytes: int) -> None:
        allocated.append((offset, size_bytes))
        plain(fd, offset, size_bytes)

    monkeypatch.setattr(arena_module.os, "posix_fallocate", allocate)
    arena = Arena()
    growing = arena.grow(4 * BLOCK_BYTES)
    next(growing)
    whole = arena.whole
    arena.reserve(3 * BLOCK_BYTES)
    assert arena.whole is whole and arena.size_bytes == 4 * BLOCK_BYTES, "no other mapping"
    assert allocated == [(0, BLOCK_BYTES), (BLOCK_BYTES, 3 * BLOCK_BYTES)]
    arena.tensor(0, 4 * BLOCK_BYTES).fill_(7)
    arena.reserve(5 * BLOCK_BYTES)
    assert arena.size_bytes == 5 * BLOCK_BYTES and bytes(arena.view(4 * BLOCK_BYTES - 2, 4)) == b"\7\7\0\0"


def test_a_save_that_comes_at_once_waits_for_no_more_than_a_block(tmp_path: Path) -> None:
    state = {"weights": torch.arange(6 * MIB, dtype=torch.int32)}
    at = Checkpointer(CheckpointerSettings("j", 1, 0, "spec"), FolderObjectStore(tmp_path))
    at.prepare(2**32)
    saved = at.save(state, {}, 1, 1.0)
    assert ended() and saved.bytes_total >= 24 * MIB
    found = {"weights": torch.zeros(6 * MIB, dtype=torch.int32)}
    at.restore(found, lambda own: None)
    assert torch.equal(found["weights"], state["weights"])
    at.prepare(2**32)
    assert ended(), "nothing is made ready after a save"
    at.close()


def test_no_more_than_the_limit_is_taken() -> None:
    memory = StagingMemory(Arena(), Copier(), 32 * MIB, no_note)
    memory.prepare(2**40)
    until(ended, "the end of the preparation", every_s=0.01)
    memory.settle()
    assert memory.arena.size_bytes == 32 * MIB
    memory.prepare(2**40)
    assert ended(), "once"


def test_memory_that_is_short_is_left_to_the_save(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_room(monkeypatch, 2 * BLOCK_BYTES)
    memory = StagingMemory(Arena(), Copier(), None, no_note)
    memory.prepare(4 * BLOCK_BYTES)
    until(ended, "the end of the preparation", every_s=0.01)
    memory.settle()
    assert memory.arena.size_bytes == 2 * BLOCK_BYTES, "what there was"
    memory.arena.reserve(2 * BLOCK_BYTES)
    with pytest.raises(OSError, match="no space"):
        memory.arena.reserve(3 * BLOCK_BYTES)
    assert memory.arena.size_bytes == memory.arena.whole.numel() == 2 * BLOCK_BYTES


def test_a_checkpointer_that_is_closed_ends_the_thread(tmp_path: Path) -> None:
    at = Checkpointer(CheckpointerSettings("j", 1, 0, "spec"), FolderObjectStore(tmp_path))
    at.prepare(2**32)
    at.close()
    assert ended()


@pytest.mark.parametrize("holders", [1, 2, 8])
def test_the_estimate_is_no_less_than_a_share_and_little_more(holders: int) -> None:
    tensors = [torch.empty(3 * MIB, device="meta"), torch.empty(100, 100, device="meta"), torch.empty((), device="meta")]
    total = sum(t.numel() * t.element_size() for t in tensors)
    estimate = share_bytes([*tensors, *tensors], holders)
    assert total / holders < estimate <= total / holders + OTHER_BYTES + (12 * MIB if holders > 1 else 0) + 1000


class PartStream(LateStream):
    """Pins ten parts, one at each step, and says after which of them it waits for `go_on`."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = 0
        self.first, self.go_on = threading.Event(), threading.Event()

    def pin(self, memory: torch.Tensor) -> Iterator[None]:
        for _ in range(10):
            self.parts += 1
            self.first.set()
            self.go_on.wait()
            yield


def test_a_save_pins_what_the_preparation_that_it_ended_had_not() -> None:
    stream = PartStream()
    copier, arena = Copier(stream), Arena()
    preparation = Preparation(arena, copier, BLOCK_BYTES)
    stream.first.wait()
    preparation._left.set()  # as `settle` does, before the part is pinned
    stream.go_on.set()
    preparation.settle()
    assert stream.parts == 1
    copier.begin(arena.whole)
    assert stream.parts == 10


def test_a_save_gets_the_memory_that_it_needs_where_there_is_less_than_was_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_room(monkeypatch, 3 * BLOCK_BYTES)
    arena = Arena()
    growing = arena.grow(4 * BLOCK_BYTES)
    next(growing)
    arena.reserve(2 * BLOCK_BYTES)
    assert arena.size_bytes == 2 * BLOCK_BYTES
