"""How a process of the projections is asked to end."""

import signal
import threading
from types import FrameType


def on_signal() -> threading.Event:
    """An event that SIGTERM and SIGINT set, from now on. For the main thread."""
    stop = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    return stop
