"""The gate's verdicts of the statements that passed lately, so that a repeated question costs no second parse.

Holds: bounded; kept by the text and the database alone, since bound values are values: the gate refuses them where the engine would read
names or expressions from them. Safe for threads.
Never: keeps a refusal.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from trainhouse.projections.endpoint.gate import Passed

MOST = 1024
MOST_CHARS = 32 * 1024


class Verdicts:
    """`get` and `keep` by text and database."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._kept: OrderedDict[tuple[str, str], Passed] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, text: str, database: str) -> Passed | None:
        """What passed, None where it is not kept."""
        with self._lock:
            found = self._kept.get((text, database))
            if found is not None:
                self._kept.move_to_end((text, database))
            return found

    def keep(self, text: str, database: str, passed: Passed) -> None:
        """Keeps it, and lets the one go that was asked for least lately."""
        if len(text) > MOST_CHARS:
            return
        with self._lock:
            self._kept[text, database] = passed
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
