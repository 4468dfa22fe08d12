"""Code that runs as another user of the machine, who may not read what is the stack's."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import pytest

NOBODY = 65534
TIMEOUT_S = 120.0

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def as_stranger(what: Callable[[], Any]) -> Any:
    """What the function returns in a process of uid 65534 without groups; raises RuntimeError with what it raised."""
    there, here = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_become_and_run, args=(here, what), daemon=True)
    child.start()
    here.close()
    try:
        if not there.poll(TIMEOUT_S):
            raise TimeoutError(f"the other user's process did not answer within {TIMEOUT_S:g} s")
        ok, found = there.recv()
    finally:
        child.kill()
        child.join()
    if not ok:
        raise RuntimeError(found)
    return found


def _become_and_run(answer: Connection, what: Callable[[], Any]) -> None:
    try:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        answer.send((True, what()))
    except BaseException as error:
        answer.send((False, f"{type(error).__name__}: {error}"))
