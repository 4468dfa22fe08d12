"""Turns of projects: so that what one of them asks for does not keep the others waiting. Pure."""

from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import TypeVar

T = TypeVar("T")


def in_turn(items: Iterable[T], project_of: Callable[[T], str]) -> list[T]:
    """One item of each project after the other; those of a project stay in their order."""
    by_project: dict[str, list[T]] = {}
    for item in items:
        by_project.setdefault(project_of(item), []).append(item)
    rounds = zip_longest(*by_project.values())
    return [item for each in rounds for item in each if item is not None]
