"""Removal of what a sweep of a project found unneeded.

Holds: nothing goes that is younger than the grace, looked at again right before; it stops where something begins to be stored. Interrupted,
the next sweep goes on; two at once do no harm.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from trainhouse.checkpointing.stores.object_store import ObjectStat, ObjectStore

_BATCH: Final = 100
"""Objects that are removed before notes are looked for again."""


@dataclass(frozen=True)
class Swept:
    """Result of a sweep: removed objects, and for each project of which nothing went, or not all that could, the reason."""

    objects: int = 0
    bytes_freed: int = 0
    unclear: tuple[str, ...] = ()


def held_up(objects: ObjectStore, prefix: str, what: str, notes: Iterable[ObjectStat], grace_s: float) -> str:
    """Returns what waits because of notes that are young, and until when; empty where none is."""
    young = [stat for stat in notes if stat.age_s <= grace_s]
    if not young:
        return ""
    last = min(young, key=lambda stat: stat.age_s)
    until = datetime.fromtimestamp(last.modified_s + grace_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        f"nothing below {objects.uri(prefix)} is removed yet: {what} ({len(young)} note{'s' * (len(young) > 1)}, the newest {last.key}); "
        f"a sweep goes on there when that has ended, and after {until} in any case, unless it is renewed"
    )


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
