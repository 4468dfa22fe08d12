"""What each test without servers finds as it was."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

CONFIG = "TRAINHOUSE_CONFIG"

# Generated examples make many objects that live briefly: by Python's own thresholds an eighth of the time goes into looks for cycles. What
# collection made lives as long as the process, and is set aside. Not for tests on servers: clients that are left behind in a cycle ask on.
gc.set_threshold(20_000, 20, 20)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _no_stack_of_another_test() -> Iterator[None]:
    """A command that runs in this process names the stack in the folder, such as that of `make demo`, to all that comes after it."""
    before = os.environ.get(CONFIG)
    yield
    if before is None:
        os.environ.pop(CONFIG, None)
    else:
        os.environ[CONFIG] = before
