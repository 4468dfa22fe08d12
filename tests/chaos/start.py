"""Starts a stack for a campaign, in a folder and on ports of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.stack import ChaosStack
from tests.live_stack import running_stack


@contextmanager
def started(data_dir: Path, slots: int = 2) -> Iterator[ChaosStack]:
    """A running stack; it ends with the block, or with its caller."""
    with running_stack(data_dir, slots) as live:
        yield ChaosStack.of(live)
