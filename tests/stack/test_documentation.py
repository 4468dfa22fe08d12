"""Every command and Python block of README.md and docs/ runs: those of a page after each other, in one shell, on the shared stack."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documentation.blocks import ROOT, RUN, blocks_of, pages, script
from tests.support.stack.live_stack import LiveStack

PAGE_TIMEOUT_S = 560.0


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.relative_to(ROOT).as_posix())
        for page in pages()
        if any(b.language in RUN and not b.title and not b.reason_not_run for b in blocks_of(page))
    ],
)
def test_the_blocks_of_a_page_run(stack: LiveStack, page: Path, tmp_path: Path) -> None:
    environment = stack.environment | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    out = tmp_path.with_suffix(".out")
    with out.open("w") as written:
        shell = subprocess.Popen(
            ["bash", "-c", script(blocks_of(page))],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = shell.wait(PAGE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGTERM)
            shell.wait(30)
            code = -1
    assert code == 0, out.read_text()[-5000:]
