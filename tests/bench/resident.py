"""Memory of a set of processes, whatever else runs on the machine.

Holds: a page that several of them share counts once, in equal parts. Processes outside the set change nothing: the kernel's proportional
share (PSS) divides by those as well, so that a stack beside a second one would look a quarter smaller.
Anonymous memory is the processes' own until they end; the kernel drops pages of files when it needs room, and reads them again.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

PAGE_BYTES = 4096
ENTRY_BYTES = 8
PRESENT, OF_A_FILE = np.uint64(1 << 63), np.uint64(1 << 61)
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) (\S+) (\d+)")
_ANONYMOUS = re.compile(r"^Pss_Anon:\s+(\d+) kB", re.MULTILINE)

File = tuple[str, int]
"""Device and inode."""

Pages = Mapping[File, npt.NDArray[np.int64]]
"""By file: numbers of its pages that a process has in memory, each once."""


@dataclass(frozen=True)
class Resident:
    """Bytes of one process's part. `file_bytes`: pages of files that it mapped (programs, libraries, archives of classes)."""

    anonymous_bytes: float
    file_bytes: float


def resident(pids: Iterable[int]) -> dict[int, Resident]:
    """By pid; a process that has ended meanwhile is left out. Reads `/proc`, a second for a stack. Linux; the caller's own processes."""
    anonymous: dict[int, int] = {}
    pages: dict[int, Pages] = {}
    for pid in pids:
        try:
            found = _ANONYMOUS.search(Path(f"/proc/{pid}/smaps_rollup").read_text())
            pages[pid] = file_pages(pid)
        except (FileNotFoundError, ProcessLookupError):
            pages.pop(pid, None)
            continue
        anonymous[pid] = 1024 * int(found[1]) if found else 0
    return {pid: Resident(anonymous[pid], PAGE_BYTES * share) for pid, share in shares(pages).items()}


def shares(pages: Mapping[int, Pages]) -> dict[int, float]:
    """Pages of each process, a shared one in equal parts. Pure."""
    counts: dict[File, tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = {}
    for file in {file for of_one in pages.values() for file in of_one}:
        counts[file] = np.unique(np.concatenate([of_one[file] for of_one in pages.values() if file in of_one]), return_counts=True)
    return {pid: sum(_share(numbers, *counts[file]) for file, numbers in of_one.items()) for pid, of_one in pages.items()}


def _share(numbers: npt.NDArray[np.int64], known: npt.NDArray[np.int64], times: npt.NDArray[np.int64]) -> float:
    return float((1 / times[np.searchsorted(known, numbers)]).sum())


def file_pages(pid: int) -> Pages:
    """Pages of files that this process has mapped and in memory; copies that it has written to are anonymous. Raises OSError."""
    found: dict[File, list[npt.NDArray[np.int64]]] = {}
    with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as pagemap:
        for begin, end, offset, file in _mappings(pid):
            pagemap.seek(begin // PAGE_BYTES * ENTRY_BYTES)
            entries = np.frombuffer(pagemap.read((end - begin) // PAGE_BYTES * ENTRY_BYTES), np.uint64)
            here = np.flatnonzero((entries & PRESENT != 0) & (entries & OF_A_FILE != 0))
            found.setdefault(file, []).append(here + offset // PAGE_BYTES)
    return {file: np.unique(np.concatenate(parts)) for file, parts in found.items()}


def _mappings(pid: int) -> Iterator[tuple[int, int, int, File]]:
    """Begin, end and offset of each mapping of a file, in bytes, and the file."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        match = _MAPPING.match(line)
        if match and match[5] != "0":
            yield int(match[1], 16), int(match[2], 16), int(match[3], 16), (match[4], int(match[5]))
