"""Lines of logs by the level that their text names."""

from __future__ import annotations

import re

import pytest

from trainhouse.gateway.routes.rank_output import LEVELS, Level


@pytest.mark.parametrize(
    ("line", "levels"),
    [
        ("ValueError: no such file", {Level.ERROR, Level.WARNING}),
        ("2026-01-01 CRITICAL disk is full", {Level.ERROR, Level.WARNING}),
        ("[WARN] lr is 0", {Level.WARNING}),
        ("UserWarning: deprecated", {Level.WARNING}),
        ("errors so far: none", set()),
        ("step 3: loss 1.2", set()),
    ],
)
def test_a_line_has_the_level_that_it_names(line: str, levels: set[Level]) -> None:
    assert {level for level, pattern in LEVELS.items() if re.search(pattern, line)} == levels
