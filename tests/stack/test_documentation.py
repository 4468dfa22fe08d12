"""Every command and Python block of README.md and docs/ runs: those of a page after each other, in one shell, on the shared stack."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documentation.blocks import ROOT, blocks_of, pages
from tests.documentation.page_run import run_page
from tests.support.stack.live_stack import LiveStack


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.relative_to(ROOT).as_posix())
        for page in pages()
        if any(block.runs(alone=False) for block in blocks_of(page))
    ],
)
def test_the_blocks_of_a_page_run(stack: LiveStack, page: Path, tmp_path: Path) -> None:
    run_page(page, stack.environment, tmp_path)
