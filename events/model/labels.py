"""Short texts of specs, datasets, projects and policies: labels, and hashes as texts."""

from typing import Annotated, Final

from pydantic import StringConstraints

MOST_LABEL_CHARS: Final = 128
Label = Annotated[str, StringConstraints(min_length=1, max_length=MOST_LABEL_CHARS, pattern=r"^[^\x00-\x1f]+$")]
Sha256 = Annotated[str, StringConstraints(max_length=64, pattern=r"^[0-9a-f]{64}$")]
MOST_QUARANTINED: Final = 64
"""Shards of a version that are in quarantine at once."""
