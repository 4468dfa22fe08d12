"""A thread beside training: what a session does by itself from time to time.

Holds: it dies with the process, whatever state that is in; it ends when it is told to, at the next moment at which it waits.
Never: keeps the process alive.
"""

import threading
from collections.abc import Callable

STOP_TIMEOUT_S = 2.0


class Beside:
    """Runs `work` in a thread of its own; `work` waits by `ended_in`."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=work, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def ended_in(self, wait_s: float) -> bool:
        """Waits so long; True as soon as it is to end. Blocks."""
        return self._ended.wait(wait_s)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """End; True when it does nothing any more. Blocks for as long as the work takes between two waits, at most `timeout_s`."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()
