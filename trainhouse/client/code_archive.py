"""The working folder as one archive, named by its content.

Holds: the same files give the same bytes on every machine (sorted, without times, owners or other noise), so that the same
code is stored once. In a git checkout, what git would see is packed (tracked, and untracked but not ignored); nowhere what
`.trainhouseignore` names.
Never: packs more than `limit_bytes`; follows a link out of the folder without saying so; packs a stack's own folder, which holds its keys.
"""

import gzip
import hashlib
import io
import os
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainhouse.client.code_selection import IGNORE_FILE, Ignored, looks_secret, read_ignored, selected
from trainhouse.client.errors import CodeTooLargeError, CodeUnreadableError
from trainhouse.events import CodeArchive

MAX_CODE_BYTES = 256 * 1024 * 1024
STACK_FOLDER = ".trainhouse"
MAX_DIFF_BYTES = 16 * 1024 * 1024
GIT_TIMEOUT_S = 60.0
JUNK = frozenset(
    {".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
    | {".tox", ".nox", ".ipynb_checkpoints", STACK_FOLDER, ".DS_Store", ".idea", ".vscode"}
)


@dataclass(frozen=True)
class PackedCode:
    """An archive (tar.gz) with where it came from. `git_diff` is what differs from `git_commit`, as a binary patch.

    `content_bytes`: before compression. `untracked`, `secret_names`: sorted relative paths of packed files that a checkout does not track,
    or whose names look like secrets.
    """

    archive: bytes
    sha256: str
    files: int
    git_commit: str | None = None
    git_diff: bytes | None = None
    content_bytes: int = 0
    untracked: tuple[str, ...] = ()
    secret_names: tuple[str, ...] = ()

    @property
    def dirty(self) -> bool:
        """True if the folder differs from its commit."""
        return bool(self.git_diff)

    @property
    def diff_sha256(self) -> str:
        """Hash under which `git_diff` is stored; empty where there is none."""
        return hashlib.sha256(self.git_diff).hexdigest() if self.git_diff else ""

    def stored(self, uri: str, diff_uri: str | None) -> CodeArchive:
        """As a spec names it, when it lies there."""
        return CodeArchive(
            uri=uri,
            sha256=self.sha256,
            size_bytes=len(self.archive),
            git_commit=self.git_commit,
            git_diff_uri=diff_uri,
            git_dirty=self.dirty,
        )


def pack(folder: Path, limit_bytes: int = MAX_CODE_BYTES) -> PackedCode:
    """Packs a folder. Blocks on disk and git. Raises CodeUnreadableError, or CodeTooLargeError with the largest files."""
    if not folder.is_dir():
        raise CodeUnreadableError(f"{folder} is no folder; name the folder with your code by --code")
    ignored = read_ignored(folder)
    paths = sorted(selected(_paths(folder, ignored), ignored))
    content_bytes = _refuse_large(folder, paths, limit_bytes)
    archive = _archive(folder, paths)
    commit = _git(folder, "rev-parse", "HEAD")
    untracked = _untracked(folder)
    diff = _git(folder, "diff", "--binary", "HEAD", "--", ".") if commit else None
    return PackedCode(
        archive=archive,
        sha256=hashlib.sha256(archive).hexdigest(),
        files=len(paths),
        git_commit=commit.decode().strip() if commit else None,
        git_diff=diff[:MAX_DIFF_BYTES] if diff else None,
        content_bytes=content_bytes,
        untracked=tuple(name for name in paths if name in untracked),
        secret_names=tuple(name for name in paths if looks_secret(name)),
    )


def _untracked(folder: Path) -> frozenset[str]:
    """Relative paths that git would add; none without a checkout."""
    listed = _git(folder, "ls-files", "-z", "--others", "--exclude-standard")
    return frozenset(os.fsdecode(listed or b"").split("\0")) - {""}


def _paths(folder: Path, ignored: Ignored | None) -> Iterator[str]:
    """Relative paths of what to pack, some ignored files among them; a nested checkout is walked like a folder."""
    listed = _git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is None:
        yield from _walk(folder, "", ignored)
        return
    for name in set(os.fsdecode(listed).split("\0")) - {""}:
        if STACK_FOLDER in name.split("/"):
            continue
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            yield from _walk(folder, name.rstrip("/"), ignored)
        elif path.is_symlink() or path.exists():
            yield name


def _walk(folder: Path, start: str, ignored: Ignored | None) -> Iterator[str]:
    """Relative paths of files below a folder; ignored folders are not read."""
    if ignored is not None and ignored.folder(start):
        return
    for base, folders, files in os.walk(folder / start):
        inside = os.path.relpath(base, folder)
        linked = [f for f in folders if os.path.islink(os.path.join(base, f))]
        folders[:] = sorted(f for f in folders if f not in JUNK and f not in linked)
        if ignored is not None:
            folders[:] = [f for f in folders if not ignored.folder(os.path.normpath(os.path.join(inside, f)))]
        for name in [*files, *linked]:
            if name not in JUNK and not name.endswith(".pyc"):
                yield os.path.relpath(os.path.join(base, name), folder)


def _refuse_large(folder: Path, paths: list[str], limit_bytes: int) -> int:
    """Returns how many bytes the files hold. Raises CodeTooLargeError."""
    sizes = {p: _status(folder / p).st_size for p in paths}
    total = sum(sizes.values())
    if total > limit_bytes:
        largest = sorted(sizes, key=lambda p: -sizes[p])[:5]
        shown = ", ".join(f"{p} ({sizes[p] / 2**20:.1f} MiB)" for p in largest)
        raise CodeTooLargeError(
            f"{folder} holds {total / 2**20:.0f} MiB in {len(paths)} files, more than the {limit_bytes / 2**20:.0f} MiB of a job. "
            f"The largest: {shown}. Name them in {IGNORE_FILE}, choose a smaller folder by --code, or send none by --no-code"
        )
    return total


def _status(path: Path) -> os.stat_result:
    """Returns the current state of a listed path. Raises CodeUnreadableError when it went away meanwhile."""
    try:
        return os.lstat(path)
    except OSError as error:
        raise CodeUnreadableError(
            f"{path} changed while it was packed ({error.strerror}): something writes into this folder; "
            f"choose a folder with code alone by --code, or name what is written in {IGNORE_FILE}"
        ) from error


def _archive(folder: Path, paths: list[str]) -> bytes:
    raw = io.BytesIO()
    # An empty name and a zero time: gzip's header would carry both.
    with (
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in paths:
            _add(tar, folder, name)
    return raw.getvalue()


def _add(tar: tarfile.TarFile, folder: Path, name: str) -> None:
    path = folder / name
    entry = tarfile.TarInfo(name)
    status = _status(path)
    if stat.S_ISLNK(status.st_mode):
        target = os.readlink(path)
        inside = os.path.normpath(os.path.join(os.path.dirname(name), target))
        if not os.path.isabs(target) and not inside.startswith(".."):
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
            return
        if not path.is_file():
            raise CodeUnreadableError(
                f"{path} is a link to {target}, outside of {folder}, and no file: remove it, or name it in {IGNORE_FILE}"
            )
        status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise CodeUnreadableError(f"{path} is neither a file nor a link: remove it, or name it in {IGNORE_FILE}")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CodeUnreadableError(f"{path} cannot be read ({error.strerror}): mend its permissions, or name it in {IGNORE_FILE}") from error
    entry.size = len(content)
    entry.mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
    tar.addfile(entry, io.BytesIO(content))


def _git(folder: Path, *arguments: str) -> bytes | None:
    """Output of git in the folder; None without git, without a checkout, or when it fails."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, timeout=GIT_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
