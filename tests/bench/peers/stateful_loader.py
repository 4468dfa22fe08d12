"""torchdata's StatefulDataLoader over the samples of the bench `loader`: python FILE OFFSETS BATCH WORKERS PASSES SIZES."""

import json
import os
import sys
import time
from array import array
from collections.abc import Iterator
from typing import Any

BATCHES_COUNTED = {"_num_yielded", "_sampler_iter_yielded"}


class Blob:
    """Samples of one file by `pread`; opens it in the process that reads."""

    def __init__(self, file: str, offsets: str) -> None:
        self._file, self._opened = file, -1
        self._offsets = array("q")
        with open(offsets, "rb") as data:
            self._offsets.frombytes(data.read())

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: int) -> bytes:
        if self._opened < 0:
            self._opened = os.open(self._file, os.O_RDONLY)
        first = self._offsets[index]
        return os.pread(self._opened, self._offsets[index + 1] - first, first)


def as_list(samples: list[Any]) -> list[Any]:
    """Samples as they are, so that reading alone is measured."""
    return samples


def samples_per_s(batches: Iterator[list[bytes]], count: int, batch: int) -> float:
    """Rate of `count` batches after the first ones, which start the workers."""
    for _ in range(8):
        next(batches)
    began = time.perf_counter()
    for _ in range(count):
        next(batches)
    return count * batch / (time.perf_counter() - began)


def _at(state: Any, batches: int, batch: int) -> Any:
    """The state after so many batches: that of a pass's first batch with its counters set, since nobody waits for 90 % of a pass."""
    if not isinstance(state, dict):
        return state
    counted = dict.fromkeys(BATCHES_COUNTED, batches) | {"samples_yielded": batches * batch}
    return {name: counted[name] if name in counted else _at(value, batches, batch) for name, value in state.items()}


def main() -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    file, offsets, *numbers = sys.argv[1:]
    batch, workers, passes, *sizes = map(int, numbers)

    def endless() -> Iterator[list[bytes]]:
        loader = StatefulDataLoader(
            Blob(file, offsets), batch, shuffle=True, num_workers=workers, collate_fn=as_list, persistent_workers=workers > 0
        )
        while True:
            yield from loader

    whole = len(Blob(file, offsets)) // batch
    answer: dict[str, float] = {"samples_per_s": samples_per_s(endless(), passes * whole, batch)}
    for size in sizes:
        before = StatefulDataLoader(range(size), batch, shuffle=True, collate_fn=as_list)
        next(iter(before))
        state = _at(before.state_dict(), size * 9 // 10 // batch, batch)
        began = time.perf_counter()
        after = StatefulDataLoader(range(size), batch, shuffle=True, collate_fn=as_list)
        after.load_state_dict(state)
        next(iter(after))
        answer[f"resume_{size}_s"] = time.perf_counter() - began
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
