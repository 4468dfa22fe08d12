"""The code of a job: fetched once per content, verified, and unpacked into an attempt's working folder.

Holds: what is unpacked is what its hash names; no member of an archive reaches outside of its folder. The cache is bounded, and so is what
this process holds of an archive at a time.
Never: trusts an archive's paths, links, owners or modes; looks into one in this process.
"""

import hashlib
import os
import shutil
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from trainhouse.events import CodeArchive
from trainhouse.workers.agent.errors import NotLaunchableError
from trainhouse.workers.agent.launch.unpacking import unpack

MAX_ARCHIVE_BYTES = 1024**3
_PIECE_BYTES = 1 << 20
Fetch = Callable[[str], Iterable[bytes]]


class CodeCache:
    """Archives by hash in `folder`; `fetch` reads an object by its URI in pieces, and blocks."""

    def __init__(self, folder: Path, fetch: Fetch, keep_bytes: int) -> None:
        self._folder = folder
        self._fetch = fetch
        self._keep_bytes = keep_bytes

    def unpack(self, code: CodeArchive, target: Path) -> None:
        """Fills the empty or absent folder `target`. Blocks on the object store. Raises NotLaunchableError."""
        archive = self._archive(code)
        scratch = target.with_name(f".{target.name}.unpacking")
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        try:
            unpack(archive, scratch, code.uri)
            shutil.rmtree(target, ignore_errors=True)
            os.rename(scratch, target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        self._prune()

    def _archive(self, code: CodeArchive) -> Path:
        cached = self._folder / f"{code.sha256}.tar.gz"
        if cached.exists():
            if _sha256_of(cached) == code.sha256:
                os.utime(cached)
                return cached
            cached.unlink()
        self._folder.mkdir(parents=True, exist_ok=True)
        scratch = cached.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        try:
            if self._fetched(code.uri, scratch) != code.sha256:
                # What its hash is instead stays here: it would tell what else is in the store.
                raise NotLaunchableError(f"the code at {code.uri} has another hash than the spec says: submit it again", retryable=False)
            os.replace(scratch, cached)
        finally:
            scratch.unlink(missing_ok=True)
        return cached

    def _fetched(self, uri: str, into: Path) -> str:
        """The hash of what is in the file now."""
        found, total = hashlib.sha256(), 0
        with into.open("wb") as file:
            for piece in self._fetch(uri):
                total += len(piece)
                if total > MAX_ARCHIVE_BYTES:
                    raise NotLaunchableError(
                        f"the code at {uri} has more than {MAX_ARCHIVE_BYTES // 2**20} MiB: name large files in .gitignore", retryable=False
                    )
                found.update(piece)
                file.write(piece)
        return found.hexdigest()

    def _prune(self) -> None:
        """The least recently used archives beyond the bound go."""
        files = sorted(self._folder.glob("*.tar.gz"), key=lambda p: p.stat().st_mtime, reverse=True)
        total = 0
        for path in files:
            total += path.stat().st_size
            if total > self._keep_bytes:
                path.unlink(missing_ok=True)


def _sha256_of(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            found.update(piece)
    return found.hexdigest()
