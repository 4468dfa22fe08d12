"""Shutdown signals of a process of the projections."""

import _thread
import signal
import threading
from types import FrameType


def on_signal() -> threading.Event:
    """An event that SIGTERM and SIGINT set, from now on. For the main thread."""
    stop = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        # By another thread: this one may be about to wait for the event and hold its lock, which it would then wait for for ever. Not by
        # threading.Thread, whose start takes locks too.
        _thread.start_new_thread(stop.set, ())

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    return stop
