"""Upload of a folder as code of jobs, with remarks on what goes along: how much, what git does not track, and what looks like a secret.

Holds: remarks are pure; lines for people, without line ends.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from trainhouse.client import TrainhouseClient
    from trainhouse.client.code_archive import PackedCode
    from trainhouse.events import CodeArchive

SHOWN: Final = 3


def upload(client: "TrainhouseClient", folder: Path) -> "CodeArchive":
    """Stores a folder, printing the remarks to standard error. Blocks. Raises what the client raises."""
    from trainhouse.client.code_archive import pack

    packed = pack(folder)
    sys.stderr.write("".join(f"{line}\n" for line in remarks(packed)))
    return client.upload(packed)


def remarks(packed: "PackedCode") -> list[str]:
    """A line on size and untracked files; a second one where a name looks like a secret. Sizes in MB of 10⁶ bytes, not compressed."""
    noun = "file" if packed.files == 1 else "files"
    line = f"code: {packed.files} {noun}, {_megabytes(packed.content_bytes)} MB"
    if packed.untracked:
        line += f", {len(packed.untracked)} of them not tracked by git: {_some(packed.untracked)}"
    if not packed.secret_names:
        return [line]
    one = len(packed.secret_names) == 1
    looks, them = ("looks like a secret and goes", "it") if one else ("look like secrets and go", "them")
    advice = f"name {them} in .trainhouseignore, and give secrets by `trainhouse secrets set`"
    return [line, f"warning: {_some(packed.secret_names)} {looks} along; {advice}"]


def _some(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _megabytes(size_bytes: int) -> str:
    """Rounded up to a tenth, so that only nothing is 0.0."""
    return f"{-(-size_bytes // 100_000) / 10:.1f}"
