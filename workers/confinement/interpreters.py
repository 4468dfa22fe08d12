"""Folders that a Python needs to run: its environment's, its base installation's, and those of packages installed for development.

Holds: reads files only, and of each no more than its beginning: a job may have made them. A folder is named only
when it looks like an installation of Python, or when such a one refers to it.
"""

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

from trainhouse.workers.untrusted import text_or_empty

MAX_LINKS = 16
_MAPPING = re.compile(r"^MAPPING[^=]*=\s*(\{.*\})\s*$", re.MULTILINE)


def shown_for(program: str, *, trusted: bool) -> tuple[str, ...]:
    """Folders and links, shallow ones first; empty for a program that is no installed Python.

    `trusted`: what its packages refer to is shown too. Of one that a job names it is not: the job may have made it.
    """
    found: dict[str, None] = {}
    for path in _links(Path(os.path.abspath(program))):
        prefix = path.parent.parent
        if _is_installation(prefix):
            found |= dict.fromkeys(_of_prefix(prefix, trusted))
    return tuple(sorted(found, key=lambda p: (p.count("/"), p)))


def own() -> tuple[str, ...]:
    """The folders of this very package, where it is installed for development: of the tree that it lies in, only what it is made of."""
    import trainhouse

    package = Path(next(iter(trainhouse.__path__)))
    return tuple(sorted({str(package), *(os.path.realpath(p) for p in package.iterdir() if p.is_symlink())}))


def _links(path: Path) -> Iterator[Path]:
    """The program, and what each link on the way to it leads to."""
    for _ in range(MAX_LINKS):
        yield path
        if not path.is_symlink():
            real = Path(os.path.realpath(path))
            if real != path:
                yield real
            return
        path = Path(os.path.normpath(path.parent / os.readlink(path)))


def _is_installation(prefix: Path) -> bool:
    return (prefix / "pyvenv.cfg").is_file() or any(prefix.glob("lib/python3*/os.py"))


def _of_prefix(prefix: Path, trusted: bool) -> Iterator[str]:
    yield str(prefix)
    yield os.path.realpath(prefix)
    for line in _lines(prefix / "pyvenv.cfg"):
        name, _, value = line.partition("=")
        home = Path(value.strip())
        if name.strip() == "home" and home.is_absolute() and _is_installation(home.parent):
            yield str(home.parent)
            yield os.path.realpath(home.parent)
    for packages in prefix.glob("lib/python3*/site-packages") if trusted else ():
        yield from _referred(packages)


def _referred(packages: Path) -> Iterator[str]:
    for file in packages.glob("*.pth"):
        yield from (line for line in _lines(file) if line.startswith("/") and os.path.isdir(line))
    for file in packages.glob("__editable__*_finder.py"):
        yield from _mapped(file)


def _mapped(file: Path) -> Iterator[str]:
    found = _MAPPING.search(text_or_empty(file))
    try:
        mapping = ast.literal_eval(found.group(1)) if found else {}
    except (ValueError, SyntaxError):
        return
    for folder in mapping.values():
        yield str(folder)
        if os.path.isdir(folder):
            yield from (os.path.realpath(p) for p in Path(folder).iterdir() if p.is_symlink() and p.is_dir())


def _lines(file: Path) -> list[str]:
    return [line.strip() for line in text_or_empty(file).splitlines()]
