"""Small pieces of Markdown. Pure."""

import inspect
import re
from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells may hold any text."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell(c) for c in line) + " |" for line in lines) + "\n"


def cell(text: str) -> str:
    """A text as a cell of a table: one line, with its bars escaped outside of code, where a backslash would be shown."""
    parts = " ".join(text.split()).split("`")
    return "`".join(part if i % 2 else part.replace("|", r"\|") for i, part in enumerate(parts))


def prose(docstring: str | None) -> str:
    """A docstring as paragraphs; what would be read as HTML is escaped outside of code."""
    text = inspect.cleandoc(docstring or "")
    return "`".join(part if i % 2 else re.sub(r"<(?=[a-zA-Z/!])", "&lt;", part) for i, part in enumerate(text.split("`")))


def code(value: object) -> str:
    """A value in code style; nothing where there is none."""
    return f"`{value}`" if value not in (None, "") else ""
