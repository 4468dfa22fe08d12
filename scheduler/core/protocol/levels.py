"""Levels of the machines by the journal that each writes: the one place where they are raised. Pure, without a machine.

Holds: a number only ever rises.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from trainhouse.events.wire.topics import DECISIONS, DIRECTORY, REGISTRY, TUNING


class MachineLevels(NamedTuple):
    """Levels of one machine. `decide`: rises where the same inputs give other decisions. `fold`: where there is a new decision, a new field
    of one, or a new snapshot. `lowest`: the least level that it writes."""

    decide: int
    fold: int
    lowest: int


KNOWN_LEVELS: Final[Mapping[str, MachineLevels]] = {
    DIRECTORY: MachineLevels(decide=10, fold=17, lowest=3),
    DECISIONS: MachineLevels(decide=15, fold=22, lowest=7),
    REGISTRY: MachineLevels(decide=3, fold=3, lowest=1),
    TUNING: MachineLevels(decide=1, fold=1, lowest=1),
}
