"""Selection of the files of a working folder that go along with a job, by `.trainhouseignore`; and names that look like secrets.

Holds: pure but for reading that file; its syntax is that of `.gitignore`, relative to the packed folder; it counts for tracked files too.
Never: reads what is in a file to judge it.
"""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trainhouse.client.errors import CodeUnreadableError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILE: Final = ".trainhouseignore"
SECRET_NAMES: Final = (
    *(".env", ".env.*", "*.env", ".netrc", "_netrc", ".pgpass", ".pypirc", ".htpasswd", "*credentials*", "kubeconfig"),
    *("*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519"),
    *("client_secret*.json", "service[-_]account*.json", "secret.*", "secrets.*"),
)
NO_SECRETS: Final = ("*.example", "*.sample", "*.template", "*.py", "*.pyi", "*.md", "*.rst", "*.html", "*.js", "*.ts", "*.sh")
"""Templates, programs and texts: a name such as credentials.py says what it is about, not what it holds."""


def looks_secret(name: str) -> bool:
    """True if the last part of a path is a usual name of a file with keys or passwords."""
    last = name.rsplit("/", 1)[-1].lower()
    return any(fnmatchcase(last, p) for p in SECRET_NAMES) and not any(fnmatchcase(last, p) for p in NO_SECRETS)


class Ignored:
    """The patterns of a folder's `.trainhouseignore`. As in git, nothing below an ignored folder can be taken back by a `!` pattern."""

    def __init__(self, spec: "GitIgnoreSpec") -> None:
        self._spec = spec
        self.folder = lru_cache(maxsize=None)(self._folder)

    def _folder(self, name: str) -> bool:
        """True if a folder (a relative path, "" for the packed one) or one above it is ignored."""
        if name in ("", "."):
            return False
        return self.folder(name.rpartition("/")[0]) or self._spec.match_file(f"{name}/")

    def file(self, name: str) -> bool:
        """True if a file or a link is ignored."""
        return self.folder(name.rpartition("/")[0]) or self._spec.match_file(name)


def read_ignored(folder: Path) -> Ignored | None:
    """The patterns of a folder; None where it has no such file. Blocks on disk. Raises CodeUnreadableError."""
    path = folder / IGNORE_FILE
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise CodeUnreadableError(f"{path} cannot be read ({error}): it is a text file with patterns as in .gitignore") from error
    from pathspec import GitIgnoreSpec

    try:
        return Ignored(GitIgnoreSpec.from_lines(lines))
    except ValueError as error:
        raise CodeUnreadableError(f"{path} has a line that is no pattern ({error}): its syntax is that of .gitignore") from error


def selected(names: Iterable[str], ignored: Ignored | None) -> Iterator[str]:
    """Yields those of some files' relative paths that are not ignored."""
    return (name for name in names if ignored is None or not ignored.file(name))
