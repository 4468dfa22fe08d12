"""Files for their owner alone, written whole or not at all.

Holds: no moment in which others may read it, or in which half of it is there.
"""

from __future__ import annotations

import os
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Replaces the file."""
    draft = path.with_name(f"{path.name}.draft")
    draft.unlink(missing_ok=True)  # whose mode may be another one
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
