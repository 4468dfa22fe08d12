"""A stack's folder for what changes its credentials: one change at a time.

Never: makes a folder; waits for another change.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainhouse.deploy.local.errors import AlreadyRunningError, NotRunningError
from trainhouse.deploy.local.layout import Choices, StackFolder


def started(root: Path) -> StackFolder:
    """The folder of a stack that was started once; NotRunningError where none was."""
    folder = StackFolder(root.absolute())
    if not folder.client_config.exists():
        raise NotRunningError(f"no stack was ever started on {folder.root}: `trainhouse up --data-dir {folder.root}` starts one")
    return folder


@contextmanager
def alone(folder: StackFolder) -> Iterator[tuple[StackFolder, Choices]]:
    """The folder of a stack that was started once, while nothing else changes its credentials; AlreadyRunningError if something does."""
    with unchanged(folder):
        choices = folder.read_choices()
        assert choices is not None, f"{folder.root} has settings and no choices"
        yield folder, choices


@contextmanager
def unchanged(folder: StackFolder) -> Iterator[None]:
    """A time in which nothing else changes the folder's credentials; AlreadyRunningError if something does."""
    descriptor = os.open(folder.root / "rotation.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise AlreadyRunningError(f"another command changes the credentials of {folder.root}; wait until it is done") from error
    try:
        yield
    finally:
        os.close(descriptor)
