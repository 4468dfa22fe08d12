"""Layout of a table in lines of bounded width.

Holds: pure; a word is never broken; columns that do not fit are left out in the order in which the caller gives them up.
Never: reads the terminal.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len

BETWEEN: Final = "  "
TEXT_CHARS: Final = 20
"""A column of longer texts is at least so wide, so that it is read in lines and not in single words."""


@dataclass(frozen=True)
class Grid:
    """Columns and the texts of their cells. `right`: columns that stand on the right; `whole`: those whose texts stay on one line;
    `cut`: the one whose texts end in `…` instead of going on in a second line."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[str] = frozenset()
    whole: frozenset[str] = frozenset()
    cut: str = ""

    def without(self, column: str) -> "Grid":
        """The grid without one column."""
        at = self.columns.index(column)
        rows = tuple((*row[:at], *row[at + 1 :]) for row in self.rows)
        return Grid((*self.columns[:at], *self.columns[at + 1 :]), rows, self.right, self.whole, self.cut)


def fit(grid: Grid, width: int, drop: Sequence[str]) -> tuple[Grid, list[str]]:
    """The grid without as many columns of `drop`, the first ones, as `width` characters have no room for; and their names."""
    dropped: list[str] = []
    for column in drop:
        if _sum(least_widths(grid)) <= width:
            break
        if column in grid.columns:
            grid = grid.without(column)
            dropped.append(column)
    return grid, dropped


def fits(grid: Grid, width: int) -> bool:
    """Returns whether each word of it is whole in lines of `width` characters."""
    return _sum(least_widths(grid)) <= width


def least_widths(grid: Grid) -> list[int]:
    """Characters that each column needs: all of a name, a number or a time; of a longer text its longest word, and TEXT_CHARS."""
    return [_least(grid, at, column) for at, column in enumerate(grid.columns)]


def _least(grid: Grid, at: int, column: str) -> int:
    texts = [row[at] for row in grid.rows]
    longest = max(map(cell_len, texts), default=0)
    if column not in grid.whole:
        words = 0 if column == grid.cut else max((cell_len(word) for text in texts for word in text.split()), default=0)
        longest = max(words, min(longest, TEXT_CHARS))
    return max(cell_len(column), longest)


def widths(grid: Grid, width: int | None) -> list[int]:
    """Characters of each column in a table of `width` at most, which must be enough; None: as many as each needs for one line."""
    wanted = [max([cell_len(c), *(cell_len(row[i]) for row in grid.rows)]) for i, c in enumerate(grid.columns)]
    if width is None or _sum(wanted) <= width:
        return wanted
    found = least_widths(grid)
    spare = width - _sum(found)
    # What is left goes to those that lack the least first: as many as possible are then on one line.
    for at in sorted(range(len(found)), key=lambda i: wanted[i] - found[i]):
        given = min(wanted[at] - found[at], spare)
        found[at] += given
        spare -= given
    return found


def lines_of(cells: Sequence[str], grid: Grid, sizes: Sequence[int]) -> list[list[str]]:
    """The lines of one row, each with its cells padded to `sizes`."""
    folded = [_folded(text, size, cut=column == grid.cut) for text, size, column in zip(cells, sizes, grid.columns, strict=True)]
    height = max(map(len, folded), default=1)
    return [
        [_padded(lines[i] if i < len(lines) else "", n, c in grid.right) for lines, n, c in zip(folded, sizes, grid.columns, strict=True)]
        for i in range(height)
    ]


def _folded(text: str, size: int, *, cut: bool) -> list[str]:
    if cell_len(text) <= size:
        return [text]
    if cut:
        while cell_len(text) > size - 1:
            text = text[:-1]
        return [text + "…"]
    lines = [""]
    for word in text.split():
        if not lines[-1]:
            lines[-1] = word
        elif cell_len(lines[-1]) + 1 + cell_len(word) <= size:
            lines[-1] += " " + word
        else:
            lines.append(word)
    return lines


def _padded(text: str, size: int, right: bool) -> str:
    space = " " * (size - cell_len(text))
    return space + text if right else text + space


def _sum(sizes: Sequence[int]) -> int:
    return sum(sizes) + len(BETWEEN) * max(0, len(sizes) - 1)
