"""Blocks of the documentation that change a whole stack: partitions, credentials, what leaves topics. They run on one of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documentation.page_run import pages_to_run, run_page
from tests.integration.own_stack import OwnStack

pytestmark = pytest.mark.stack


@pytest.mark.parametrize("page", pages_to_run(alone=True))
def test_the_blocks_of_a_page_run_on_a_stack_of_their_own(own_stack: OwnStack, page: Path, tmp_path: Path) -> None:
    if not own_stack.runs():
        own_stack.up()
    run_page(page, own_stack.environment | {"TRAINHOUSE_DATA_DIR": str(own_stack.data_dir)}, tmp_path, alone=True)
