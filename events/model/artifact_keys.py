"""Paths of artifacts' files, and keys of their manifests and names in the store. Pure, without models.

Holds: paths of an artifact stay below the folder that they are put into, and name different files on every file system.
"""

import unicodedata
from collections.abc import Collection
from typing import Final

from trainhouse.events.model.version_names import project_word

MOST_FILES: Final = 10_000
MOST_PATH_BYTES: Final = 1024
MOST_FOLDERS: Final = 64
"""Folders that a file may be in, one inside the other."""
MOST_MANIFEST_BYTES: Final = 16 << 20
PREFIX: Final = "project-artifacts/"


class ArtifactError(ValueError):
    """A path, a name or a manifest that no artifact has. The message says which, and what to do."""


def check_paths(paths: Collection[str]) -> None:
    """Raises ArtifactError where one leads out of its folder, or two would be one file on some file system, or there are none, or too
    many."""
    if not paths:
        raise ArtifactError("an artifact has at least one file; this folder has none")
    if len(paths) > MOST_FILES:
        raise ArtifactError(f"{len(paths)} files, and an artifact has {MOST_FILES} at most; pack them into one file, or store several")
    seen, folders = dict[str, str](), set[str]()
    for path in paths:
        parts = path.split("/")
        if len(parts) > MOST_FOLDERS + 1:
            raise ArtifactError(
                f"{path[:200]!r} is in {len(parts) - 1} folders, one inside the other, and may be in {MOST_FOLDERS}; pack them in one file"
            )
        if len(path.encode("utf-8", "surrogatepass")) > MOST_PATH_BYTES or any(_is_no_part(part) for part in parts):
            raise ArtifactError(
                f"{path[:200]!r} is no path of an artifact: name folders and a file below it, with / between them, of printable "
                f"characters, without . and .., in at most {MOST_PATH_BYTES} bytes"
            )
        same = _folded(path)
        if same in seen:
            raise ArtifactError(f"{seen[same]!r} and {path!r} are one file where case does not count; rename one")
        seen[same] = path
    for same, path in seen.items():
        above = same.rpartition("/")[0]
        # What is above a folder that is known was looked at with it.
        while above and above not in folders:
            if above in seen:
                raise ArtifactError(f"{seen[above]!r} is a file, and {path!r} needs a folder of that name; rename one")
            folders.add(above)
            above = above.rpartition("/")[0]


def artifacts_prefix(project: str) -> str:
    """Prefix of all that a project's artifacts are."""
    return f"{PREFIX}{project_word(project)}/"


def manifest_key(project: str, sha256: str) -> str:
    """Key of a manifest."""
    return f"{artifacts_prefix(project)}manifests/{sha256}.json"


def names_prefix(project: str, name: str = "") -> str:
    """Prefix of the names of a project's versions, or of those of one name."""
    return f"{artifacts_prefix(project)}names/" + (f"{name}/" if name else "")


def _is_no_part(part: str) -> bool:
    return part in ("", ".", "..") or not part.isprintable() or "\\" in part


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())
