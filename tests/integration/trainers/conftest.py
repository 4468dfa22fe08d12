"""Two jobs of one test: one that is not disturbed, and one that is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.followed_runs import FollowedRuns


@pytest.fixture
def whole(tmp_path: Path) -> Iterator[FollowedRuns]:
    """The job that runs through."""
    runs = FollowedRuns(tmp_path / "whole")
    yield runs
    runs.close()


@pytest.fixture
def in_processes(whole: FollowedRuns, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process uploads for it, started anew with the store of these tests."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    whole.in_processes = True
    yield
    whole.store.let_go()


@pytest.fixture
def broken(tmp_path: Path) -> Iterator[FollowedRuns]:
    """The job whose attempts end early."""
    runs = FollowedRuns(tmp_path / "broken")
    yield runs
    runs.close()
