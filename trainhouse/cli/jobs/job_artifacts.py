"""Versions of artifacts that a job stored and used, for `status`.

Holds: a line fits 80 columns; of a name that does not, the end is cut, never the hash. `NAME@HASH` is what `trainhouse artifact get` takes.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from trainhouse.client import TrainhouseClient
    from trainhouse.client.quick.quick_reads import QuickReads

MOST_LINES: Final = 10
_SHORT_CHARS: Final = 12
_TEXT_CHARS: Final = 68
"""Of 80 columns, 12 are the line's own name."""


def artifacts_of(client: "QuickReads | TrainhouseClient", job_id: str) -> list[dict[str, Any]] | None:
    """Asks the tables for the versions that a job stored and used; None where the tables do not answer. Blocks."""
    from trainhouse.client.errors import ClientError

    try:
        return client.artifacts(job_id)
    except ClientError:
        return None


def lines(rows: Sequence[Mapping[str, Any]] | None) -> list[tuple[str, str]]:
    """The versions as (stored or used, text). Pure."""
    rows = rows or []
    shown = [(str(row["action"]), _text(row)) for row in rows[:MOST_LINES]]
    return shown + ([("", f"and {len(rows) - MOST_LINES} more: `--json` has them")] if len(rows) > MOST_LINES else [])


def _text(row: Mapping[str, Any]) -> str:
    about = f"@{str(row['sha256'])[:_SHORT_CHARS]}  {row['kind']}, {size_text(int(row['size_bytes']))}"
    name, room = str(row["name"]), _TEXT_CHARS - len(about)
    return (name if len(name) <= room else f"{name[: max(room - 1, 3)]}…") + about


def size_text(size_bytes: int) -> str:
    """`1300000` -> `1.2 MiB`. Pure."""
    size, units = float(size_bytes), ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
    at = 0
    while size >= 1024 and at < len(units) - 1:
        size, at = size / 1024, at + 1
    return f"{size:.1f} {units[at]}" if at else f"{size_bytes} B"
