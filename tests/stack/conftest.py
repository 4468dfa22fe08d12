"""One whole stack for all tests of this folder: every process real, on free ports, in a fresh folder.

It starts when the first test asks for it and ends with the last test of this folder: a stack that nobody asks still takes a part of
a core from those who come after. It also ends if the run is killed (its supervisor dies with it).
Tests that kill parts, or need a stack to be down, start one of their own: in `tests/integration`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.last_use import end_after_last_use
from tests.support.stack.live_stack import LiveStack, running_stack

SLOTS = 4


@pytest.fixture(scope="session")
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveStack]:
    """The shared stack. TRAINHOUSE_TEST_STACK may name the data folder of one that is up, to write tests without its start."""
    if running := os.environ.get("TRAINHOUSE_TEST_STACK"):
        yield LiveStack(Path(running), SLOTS)
        return
    with ExitStack() as held:
        started = held.enter_context(running_stack(tmp_path_factory.mktemp("stack") / "data", SLOTS))
        end_after_last_use(request, Path(__file__).parent, held.close)
        yield started
