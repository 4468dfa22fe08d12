"""Output of commands: tables for people, one JSON object a line for programs.

Holds: what a program reads goes to standard output alone; remarks for people go to standard error.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

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


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[str] = ()) -> None:
    """A table; wide enough for a pipe to be cut by other tools."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        shown.add_column(column, justify="right" if column in right else "left", overflow="fold", no_wrap=column in ("job", "state"))
    for row in rows:
        shown.add_row(*(cell(value) for value in row))
    console = Console(soft_wrap=False) if sys.stdout.isatty() else Console(width=400, no_color=True)
    console.print(shown)


def cell(value: Any) -> str:
    """A value as text of a cell, without markup of its own."""
    from rich.markup import escape

    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    text = escape(str(value))
    return f"[{STATE_STYLES[text]}]{text}[/]" if text in STATE_STYLES else text


def remark(text: str) -> None:
    """A line for a person, on standard error."""
    sys.stderr.write(text + "\n")


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
