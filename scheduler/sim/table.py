"""Reading CSV files (plain or gzip), with errors that name the file, the line, the column, the value and what is allowed.

Holds: a row has as many cells as the header; what a cell may be is defined in one place, here.
Never: guesses: a cell that is not what its column wants stops the reading.
"""

import csv
import difflib
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _csv import Reader

GZIP_MAGIC = b"\x1f\x8b"
MAX_SECONDS = 10**10
MAX_SHOWN_CHARS = 60


class FileError(ValueError):
    """A file that cannot be read as what it should be. `line` counts from 1 with the header; 0: the file as a whole."""

    def __init__(self, path: Path, problem: str, line: int = 0, column: str = "") -> None:
        where = f"{path}" + (f", line {line}" if line else "") + (f", column {column}" if column else "")
        super().__init__(f"{where}: {problem}")
        self.path, self.line, self.column, self.problem = path, line, column, problem


@dataclass(slots=True)
class Table:
    """A file's columns (name -> position), and its rows one after the other."""

    path: Path
    columns: dict[str, int]
    rows: Iterator["Row"]
    unused: tuple[str, ...]


@dataclass(slots=True)
class Row:
    """One row: its cells and its line. Every reader of a cell raises FileError."""

    path: Path
    line: int
    columns: dict[str, int]
    cells: list[str]

    def text(self, column: str) -> str:
        """The cell without blanks around it; empty where the file has no such column."""
        at = self.columns.get(column)
        return "" if at is None else self.cells[at].strip()

    def name(self, column: str) -> str:
        """A cell that may not be empty."""
        found = self.text(column)
        if not found:
            raise self.wrong(column, "a name")
        return found

    def whole(self, column: str, least: int, most: int = MAX_SECONDS) -> int:
        """A whole number of [least, most]."""
        found = self.text(column)
        try:
            number = int(found) if found.isascii() and "_" not in found else None
        except ValueError:
            number = None
        if number is None or not least <= number <= most:
            raise self.wrong(column, f"a whole number from {least} to {most:,}")
        return number

    def whole_or(self, column: str, otherwise: int, least: int = 0, most: int = MAX_SECONDS) -> int:
        """A whole number, or `otherwise` where the cell is empty or the column is not there."""
        return self.whole(column, least, most) if self.text(column) else otherwise

    def yes(self, column: str) -> bool:
        """A cell that says yes or no; empty is no."""
        found = self.text(column).lower()
        if found not in ("", "0", "1", "true", "false", "yes", "no"):
            raise self.wrong(column, "true, false, or nothing (false)")
        return found in ("1", "true", "yes")

    def wrong(self, column: str, allowed: str) -> FileError:
        """The error of a cell."""
        found = self.text(column)
        shown = repr(found if len(found) <= MAX_SHOWN_CHARS else found[:MAX_SHOWN_CHARS] + "…") if found else "nothing"
        return FileError(self.path, f"{shown} is not allowed; allowed is {allowed}", self.line, column)


def read_table(path: Path, required: Sequence[str], optional: Sequence[str] = ()) -> Table:
    """Opens a CSV file with a header row. Raises FileError: not there, no header, a required column missing, a misspelt one."""
    lines = _lines(path)
    reader = csv.reader(lines, strict=True)
    header = [name.strip() for name in next(_guarded(reader, path), [])]
    if not any(header):
        raise FileError(path, f"the file is empty; its first line must name the columns {', '.join(required)}", 1)
    _check_header(path, header, required, optional)
    columns = {name: position for position, name in enumerate(header)}
    unused = tuple(name for name in header if name not in (*required, *optional))
    return Table(path, columns, _rows(path, reader, columns, len(header), lines), unused)


def _check_header(path: Path, header: list[str], required: Sequence[str], optional: Sequence[str]) -> None:
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise FileError(path, f"the column {twice!r} is named twice; keep one of them", 1)
    missing = [name for name in required if name not in header]
    if missing:
        raise FileError(path, f"the column {missing[0]!r} is missing; required are {', '.join(required)}, found {', '.join(header)}", 1)
    for name in header:
        if name in required or name in optional:
            continue
        near = difflib.get_close_matches(name, [o for o in optional if o not in header], n=1, cutoff=0.8)
        if near:
            raise FileError(path, f"no column {name!r} is known; did you mean {near[0]!r}?", 1)


def _rows(path: Path, reader: "Reader", columns: dict[str, int], width: int, lines: io.TextIOWrapper) -> Iterator[Row]:
    with lines:
        for cells in _guarded(reader, path):
            if not cells:
                continue
            if len(cells) != width:
                raise FileError(path, f"{len(cells)} cells, where the header names {width} columns", reader.line_num)
            yield Row(path, reader.line_num, columns, cells)


def _guarded(reader: "Reader", path: Path) -> Iterator[list[str]]:
    """The rows, with errors of a broken file reported by file and line."""
    while True:
        line = reader.line_num + 1
        try:
            yield next(reader)
        except StopIteration:
            return
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise FileError(path, f"the gzip data is damaged or cut off here ({error}); fetch the file again", line) from error
        except UnicodeDecodeError as error:
            raise FileError(path, f"the text is not UTF-8 ({error.reason}); is it a CSV file?", line) from error
        except csv.Error as error:
            raise FileError(path, f"this is no CSV: {error}", line) from error


def _lines(path: Path) -> io.TextIOWrapper:
    """The file's text; gzip is recognised by its first bytes, whatever the name."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == GZIP_MAGIC
        raw = gzip.open(path, "rb") if packed else path.open("rb")  # noqa: SIM115 - the rows close it
    except OSError as error:
        raise FileError(path, f"cannot be read: {error.strerror or error}") from error
    return io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")
