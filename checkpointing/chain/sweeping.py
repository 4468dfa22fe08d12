"""Removal of what a sweep of a project found unneeded.

Holds: nothing goes that is younger than the grace, looked at again right before; it stops where something begins to be stored. Interrupted,
the next sweep goes on; two at once do no harm.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from trainhouse.checkpointing.stores.object_store import ObjectStat, ObjectStore

_BATCH: Final = 100
"""Objects that are removed before notes are looked for again."""


@dataclass(frozen=True)
class Swept:
    """Result of a sweep: removed objects, and for each project of which nothing went, the reason."""

    objects: int = 0
    bytes_freed: int = 0
    unclear: tuple[str, ...] = ()


def removed(objects: ObjectStore, notes_prefix: str, unneeded: Sequence[ObjectStat], grace_s: float) -> Iterator[ObjectStat]:
    """Removes them and yields each; stops where a note below `notes_prefix` is young, as what is being stored may rely on them. Blocks."""
    for start in range(0, len(unneeded), _BATCH):
        if any(stat.age_s <= grace_s for stat in objects.list(notes_prefix)):
            return
        for stat in unneeded[start : start + _BATCH]:
            # Looked at again: it may have been sent anew since it was listed.
            again = objects.stat(stat.key)
            if again is not None and again.age_s > grace_s:
                objects.delete(stat.key)
                yield stat
