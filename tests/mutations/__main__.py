"""Puts each fault of the table into a copy of the sources and runs the tests that must fail of it.

    python -m tests.mutations            all of them
    python -m tests.mutations 3 17-20    these rows

Prints a line for each; ends with 1 if a fault was not noticed. Holds: the sources themselves are never changed.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.mutations.table import MUTATIONS, Mutation

ROOT = Path(__file__).parents[2]
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "node_modules")
NOTICED, PASSED = 1, 0  # exit codes of pytest: some test failed, all passed
AT_MOST_S = 1200
OUT_OF_TIME = "out of time"


def file_of(module: str) -> Path:
    """Where a module is, relative to the checkout."""
    found = importlib.util.find_spec(module)
    assert found is not None and found.origin is not None, module
    return Path(found.origin).resolve().relative_to(ROOT.resolve())


def files_of(mutation: Mutation) -> list[str]:
    """Its tests, relative to the checkout."""
    return [f"tests/{name}" if "/" in name else _unit_test(name) for name in mutation.tests]


def _unit_test(name: str) -> str:
    """The one file of that name under tests/unit."""
    (found,) = (ROOT / "tests" / "unit").rglob(name)
    return str(found.relative_to(ROOT))


def judged(copy: Path, mutation: Mutation, modified_s: float) -> int | str:
    """What pytest ends with while the fault is in the copy."""
    file = copy / file_of(mutation.module)
    sound = file.read_text()
    assert sound.count(mutation.old) == 1, f"{mutation.module} has not exactly one {mutation.old!r}"
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *files_of(mutation)]
    try:
        _write(file, sound.replace(mutation.old, mutation.new), modified_s)
        return subprocess.run(
            command, cwd=copy, env=os.environ | {"PYTHONPATH": str(copy)}, capture_output=True, check=False, timeout=AT_MOST_S
        ).returncode
    except subprocess.TimeoutExpired:
        return OUT_OF_TIME  # a fault that makes a test wait for ever is noticed too
    finally:
        _write(file, sound, modified_s + 1)


def _write(file: Path, text: str, modified_s: float) -> None:
    """Bytecode is made anew where the second of the change differs."""
    file.write_text(text)
    os.utime(file, (modified_s, modified_s))


def chosen(arguments: list[str]) -> list[int]:
    """Rows by number and span; all without arguments."""
    spans = [argument.partition("-") for argument in arguments]
    rows = [n for first, _, last in spans for n in range(int(first), int(last or first) + 1)]
    return rows or list(range(len(MUTATIONS)))


def main(arguments: list[str]) -> int:
    missed = 0
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, symlinks=True, ignore=LEFT_OUT)
        for row in chosen(arguments):
            began_s, mutation = time.monotonic(), MUTATIONS[row]
            code = judged(copy, mutation, 1_000_000_000 + 4 * row)
            missed += code not in (NOTICED, OUT_OF_TIME)
            told = {NOTICED: "noticed", PASSED: "NOT NOTICED", OUT_OF_TIME: OUT_OF_TIME}.get(code, f"pytest ended with {code}")
            print(f"{row:>3} {told:<12} {time.monotonic() - began_s:5.1f} s  {mutation.module}: {mutation.old.strip()!r}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
