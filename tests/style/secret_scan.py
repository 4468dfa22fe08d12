"""detect-secrets with a look at each file as a whole before the one at its lines: `python -m tests.style.secret_scan --no-verify FILES`.

Holds: finds what `detect-secrets-hook` finds. That one asks its 27 plugins about each line, and finds the arguments of each call by
their names, which is most of its time; hardly any file has a line in which a plugin sees something. A plugin's patterns take line ends for
blanks, and none of them needs the first or last place of a line, so one that matches a line matches in the lines joined.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from detect_secrets import pre_commit_hook
from detect_secrets.core import scan
from detect_secrets.core.potential_secret import PotentialSecret

_every_line = scan._process_line_based_plugins


def _suspicious_lines(lines: list[tuple[int, str]], filename: str) -> Iterator[PotentialSecret]:
    whole = "\n".join(["", *(line.rstrip() for _, line in lines), ""])
    if any(plugin.analyze_line(filename=filename, line=whole) for plugin in scan.get_plugins()):
        yield from _every_line(lines=lines, filename=filename)


@contextmanager
def whole_files_first() -> Iterator[None]:
    """Lets detect-secrets pass over the lines of files in which no plugin sees anything."""
    with mock.patch.object(scan, "_process_line_based_plugins", _suspicious_lines):
        yield


if __name__ == "__main__":
    with whole_files_first():
        sys.exit(pre_commit_hook.main())
