"""Runs the blocks of a page of the documentation in one shell, and fails with the end of its output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from _pytest.mark.structures import ParameterSet

from tests.documentation.blocks import ROOT, blocks_of, pages, script
from tests.support.stack import warm_cli

PAGE_TIMEOUT_S = 2000.0


def pages_to_run(alone: bool, of: Callable[[Path], bool] = lambda page: True) -> list[ParameterSet]:
    """The pages that have blocks to run, each as a test's parameter; `alone` as `script` has it, `of`: those of one test's file."""
    running = (page for page in pages() if of(page) and any(block.runs(alone) for block in blocks_of(page)))
    return [pytest.param(page, id=page.relative_to(ROOT).as_posix()) for page in running]


def is_howto(page: Path) -> bool:
    """Whether it is one of `docs/howto`."""
    return page.parent.name == "howto"


def run_page(page: Path, environment: Mapping[str, str], folder: Path, alone: bool = False) -> None:
    """Runs them in `folder`; `alone` as `script` has it. README and those run the installed program, the others one that is forked."""
    out = folder.with_suffix(".out")
    programs = [str(Path(sys.executable).parent), os.environ["PATH"]]
    if not alone and page.parent != ROOT:
        warm_cli.put_on_path(folder.with_suffix(".bin"))
        programs.insert(0, str(folder.with_suffix(".bin")))
    with out.open("w") as written:
        shell = subprocess.Popen(
            ["bash", "-c", script(blocks_of(page), alone)],
            cwd=folder,
            env={**environment, "PATH": ":".join(programs), "PYTHONFAULTHANDLER": "1"},
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = shell.wait(PAGE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            _end(shell.pid)
            shell.wait(30)
            code = -1
    assert code == 0, out.read_text()[-5000:]


def _end(shell: int) -> None:
    """Ends the shell and what it runs; each Python program there writes first where its threads are."""
    for process in reversed(psutil.Process(shell).children(recursive=True)):
        with suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
            process.send_signal(signal.SIGABRT)
            process.wait(10)
    with suppress(ProcessLookupError):
        os.killpg(shell, signal.SIGTERM)
