"""The syntax tree that the engine made of a statement, read from the lines of its EXPLAIN AST.

Holds: every line is a node of a kind that is known here; depth and kinds are the engine's own.
Never: trusts a line that it cannot read: a name with a line break in it makes such lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainhouse.projections.errors import QueryRefusedError

_LINE = re.compile(r"^( *)([A-Za-z][A-Za-z:]*)(?: (.*))?$", re.DOTALL)
_TAIL = re.compile(r"(?: \(alias .*\))?(?: \(children [0-9]+\))?$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Node:
    """A node and its kind; `text` is what the engine says of it (a name, a literal). `parent` is None for the root."""

    kind: str
    text: str
    depth: int
    parent: int | None


def nodes(explained: str) -> list[Node]:
    """All nodes, the root first, each after its parent. Raises QueryRefusedError where a line is no node."""
    found: list[Node] = []
    open_at: list[int] = []
    for line in explained.rstrip("\n").split("\n"):
        match = _LINE.match(line)
        if match is None or len(match[1]) > len(open_at):
            raise QueryRefusedError(
                f"the engine's syntax tree has a line that cannot be read: {line[:60]!r}; are there line breaks in a name?"
            )
        depth = len(match[1])
        del open_at[depth:]
        if bool(found) != bool(open_at):
            raise QueryRefusedError("the engine's syntax tree has more than one root: one statement at a time")
        found.append(Node(match[2], _TAIL.sub("", match[3] or "", count=1) if match[3] else "", depth, open_at[-1] if open_at else None))
        open_at.append(len(found) - 1)
    return found
