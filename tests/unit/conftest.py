"""What each test without servers finds as it was."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

CONFIG = "TRAINHOUSE_CONFIG"


@pytest.fixture(autouse=True)
def _no_stack_of_another_test() -> Iterator[None]:
    """A command that runs in this process names the stack in the folder, such as that of `make demo`, to all that comes after it."""
    before = os.environ.get(CONFIG)
    yield
    if before is None:
        os.environ.pop(CONFIG, None)
    else:
        os.environ[CONFIG] = before
