"""Plan of an attempt's confinement: visible files and resources. Pure: data, and the order in which a view is built.

Holds: a path that is not named is not there. Of two places the deeper one counts, so that a folder within a hidden one can be shown.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any

from trainhouse.workers.confinement.cgroups import Limits

HOME = "/home/job"
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")


class Kind(StrEnum):
    """Visibility of a path. HIDDEN: as an empty folder, should it lie in one that is shown. SCRATCH: an empty one of the attempt's own."""

    READ_ONLY = "ro"
    WRITABLE = "rw"
    HIDDEN = "hidden"
    SCRATCH = "scratch"


@dataclass(frozen=True)
class Place:
    """One path, the same inside and outside of the view."""

    path: str
    kind: Kind

    @property
    def depth(self) -> int:
        return len(PurePosixPath(self.path).parts)


@dataclass(frozen=True)
class Confinement:
    """Confinement of one attempt's processes. `uids`: first and number of those to take one from; None: the agent's own stays.

    `namespaces`: users' (where the agent is not root), processes', mounts' and messages'. `scopes`: signals and abstract sockets of
    others are out of reach. `groups`: a folder in each of the control groups' hierarchies below which the attempt's own is made.
    """

    namespaces: bool
    uids: tuple[int, int] | None
    seccomp: bool
    landlock: bool
    scopes: bool
    places: tuple[Place, ...]
    devices: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    groups: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """For a request or a file."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Confinement":
        places = tuple(Place(p["path"], Kind(p["kind"])) for p in data["places"])
        uids = data["uids"]
        return cls(
            **{
                **data,
                "places": places,
                "uids": (int(uids[0]), int(uids[1])) if uids else None,
                "devices": tuple(data["devices"]),
                "limits": Limits(**data["limits"]),
                "groups": tuple(data["groups"]),
            }
        )

    @property
    def writable(self) -> tuple[str, ...]:
        return tuple(p.path for p in self.places if p.kind in (Kind.WRITABLE, Kind.SCRATCH))

    @property
    def readable(self) -> tuple[str, ...]:
        return tuple(p.path for p in self.places if p.kind is Kind.READ_ONLY)


def in_order(places: Iterable[Place]) -> tuple[Place, ...]:
    """One place a path, the shallow ones first; the last that names a path counts. "/" as a whole is never shown."""
    by_path = {p.path: p for p in places if p.path.startswith("/") and p.path != "/"}
    return tuple(sorted(by_path.values(), key=lambda p: (p.depth, p.path)))


def scratch_places() -> tuple[Place, ...]:
    """Folders that every attempt has for itself."""
    return tuple(Place(path, Kind.SCRATCH) for path in ("/tmp", "/var/tmp", HOME))  # nosec B108  # names of empty folders in a view
