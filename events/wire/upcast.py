"""Old versions of events, lifted to the newest one step at a time by pure functions on dicts.

Holds: one upcaster per version step; what the newest models read is always the newest version.
"""

from collections.abc import Callable
from typing import Any

from trainhouse.events.model.errors import InvalidEvent

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]


class Upcasters:
    """Steps from a type string to the next version's."""

    def __init__(self) -> None:
        self._steps: dict[str, tuple[str, Upcaster]] = {}
        self._back: dict[str, tuple[str, Upcaster]] = {}

    def add(self, old_type: str, new_type: str, step: Upcaster, back: Upcaster | None = None) -> None:
        """Registers the step `old_type` -> `new_type`. Raises ValueError unless it is the next version of the same event.

        `back` undoes it: a decision needs one, which programs write until an update is finished.
        """
        stem, _, old = old_type.rpartition(".v")
        new_stem, _, new = new_type.rpartition(".v")
        if stem != new_stem or not (old.isdigit() and new.isdigit()) or int(new) != int(old) + 1:
            raise ValueError(f"an upcaster leads to the next version of the same event, not from {old_type} to {new_type}")
        if old_type in self._steps:
            raise ValueError(f"{old_type} has an upcaster already")
        self._steps[old_type] = (new_type, step)
        if back is not None:
            self._back[new_type] = (old_type, back)

    def lower(self, type_string: str, data: Any) -> tuple[str, Any]:
        """The version before. Raises InvalidEvent where no step leads back."""
        if type_string not in self._back:
            raise InvalidEvent(f"{type_string} may not be written before the update is finished, and has no older version: this is a fault")
        old_type, back = self._back[type_string]
        return old_type, back(dict(data))

    def newest(self, type_string: str) -> str:
        """The type string that `lift` leads to."""
        while type_string in self._steps:
            type_string = self._steps[type_string][0]
        return type_string

    def lift(self, type_string: str, data: Any) -> tuple[str, Any]:
        """The newest type string and data. Data is not changed in place. Raises InvalidEvent when a step cannot read it."""
        while type_string in self._steps:
            new_type, step = self._steps[type_string]
            try:
                data = step(dict(data))
            except (KeyError, TypeError, ValueError) as error:
                raise InvalidEvent(f"{type_string} cannot be read as {new_type}: {error!r}") from error
            type_string = new_type
        return type_string, data


UPCASTERS = Upcasters()
