"""Waiting for threads that torch owns: seen through the kernel, with real threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trainhouse.workers.session.process.exit_guard import TIMEOUT_S, wait_until_let_go

NAME = "test_worker"


@contextmanager
def named_thread(work: Callable[[], None]) -> Iterator[None]:
    """Runs `work` in a thread that the kernel knows as NAME."""
    named = threading.Event()

    def run() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(NAME)
        named.set()
        work()

    thread = threading.Thread(target=run)
    thread.start()
    named.wait()
    try:
        yield
    finally:
        thread.join()


def test_no_such_thread_costs_nothing() -> None:
    began = time.monotonic()
    assert wait_until_let_go(NAME)
    assert time.monotonic() - began < TIMEOUT_S / 2


def test_a_thread_that_waits_for_work_is_not_waited_for() -> None:
    stop = threading.Event()
    with named_thread(lambda: bool(stop.wait()) and None):
        try:
            assert wait_until_let_go(NAME, timeout_s=30.0)
        finally:
            stop.set()


def test_a_thread_that_still_works_is_waited_for() -> None:
    done = threading.Event()

    def work() -> None:
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            pass
        done.set()

    with named_thread(work):
        assert wait_until_let_go(NAME, timeout_s=30.0)
        assert done.is_set()


def test_the_wait_has_a_bound() -> None:
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            pass

    with named_thread(work):
        try:
            assert not wait_until_let_go(NAME, timeout_s=0.2)
        finally:
            stop.set()
