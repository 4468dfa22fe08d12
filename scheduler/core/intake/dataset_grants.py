"""Grants of one dataset to other projects, as each partition of the directory keeps them.

Holds: pure and immutable; what was revoked is not kept here: the topic of datasets and its tables have it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from trainhouse.events import DatasetGranted, DatasetGrantRevoked
from trainhouse.events.model.dataset_grant import GrantKey

# Beside its texts, a grant takes so much in a snapshot: a hash, and JSON around it.
_ROW_BYTES: Final = 80


@dataclass(frozen=True, slots=True)
class Grants:
    """Grants of a dataset that hold. `number`: of the last change, by which a partition knows what is newer than its copy."""

    number: int = 0
    keys: frozenset[GrantKey] = field(default_factory=frozenset)

    @classmethod
    def load(cls, dataset: str, number: int, rows: Iterable[tuple[str, str, str]]) -> "Grants":
        """Reads back what `rows` gave."""
        return cls(number, frozenset(GrantKey(dataset, *row) for row in rows))

    def changed(self, event: DatasetGranted | DatasetGrantRevoked) -> "Grants":
        """With one more grant, or one fewer."""
        key = frozenset({GrantKey.of(event)})
        return Grants(event.number, self.keys | key if isinstance(event, DatasetGranted) else self.keys - key)

    def of(self, project: str) -> list[GrantKey]:
        """The grants of a project, sorted."""
        return sorted(key for key in self.keys if key.project == project)

    def covers(self, key: GrantKey) -> bool:
        """Whether a version may be used by a project for a purpose: by its own grant, or by one of all versions."""
        return key in self.keys or key.of_all in self.keys

    @property
    def rows(self) -> list[list[str]]:
        """As JSON, sorted."""
        return [[key.sha256, key.project, key.purpose] for key in sorted(self.keys)]

    @property
    def size_bytes(self) -> int:
        """Bytes that they take in a snapshot, about."""
        return sum(size_of(key) for key in self.keys)


def size_of(key: GrantKey) -> int:
    """Bytes that a grant takes in a snapshot, about."""
    return _ROW_BYTES + len(key.project.encode()) + len(key.purpose.encode())
