"""Output of commands: tables for people, one JSON object a line for programs.

Holds: what a program reads goes to standard output alone; remarks for people go to standard error.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from rich.table import Table

WHOLE: Final = ("job", "state")
"""Columns that are never folded: people copy them."""
FOLDED_CHARS: Final = 20
MARGIN, BETWEEN_COLUMNS = 2, 3
STATE_STYLES = {
    "RUNNING": "cyan",
    "SUCCEEDED": "green",
    "FAILED": "red",
    "REJECTED": "red",
    "CANCELLED": "yellow",
    "NEEDS_REVIEW": "magenta",
}


def logs_aside() -> None:
    """For commands that run parts of the platform: what those log goes to standard error, warnings and worse, as lines for people."""
    from trainhouse.events.runtime.logs import configure_logs

    configure_logs("WARNING", "trainhouse", "console")


def json_lines(rows: Iterable[Mapping[str, Any]]) -> None:
    """One object a line."""
    import orjson

    for row in rows:
        sys.stdout.write(orjson.dumps(row, default=str).decode() + "\n")


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    right: Sequence[str] = (),
    narrow: Sequence[str] = (),
    cut: str = "",
) -> None:
    """A table; wide enough for a pipe to be cut by other tools.

    On a terminal that it does not fit into, long texts are folded, or cut in the column `cut`; then columns that are not in `narrow` are
    left out; and where that is not enough, or `narrow` is empty, each cell has a line of its own.
    """
    from rich.console import Console

    if not sys.stdout.isatty():
        Console(width=400, no_color=True).print(_grid(columns, [[cell(v) for v in row] for row in rows], right))
        return
    console, cells = Console(soft_wrap=False), [[cell(value) for value in row] for row in rows]
    if _least_width(columns, cells) > console.width and narrow:
        kept = [i for i, column in enumerate(columns) if column in narrow]
        left_out = ", ".join(column for column in columns if column not in narrow)
        columns, cells = [columns[i] for i in kept], [[row[i] for i in kept] for row in cells]
        remark(f"{console.width} columns leave no room for {left_out}: a wider terminal or --json shows them")
    if _least_width(columns, cells) <= console.width:
        console.print(_grid(columns, cells, right, cut, console.width - _least_width(columns, cells)))
        return
    width = max(map(len, columns))
    for row in cells:
        console.print("")
        for column, value in zip(columns, row, strict=True):
            console.print(f" [bold]{column:<{width}}[/]  {value}", soft_wrap=True)


def _grid(columns: Sequence[str], cells: Iterable[Sequence[str]], right: Sequence[str], cut: str = "", spare: int = 0) -> "Table":
    """The table; of what is beyond the least widths, `spare`, the column `cut` gets all."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column, least in zip(columns, _least_widths(columns, cells := list(cells)), strict=True):
        side: Literal["left", "right"] = "right" if column in right else "left"
        if column == cut:
            shown.add_column(column, justify=side, overflow="ellipsis", no_wrap=True, max_width=least + spare)
        else:
            shown.add_column(column, justify=side, overflow="fold", no_wrap=column in WHOLE, min_width=least)
    for row in cells:
        shown.add_row(*row)
    return shown


def _least_width(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> int:
    return MARGIN + sum(least + BETWEEN_COLUMNS for least in _least_widths(columns, cells))


def _least_widths(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int]:
    """Characters that each column needs: all of a name, a number or a time; FOLDED_CHARS of a longer text."""
    from rich.text import Text

    widths = [max((Text.from_markup(row[i]).cell_len for row in cells), default=0) for i in range(len(columns))]
    return [max(len(c), w if c in WHOLE else min(w, FOLDED_CHARS)) for c, w in zip(columns, widths, strict=True)]


def cell(value: Any) -> str:
    """A value as text of a cell, without markup of its own; what is not printable shows as Python's escapes."""
    from rich.markup import escape

    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    text = escape(printable(str(value)))
    return f"[{STATE_STYLES[text]}]{text}[/]" if text in STATE_STYLES else text


def remark(text: str) -> None:
    """A line for a person, on standard error."""
    sys.stderr.write(text + "\n")


def printable(text: str) -> str:
    """Text with its control characters as escapes, for a terminal."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def one_line(text: str, limit: int | None = None) -> str:
    """Text with its line ends shown as ` | `, cut to `limit` characters."""
    joined = " | ".join(line.strip() for line in text.splitlines() if line.strip())
    return joined if limit is None or len(joined) <= limit else joined[: limit - 1] + "…"


def clock(at_ms: int | None) -> str:
    """A moment in UTC, to the second; empty for none."""
    return "" if not at_ms else datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def duration(seconds: float | None) -> str:
    """`95` -> `1m35s`; empty for none."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.0f}s" if seconds >= 10 else f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = ((days, "d"), (hours, "h"), (minutes, "m"), (rest, "s"))
    return "".join(f"{n}{unit}" for n, unit in [p for p in parts if p[0]][:2]) or "0s"
