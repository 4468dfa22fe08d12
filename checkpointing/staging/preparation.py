"""Host memory of a first save, made ready beside training: allocated, mapped, and pinned where there is a device.

Holds: only the thread of the preparation touches the arena and the copier until `settle` has returned. It ends within one block of memory
once `settle` is called or the program ends; what is ready by then stays ready. It asks the kernel and the driver without the interpreter.
Never: takes more than it was asked for; fails a save: where memory is short, the save says so.
"""

import os
import threading
from contextlib import suppress

from trainhouse.checkpointing.staging.arena import Arena
from trainhouse.checkpointing.staging.copier import Copier

NICE = 10
"""Of lower priority than training, and than the process that uploads."""


class Preparation:
    """One such preparation, which begins at once."""

    def __init__(self, arena: Arena, copier: Copier, size_bytes: int) -> None:
        self._arena = arena
        self._copier = copier
        self._size_bytes = size_bytes
        self._left = threading.Event()
        # Not a daemon, which the interpreter's end could catch within torch; it looks for that end itself.
        self._thread = threading.Thread(target=self._run, name="checkpoint-memory", daemon=False)
        self._thread.start()

    def settle(self) -> None:
        """Leaves the rest to the caller. Blocks for one block of memory at most."""
        self._left.set()
        self._thread.join()

    def _run(self) -> None:
        with suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)  # Linux: of this thread alone
        with suppress(OSError):
            for _ in self._arena.grow(self._size_bytes):
                if self._ending:
                    return
            for _ in self._copier.prepare(self._arena.whole):
                if self._ending:
                    return

    @property
    def _ending(self) -> bool:
        return self._left.is_set() or not threading.main_thread().is_alive()
