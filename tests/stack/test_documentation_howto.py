"""As test_documentation.py, the pages of docs/howto. A file of its own, which runs beside the other tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documentation.page_run import is_howto, pages_to_run, run_page
from tests.support.stack.live_stack import LiveStack


@pytest.mark.parametrize("page", pages_to_run(alone=False, of=is_howto))
def test_the_blocks_of_a_page_run(stack: LiveStack, page: Path, tmp_path: Path) -> None:
    run_page(page, stack.environment, tmp_path)
