"""How the bench of an idle stack counts memory: a shared page once, whatever runs beside."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.bench.resident import file_pages, resident, shares

PROGRAM, LIBRARY = ("08:01", 1), ("08:01", 2)
TOUCH = """
import mmap, sys
with open(sys.argv[1], "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as held:
    bytes(held)
    print("read", flush=True)
    sys.stdin.read()
"""


def test_a_page_of_one_process_is_its_own_and_a_shared_one_counts_once() -> None:
    pages = {1: {PROGRAM: np.array([0, 1, 2]), LIBRARY: np.array([7])}, 2: {PROGRAM: np.array([2, 3])}, 3: {}}
    assert shares(pages) == {1: 3.5, 2: 1.5, 3: 0.0}


@contextmanager
def reading(path: Path) -> Iterator[int]:
    """A process that has mapped and read the whole file."""
    with subprocess.Popen([sys.executable, "-c", TOUCH, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == "read\n"
        yield process.pid
        process.stdin.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "library"
    made.write_bytes(os.urandom(8 * mmap.PAGESIZE))
    return made


def test_pages_of_a_mapped_file_are_found(path: Path) -> None:
    with reading(path) as pid:
        inode = path.stat().st_ino
        assert [list(pages) for (_, of), pages in file_pages(pid).items() if of == inode] == [list(range(8))]


def test_who_else_maps_the_same_files_changes_nothing(path: Path) -> None:
    with reading(path) as one:
        alone = resident([one])[one]
        with reading(path) as other:
            beside, both = resident([one])[one], resident([one, other])
    assert beside.file_bytes == alone.file_bytes
    assert both[one].file_bytes + both[other].file_bytes < 1.5 * alone.file_bytes
    assert alone.anonymous_bytes > 0


def test_a_process_that_has_ended_is_left_out(path: Path) -> None:
    with reading(path) as pid:
        pass
    assert resident([pid]) == {}
