"""What the contract tests of the gateway share: its app over an engine, one for each file: a process can have one engine at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.gateway_world import World


@pytest.fixture(scope="module")
def gateway_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A gateway's app with nothing in its tables; use jobs and projects of your own names."""
    from tests.support.gateway_world import world_in

    with world_in(tmp_path_factory.mktemp("gateway")) as made:
        yield made
