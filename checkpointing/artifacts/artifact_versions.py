"""Versions of artifacts as the keys of their names have them. Pure, without models."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol


@dataclass(frozen=True, order=True)
class ArtifactVersion:
    """One version under a name. `by`: jobs and people that keep it there. `stored_at_s`: when it was stored under it last, by the store's
    clock; of several that keep it, by the one that did so first."""

    name: str
    stored_at_s: float
    sha256: str
    by: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}@sha256:{self.sha256}"


class NameStat(Protocol):
    """Key of a name, and when it was written, in seconds since 1970."""

    @property
    def key(self) -> str: ...

    @property
    def modified_s(self) -> float: ...


def versions_of(root: str, stats: Iterable[NameStat]) -> list[ArtifactVersion]:
    """The versions by name and age. `root`: prefix of all names; `stats`: in the order of their keys."""
    found = dict[tuple[str, str], ArtifactVersion]()
    for stat in stats:
        match stat.key.removeprefix(root).split("/"):
            case [name, sha256, by]:
                known = found.get((name, sha256), ArtifactVersion(name, stat.modified_s, sha256))
                first = min(known.stored_at_s, stat.modified_s)
                found[name, sha256] = replace(known, stored_at_s=first, by=(*known.by, by))
    return sorted(found.values())
