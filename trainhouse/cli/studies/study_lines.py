"""Lines about studies, as wide as where they go."""

import sys
from collections.abc import Sequence
from typing import Final

from trainhouse.cli.shared import output

PIPE_CHARS: Final = 80
"""A pipe may be a log or a file that a person reads."""


def print_lines(lines: Sequence[str]) -> None:
    """Prints lines as wide as the terminal; for a pipe, as wide as a usual one."""
    for line in lines:
        sys.stdout.write("".join(f"{part}\n" for part in output.wrapped(output.printable(line), PIPE_CHARS)))
