"""The code of a job: fetched once per content, verified, and unpacked into an attempt's working folder.

Holds: what is unpacked is what its hash names; no member of an archive reaches outside of its folder. The cache is bounded.
Never: trusts an archive's paths, links, owners or modes.
"""

import hashlib
import io
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

from trainhouse.events import CodeArchive
from trainhouse.workers.agent.errors import NotLaunchable

MAX_UNPACKED_BYTES = 8 * 1024**3
MAX_MEMBERS = 200_000
Fetch = Callable[[str], bytes]


class CodeCache:
    """Archives by hash in `folder`; `fetch` reads an object by its URI, and blocks."""

    def __init__(self, folder: Path, fetch: Fetch, keep_bytes: int) -> None:
        self._folder = folder
        self._fetch = fetch
        self._keep_bytes = keep_bytes

    def unpack(self, code: CodeArchive, target: Path) -> None:
        """Fills the empty or absent folder `target`. Blocks on the object store. Raises NotLaunchable."""
        archive = self._archive(code)
        scratch = target.with_name(f".{target.name}.unpacking")
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        try:
            _extract(archive, scratch, code.uri)
            shutil.rmtree(target, ignore_errors=True)
            os.rename(scratch, target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        self._prune()

    def _archive(self, code: CodeArchive) -> bytes:
        cached = self._folder / f"{code.sha256}.tar.gz"
        if cached.exists():
            content = cached.read_bytes()
            if hashlib.sha256(content).hexdigest() == code.sha256:
                os.utime(cached)
                return content
            cached.unlink()
        content = self._fetch(code.uri)
        actual = hashlib.sha256(content).hexdigest()
        if actual != code.sha256:
            raise NotLaunchable(
                f"the code at {code.uri} has the hash {actual}, the spec says {code.sha256}: submit it again", retryable=False
            )
        self._folder.mkdir(parents=True, exist_ok=True)
        scratch = cached.with_suffix(f".{os.getpid()}")
        scratch.write_bytes(content)
        os.replace(scratch, cached)
        return content

    def _prune(self) -> None:
        """The least recently used archives beyond the bound go."""
        files = sorted(self._folder.glob("*.tar.gz"), key=lambda p: p.stat().st_mtime, reverse=True)
        total = 0
        for path in files:
            total += path.stat().st_size
            if total > self._keep_bytes:
                path.unlink(missing_ok=True)


def _extract(archive: bytes, target: Path, uri: str) -> None:
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:*") as tar:
            size = 0
            for count, member in enumerate(tar):
                size += member.size
                if count >= MAX_MEMBERS or size > MAX_UNPACKED_BYTES:
                    raise NotLaunchable(
                        f"the code at {uri} unpacks to more than {MAX_UNPACKED_BYTES / 2**30:.0f} GiB or {MAX_MEMBERS} files",
                        retryable=False,
                    )
                tar.extract(member, target, filter="data")
    except tarfile.TarError as error:
        raise NotLaunchable(f"the code at {uri} cannot be unpacked: {error}; pack it with `trainhouse submit`", retryable=False) from error
