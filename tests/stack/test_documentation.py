"""Every command and Python block of README.md and docs/ runs: those of a page after each other, in one shell, on the shared stack.

Those of docs/howto are in test_documentation_howto.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documentation.page_run import is_howto, pages_to_run, run_page
from tests.support.stack.live_stack import LiveStack


@pytest.mark.parametrize("page", pages_to_run(alone=False, of=lambda page: not is_howto(page)))
def test_the_blocks_of_a_page_run(stack: LiveStack, page: Path, tmp_path: Path) -> None:
    run_page(page, stack.environment, tmp_path)
