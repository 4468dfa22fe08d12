"""Versions of the libraries whose training loops a session may follow.

Holds: what is refused is refused when the callback is imported, with the command that installs a fitting version. Imports no library.
"""

import re
from dataclasses import dataclass
from importlib import metadata

from trainhouse.workers.session.errors import InvalidUseError


class MissingLibraryError(InvalidUseError, ImportError):
    """A library is not installed, or in a version that is not supported."""


@dataclass(frozen=True)
class Library:
    """A library's name and range: `least` is the oldest version that is supported, `below` the first that is not.

    `extra`: of this package.
    """

    name: str
    least: str
    below: str
    extra: str


TRANSFORMERS = Library("transformers", "5.14", "6", "transformers")
ACCELERATE = Library("accelerate", "1.10", "2", "transformers")
LIGHTNING = Library("lightning", "2.6", "3", "lightning")


def require(*libraries: Library) -> None:
    """Checks what is installed. Raises MissingLibraryError."""
    for library in libraries:
        try:
            installed = metadata.version(library.name)
        except metadata.PackageNotFoundError:
            raise MissingLibraryError(f"{library.name} is not installed: {way_out(library)}") from None
        check(library, installed)


def check(library: Library, installed: str) -> None:
    """Checks one version. Raises MissingLibraryError."""
    if not _numbers(library.least) <= _numbers(installed) < _numbers(library.below):
        raise MissingLibraryError(
            f"{library.name} {installed} is installed, and a session can follow versions from {library.least} to below {library.below}: "
            f"{way_out(library)}"
        )


def way_out(library: Library) -> str:
    """The command that installs a fitting version."""
    return f"pip install '/path/of/the/clone[{library.extra}]', with Trainhouse's clone, in the environment that --interpreter names"


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers, so that a pre-release counts as its release."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(number) for number in found[0].split(".")) if found else ()
