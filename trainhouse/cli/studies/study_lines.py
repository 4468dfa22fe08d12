"""Lines about studies, as wide as where they go."""

import sys
from collections.abc import Sequence
from typing import Final

from trainhouse.cli.shared import output

PIPE_CHARS: Final = 80


def print_lines(lines: Sequence[str]) -> None:
    """Prints lines as wide as the terminal; for a pipe, which may be a log or a file that a person reads, as wide as a usual one."""
    import textwrap

    for line in map(output.printable, lines):
        parts = output.wrapped(line)
        if not sys.stdout.isatty():
            parts = textwrap.wrap(line, PIPE_CHARS, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) or [""]
        sys.stdout.write("".join(f"{part}\n" for part in parts))
