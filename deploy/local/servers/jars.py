"""Kafka's jars: fetched once by their Maven coordinates, held to committed hashes, kept in a cache folder.

Always: what runs is byte for byte what `kafka.lock` names (`group:artifact:version sha256`, one a line).
Never: a resolution of versions at start; network once the cache is whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import environ
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory

from trainhouse.deploy.local.errors import JarsMissingError

LOCK_FILE = Path(__file__).with_name("kafka.lock")
DOWNLOAD_THREADS = 8
DOWNLOAD_ATTEMPTS = 3
TIMEOUT_S = 30


@dataclass(frozen=True)
class Jar:
    """One locked jar."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def path(self) -> Path:
        """Path of the jar in a Maven repository, relative to the repository's root."""
        return Path(*self.group.split("."), self.artifact, self.version, f"{self.artifact}-{self.version}.jar")


def cache_dir() -> Path:
    """`TRAINHOUSE_CACHE_DIR`, or `trainhouse` in the user's cache folder."""
    named = environ.get("TRAINHOUSE_CACHE_DIR")
    return Path(named) if named else Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainhouse"


def locked(lock_file: Path = LOCK_FILE) -> Iterator[Jar]:
    """The jars that the lock file names, in classpath order."""
    for line in lock_file.read_text().splitlines():
        if line and not line.startswith("#"):
            coordinates, sha256 = line.split()
            group, artifact, version = coordinates.split(":")
            yield Jar(group, artifact, version, sha256)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def ensure(cache: Path | None = None, say: Callable[[str], None] = lambda _: None) -> list[Path]:
    """Paths of all jars, fetching what is not there; blocks; JarsMissingError when one cannot be had."""
    root = (cache or cache_dir()) / "maven"
    jars = list(locked())
    missing = [jar for jar in jars if not (root / jar.path).exists()]
    if missing:
        say(f"fetching Kafka, once: {len(missing)} jars into {root}")
        with ThreadPoolExecutor(DOWNLOAD_THREADS) as pool:
            list(pool.map(lambda jar: fetch(jar, root), missing))
    return [root / jar.path for jar in jars]


def fetch(jar: Jar, root: Path, source: Path | None = None) -> None:
    """Get one jar from Maven (or a folder `source` laid out as a repository), check its hash, put it in its place."""
    import requests
    from jgo.maven import MavenContext

    # jgo has no lock between processes: each jar is staged and renamed, so that a half file never has the final name.
    root.mkdir(parents=True, exist_ok=True)
    cause = "not found"
    for _ in range(DOWNLOAD_ATTEMPTS):
        with TemporaryDirectory(prefix="staging-", dir=root) as staging:
            context = MavenContext(repo_cache=Path(staging), local_repos=[source] if source else [], timeout=TIMEOUT_S)
            try:
                found = context.project(jar.group, jar.artifact).at_version(jar.version).artifact().resolve()
            except (OSError, RuntimeError, requests.RequestException) as error:
                cause = str(error)
                continue
            if sha256_of(found) == jar.sha256:
                (root / jar.path).parent.mkdir(parents=True, exist_ok=True)
                copyfile(found, Path(staging) / "whole.jar").replace(root / jar.path)
                return
            cause = f"its sha256 is not the one in {LOCK_FILE.name}"
    raise JarsMissingError(
        f"{jar.group}:{jar.artifact}:{jar.version} is not in {root} and could not be fetched: {cause}\n"
        "With network, run `python -m trainhouse.deploy.local.prefetch` once (or `make install`); without, copy that "
        "folder from a machine that has it, or name another cache by TRAINHOUSE_CACHE_DIR."
    )
