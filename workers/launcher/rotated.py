"""New values of secrets while ranks run: what the agent replaced in their folder is covered in their output too.

Holds: looked at after a piece of output was read and before it is shown. A rank reads a value before it can write it, so no new value is
missed. One `stat` a piece.
"""

import os

from trainhouse.workers.launcher.masker import Masker


class Rotated:
    """One folder of secrets; without a name, nothing."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._seen_ns = -1

    def look(self, masker: Masker) -> None:
        """Adds what is new in the folder."""
        if not self._folder:
            return
        try:
            changed_ns = os.stat(self._folder).st_mtime_ns
            if changed_ns != self._seen_ns:
                masker.add(self._values())
                self._seen_ns = changed_ns
        except OSError:
            return  # the folder is gone: what was known stays covered

    def _values(self) -> list[str]:
        """Of all files, those that were replaced among them."""
        found = []
        for entry in os.scandir(self._folder):
            with open(entry.path, encoding="utf-8", errors="surrogateescape", newline="") as file:
                found.append(file.read())
        return found
