"""`python -m tests.style`: prints each place that misses a norm of words or shape; exit status 1 if there is any."""

import ast
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from vulture import Vulture

from tests.style.exceptions import LIBRARY_DECORATORS, LIBRARY_HOOKS, SPEECH_NAMES, UNUSED
from tests.style.rules import RULES, Finding, Source, speech_names, unused_names

KINDS = ("class", "function", "method", "property")
CONFIDENCE = 60  # of vulture, in per cent: that of a name which no code mentions


def sources() -> list[Source]:
    """Parses the modules that git tracks, tests aside."""
    listed = subprocess.run(["git", "ls-files", "*.py", ":!tests"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [Source(path, ast.parse(Path(path).read_text("utf-8"), path)) for path in listed]


def unused(paths: Sequence[str]) -> Iterator[tuple[str, int, str, str]]:
    """Yields (path, line, kind, name) of each definition that no other code in `paths` mentions."""
    scan = Vulture(ignore_names=list(LIBRARY_HOOKS), ignore_decorators=list(LIBRARY_DECORATORS))
    scan.scavenge(paths)
    root = Path.cwd()
    for item in scan.get_unused_code(min_confidence=CONFIDENCE):
        if item.typ in KINDS:
            yield str(Path(item.filename).resolve().relative_to(root)), item.first_lineno, item.typ, item.name


def findings() -> list[Finding]:
    """Returns all findings of the repository in the working folder, sorted."""
    parsed = sources()
    found = [finding for rule in RULES for finding in rule(parsed)]
    return sorted([*found, *speech_names(parsed, SPEECH_NAMES), *unused_names(unused([s.path for s in parsed]), UNUSED)])


def main() -> int:
    """Prints the findings and returns the exit status."""
    found = findings()
    for finding in found:
        print(finding)
    if found:
        print(f"{len(found)} places miss a norm; CONTRIBUTING.md, section Words and shape, has them all", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
