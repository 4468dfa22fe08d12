"""Pools that changed since their last cycle, so that a cycle without a change costs next to nothing.

Holds: without a mark, the result of the last look is still valid, but for what time alone changes.
Never: changes what is decided: a pool that is looked at without need gives no action.
"""

RELOOK_MS = 5_000
"""Time alone changes scores, held starts and protections: a pool is looked at again after this."""


class Marks:
    """By pool: whether anything changed, and when it was last looked at."""

    __slots__ = ("_changed", "_looked_ms")

    def __init__(self) -> None:
        self._changed: dict[str, bool] = {}
        self._looked_ms: dict[str, int] = {}

    def fork(self) -> "Marks":
        """The same marks, apart from then on."""
        twin = Marks()
        twin._changed, twin._looked_ms = self._changed.copy(), self._looked_ms.copy()
        return twin

    def change(self, pool: str) -> None:
        """Something changed in a pool: jobs, devices, nodes or rules."""
        self._changed[pool] = True

    def due(self, pool: str, now_ms: int) -> bool:
        """Whether a look could find anything."""
        return pool in self._changed or now_ms - self._looked_ms.get(pool, -RELOOK_MS) >= RELOOK_MS

    def settle(self, pool: str, now_ms: int) -> None:
        """All was seen as of now."""
        self._changed.pop(pool, None)
        self._looked_ms[pool] = now_ms

    def drop(self, pool: str) -> None:
        """The pool is gone."""
        self._changed.pop(pool, None)
        self._looked_ms.pop(pool, None)

    def rows(self) -> dict[str, list[list[str | int]]]:
        """All marks as plain data, for a snapshot; sorted."""
        return {"changed": [[p] for p in sorted(self._changed)], "looked_ms": [[p, at] for p, at in sorted(self._looked_ms.items())]}

    def restore(self, rows: dict[str, list[list[str | int]]]) -> None:
        """The inverse of `rows`: what was marked before is forgotten."""
        self._changed = {str(p): True for (p,) in rows["changed"]}
        self._looked_ms = {str(p): int(at) for p, at in rows["looked_ms"]}

    def looked_ms(self, pool: str) -> int | None:
        """Returns the time of a pool's last look, or None."""
        return self._looked_ms.get(pool)
