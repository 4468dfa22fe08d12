"""Removes old attempts' folders: bounded in number and bytes.

Holds: only folders of attempts that are finished and whose every byte the brokers hold are removed, the oldest first.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from trainhouse.workers.agent.launch.attempt_dirs import FINISHED, found_attempts


@dataclass(frozen=True)
class Cleaner:
    """Keeps the newest `keep` folders, `keep_bytes` of disk at most."""

    agent_dir: Path
    keep: int
    keep_bytes: int

    def clean(self) -> int:
        """Removes old folders and returns their number. Blocks on the disk."""
        done = [f.paths.folder for f in found_attempts(self.agent_dir) if f.finished and f.shipped]
        done.sort(key=lambda folder: (folder / FINISHED).stat().st_mtime, reverse=True)
        total, removed = 0, 0
        for number, folder in enumerate(done):
            total += disk_bytes(folder)
            if number >= self.keep or total > self.keep_bytes:
                shutil.rmtree(folder, ignore_errors=True)
                removed += 1
                try:
                    folder.parent.rmdir()
                except OSError:
                    pass  # other epochs of the job are still there
        return removed


def disk_bytes(folder: Path) -> int:
    """Returns the bytes that a folder takes on the disk; holes in files cost nothing."""
    total = 0
    for base, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(base, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return total
