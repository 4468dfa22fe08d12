"""Versions of artifacts as the keys of their names in the store have them. Pure, without models."""

from collections.abc import Iterable
from dataclasses import dataclass, replace


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


def versions_of(names: Iterable[tuple[str, float]], root: str) -> list[ArtifactVersion]:
    """Versions by name and age. `names`: keys of names, below `root`, and when each was written, in seconds since 1970."""
    found = dict[tuple[str, str], ArtifactVersion]()
    for key, modified_s in names:
        match key.removeprefix(root).split("/"):
            case [name, sha256, by]:
                known = found.get((name, sha256), ArtifactVersion(name, modified_s, sha256))
                found[name, sha256] = replace(known, stored_at_s=min(known.stored_at_s, modified_s), by=(*known.by, by))
    return sorted(found.values())
