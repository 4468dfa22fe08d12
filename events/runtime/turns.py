"""Turns of projects: so that much of one of them does not keep the others waiting. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def in_turn(items: Iterable[T], project_of: Callable[[T], str]) -> list[T]:
    """The same items: the first of each project, then the second of each, and so on, each round in the order in which they came."""
    before: Counter[str] = Counter()
    rounds: list[tuple[int, T]] = []
    for item in items:
        project = project_of(item)
        rounds.append((before[project], item))
        before[project] += 1
    return [item for _, item in sorted(rounds, key=lambda each: each[0])]
