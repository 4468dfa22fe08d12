"""Dump of torch's flight recorder beside the rank's logs, when the rank is ended while it is stuck in a collective.

A rank that waits in a collective runs no Python, so no handler of a signal runs either. But the kernel's signal reaches the C part of
Python at once, which writes a byte to the wakeup descriptor; a small thread waits for that byte. A stopped process writes nothing.

Holds: dumps for SIGTERM alone, when the gang's process group is up; never raises, and ends with the process. A program that has a
wakeup descriptor of its own (asyncio) keeps it, and there is no dump then.
Never: touches a tensor.
"""

import contextlib
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any


def watch(path: Path, *, backend: str) -> bool:
    """Dump to `path` at each SIGTERM. Call it from the main thread. False where that cannot be."""
    if threading.current_thread() is not threading.main_thread():
        return False
    read, write = os.pipe()
    os.set_blocking(write, False)
    earlier = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    if earlier != -1:
        signal.set_wakeup_fd(earlier)
        os.close(read)
        os.close(write)
        return False
    os.register_at_fork(after_in_child=_forget)
    threading.Thread(target=_wait, args=(read, path, backend), name="trainhouse-recorder", daemon=True).start()
    return True


def _forget() -> None:
    """A child, such as a loader's worker, that is told to end is none of this rank's business."""
    with contextlib.suppress(ValueError):
        signal.set_wakeup_fd(-1)


def _wait(read: int, path: Path, backend: str) -> None:
    while got := os.read(read, 64):
        if signal.SIGTERM in got:
            dump(path, backend=backend)


def dump(path: Path, *, backend: str) -> bool:
    """Write what the recorder holds, as JSON, whole or not at all. False when there is nothing, or this torch has no such recorder."""
    try:
        raw = _recorded(backend)
        if raw is None:
            return False
        part = path.with_name(f"{path.name}.part")
        part.write_bytes(raw)
        part.replace(path)
    except Exception as error:  # the rank is ending: whatever is wrong here must not change how
        print(f"the flight recorder could not be dumped: {error}", file=sys.stderr, flush=True)
        return False
    return True


def _recorded(backend: str) -> bytes | None:
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    from torch._C import _distributed_c10d

    c10d: Any = _distributed_c10d
    if backend == "nccl":
        raw = c10d._dump_nccl_trace_json(includeCollectives=True, onlyActive=False)
    else:
        raw = c10d._dump_fr_trace_json(includeCollectives=True, onlyActive=False, backend=backend)
    return raw if isinstance(raw, bytes) else str(raw).encode()
