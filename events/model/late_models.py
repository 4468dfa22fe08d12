"""Import of the models that nothing has asked for yet, which `trainhouse.events` knows and sets here."""

from collections.abc import Callable


def _none() -> None:
    """Stands here until `trainhouse.events` is imported, which is before any of its modules."""


load: Callable[[], None] = _none
"""Imports every module with events that are public names."""
