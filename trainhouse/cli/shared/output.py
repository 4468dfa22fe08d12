"""Output of commands: tables for people, one JSON object a line for programs.

Holds: what a program reads goes to standard output alone; remarks for people go to standard error.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from trainhouse.cli.shared.table_layout import Grid

STYLES: Final = {"bold": "1", "red": "31", "green": "32", "yellow": "33", "magenta": "35", "cyan": "36"}
COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
OBEYED: Final = re.compile(rf"{COLOUR.pattern}|[\x00-\x08\x0a-\x1f\x7f-\x9f]")
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
    drop: Sequence[str] | None = None,
    cut: str = "",
    whole: Sequence[str] = (),
) -> None:
    """A table; for a pipe as wide as it has to be, so that other tools cut it.

    Texts of the columns `right`, which stand on the right, and `whole` stay on one line each.

    On a terminal that it does not fit into, long texts go on in a second line between words, or are cut in the column `cut`; then the
    columns of `drop` are left out one by one, the first one first; None: from the right, but for the first two. Where that is not enough,
    each cell has a line of its own.
    """
    from trainhouse.cli.shared import table_layout

    shown = tuple(tuple(cell(value) for value in row) for row in rows)
    grid = table_layout.Grid(tuple(columns), shown, frozenset(right), frozenset(whole) | frozenset(right), cut)
    if not sys.stdout.isatty():
        _print_grid(grid, None)
        return
    width = shutil.get_terminal_size().columns
    fitting, dropped = table_layout.fit(grid, width, tuple(columns[:1:-1]) if drop is None else drop)
    if not table_layout.fits(fitting, width):
        _print_records(grid)
        return
    _print_grid(fitting, width)
    if dropped:
        left_out = ", ".join(c for c in columns if c in dropped)
        remark(f"{width} columns leave no room for {left_out}: a wider terminal or --json shows them")


def _print_grid(grid: "Grid", width: int | None) -> None:
    from trainhouse.cli.shared.table_layout import BETWEEN, lines_of, widths

    sizes = widths(grid, width)
    written = [BETWEEN.join(_styled(lines, "bold")) for lines in lines_of(grid.columns, grid, sizes)]
    for row in grid.rows:
        written += [BETWEEN.join(_styled(line)) for line in lines_of(row, grid, sizes)]
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in written))


def _print_records(grid: "Grid") -> None:
    width = max(map(len, grid.columns))
    for row in grid.rows:
        sys.stdout.write("\n")
        for column, value in zip(grid.columns, row, strict=True):
            sys.stdout.write(f" {_styled([f'{column:<{width}}'], 'bold')[0]}  {value}".rstrip() + "\n")


def _styled(texts: Sequence[str], style: str = "") -> list[str]:
    """Texts with the styles of a terminal, if that is one: states have their colour."""
    if not has_styles():
        return list(texts)
    found = [(style or STATE_STYLES.get(text.strip(), ""), text) for text in texts]
    return [f"\x1b[{STYLES[name]}m{text}\x1b[0m" if name else text for name, text in found]


def has_styles() -> bool:
    """Returns whether standard output is a terminal that shows colours, and none of them is unwanted (NO_COLOR)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def cell(value: Any) -> str:
    """A value as text of a cell; what is not printable shows as Python's escapes."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return printable(str(value))


def remark(text: str) -> None:
    """A line for a person, on standard error."""
    sys.stderr.write(text + "\n")


def printable(text: str) -> str:
    """Text with its control characters as escapes, for a terminal."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def printable_line(text: str) -> str:
    """A line of a job's output without what a terminal would obey, but for tabs and colours."""
    return OBEYED.sub(lambda found: found[0] if COLOUR.fullmatch(found[0]) else repr(found[0])[1:-1], text)


def attempt_line(before: int | None, attempt: int) -> str:
    """The line between the output of two attempts; empty within one, and before the first."""
    return "" if before in (None, attempt) else f"--- attempt {attempt} ---"


def one_line(text: str, limit: int | None = None) -> str:
    """Text for a terminal: line ends as ` | `, control characters as escapes, cut to `limit` characters."""
    joined = " | ".join(printable(" ".join(line.split())) for line in text.splitlines() if line.strip())
    return joined if limit is None or len(joined) <= limit else joined[: limit - 1] + "…"


def wrapped(text: str, pipe_chars: int | None = None) -> list[str]:
    """Lines of a text, broken between words where a terminal ends, further ones further in; for a pipe of `pipe_chars`, or one line."""
    import textwrap

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else pipe_chars
    if width is None:
        return [text]
    return textwrap.wrap(text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) or [""]


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
