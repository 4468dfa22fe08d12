"""The gate's verdicts of the statements that passed lately, so that a repeated question costs no second parse.

Holds: bounded; kept by the text and the database alone, since bound values are values: the gate refuses them where the engine would read
names or expressions from them. Of statements that differ in literals alone the shape is kept (gate.shape_of). Safe for threads.
Never: keeps a refusal.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

from trainhouse.projections.endpoint.gate import Passed

MOST = 1024
MOST_CHARS = 32 * 1024
T = TypeVar("T")


class _Newest(Generic[T]):
    """Recent queries, by text and database."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[tuple[str, str], T] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, text: str, database: str) -> T | None:
        with self._lock:
            found = self._kept.get((text, database))
            if found is not None:
                self._kept.move_to_end((text, database))
            return found

    def keep(self, text: str, database: str, found: T) -> None:
        if len(text) > MOST_CHARS:
            return
        with self._lock:
            self._kept[text, database] = found
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)


class Verdicts:
    """`get` and `keep` by text and database; `has` and `keep` of `shapes`."""

    def __init__(self, most: int = MOST) -> None:
        self._texts: _Newest[Passed] = _Newest(most)
        self.shapes = KeptShapes(most)

    def get(self, text: str, database: str) -> Passed | None:
        """Returns the statement that passed, None where it is not cached."""
        return self._texts.get(text, database)

    def keep(self, text: str, database: str, passed: Passed) -> None:
        """Keeps it, and lets the one go that was asked for least lately."""
        self._texts.keep(text, database, passed)


class KeptShapes:
    """The shapes that passed lately."""

    def __init__(self, most: int = MOST) -> None:
        self._shapes: _Newest[bool] = _Newest(most)

    def has(self, shape: str, database: str) -> bool:
        """Returns whether it passed."""
        return self._shapes.get(shape, database) is not None

    def keep(self, shape: str, database: str) -> None:
        """It passed; the one goes that was asked for least lately."""
        self._shapes.keep(shape, database, True)
