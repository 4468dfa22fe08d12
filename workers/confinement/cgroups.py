"""Limits of memory, processors and processes by control groups, version 2 where it is delegated, else version 1.

`found` is the only function that looks at the machine; which files get which values is `settings_of`, pure.

Holds: a group is made for one attempt, and removed when it is empty. An attempt killed for its memory is known by the group's counter.
"""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CONTROLLERS = ("memory", "pids", "cpu")
PERIOD_US = 100_000
PARENT = "trainhouse"
UNIFIED = "unified"
_OOM_KILLS = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Limits:
    """None: without a limit."""

    memory_bytes: int | None = None
    pids: int | None = None
    cpus: float | None = None


@dataclass(frozen=True)
class Hierarchy:
    """A folder below which this process may make groups with these controllers."""

    folder: str
    version: int
    controllers: tuple[str, ...]


def hierarchies(mountinfo: str, own: str) -> list[Hierarchy]:
    """Position of this process in each cgroup hierarchy, from /proc/self/mountinfo and /proc/self/cgroup. Pure."""
    mine = {names: path for _, names, path in (line.split(":", 2) for line in own.splitlines() if line.count(":") >= 2)}
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        version = 2 if kind[0] == "cgroup2" else 1
        options = set(kind[2].split(","))
        names = "" if version == 2 else next((n for n in mine if n and set(n.split(",")) <= options), None)
        controllers = tuple(c for c in CONTROLLERS if version == 2 or (names and c in names.split(",")))
        if names is None or names not in mine or not controllers:
            continue
        inside = os.path.relpath(mine[names], fields[3])
        if inside.startswith(".."):
            continue
        found.append(Hierarchy(os.path.normpath(f"{fields[4]}/{inside}"), version, controllers))
    return sorted(found, key=lambda h: -h.version)


def settings_of(limits: Limits, version: int, controllers: tuple[str, ...]) -> list[tuple[str, str]]:
    """The files of a group and what to write into them, in order. Pure."""
    wanted: list[tuple[str, str]] = []
    if limits.memory_bytes is not None and "memory" in controllers:
        size = str(limits.memory_bytes)
        wanted += [("memory.max", size), ("memory.swap.max", "0")] if version == 2 else [("memory.limit_in_bytes", size)]
    if limits.pids is not None and "pids" in controllers:
        wanted.append(("pids.max", str(limits.pids)))
    if limits.cpus is not None and "cpu" in controllers:
        quota_us = str(max(1000, round(limits.cpus * PERIOD_US)))
        wanted += [("cpu.max", f"{quota_us} {PERIOD_US}")] if version == 2 else [("cpu.cfs_quota_us", quota_us)]
    return wanted


def found() -> tuple[dict[str, Hierarchy], str]:
    """The folder for each controller in which groups can be made, and why not for those that lack. Makes one group a hierarchy."""
    try:
        listed = hierarchies(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())
    except OSError as error:
        return {}, str(error)
    usable: dict[str, Hierarchy] = {}
    reasons: list[str] = []
    for hierarchy in listed:
        try:
            controllers = _prepared(hierarchy)
        except OSError as error:
            reasons.append(f"{hierarchy.folder}: {error.strerror}")
            continue
        for controller in controllers:
            usable.setdefault(controller, Hierarchy(f"{hierarchy.folder}/{PARENT}", hierarchy.version, controllers))
    lacking = [c for c in CONTROLLERS if c not in usable]
    why = f"no group for {', '.join(lacking)} can be made" + (f" ({'; '.join(reasons)})" if reasons else "; delegate a group to the agent")
    return usable, why if lacking else ""


def _prepared(hierarchy: Hierarchy) -> tuple[str, ...]:
    """Makes the folder for the attempts' groups; the controllers that it really has."""
    folder = Path(hierarchy.folder)
    if hierarchy.version == 1:
        (folder / PARENT).mkdir(exist_ok=True)
        if not os.access(folder / PARENT, os.W_OK):
            raise PermissionError(13, "not writable")
        return hierarchy.controllers
    offered = set((folder / "cgroup.controllers").read_text().split())
    controllers = tuple(c for c in CONTROLLERS if c in offered)
    if not controllers:
        return ()
    _enable(folder, controllers)
    (folder / PARENT).mkdir(exist_ok=True)
    _enable(folder / PARENT, controllers)
    return controllers


def _enable(folder: Path, controllers: tuple[str, ...]) -> None:
    enabled = set((folder / "cgroup.subtree_control").read_text().split())
    lacking = [f"+{c}" for c in controllers if c not in enabled]
    if lacking:
        (folder / "cgroup.subtree_control").write_text(" ".join(lacking))


class Groups:
    """The groups of one attempt, one a hierarchy."""

    def __init__(self, folders: Mapping[str, int]) -> None:
        self._folders = {Path(folder): version for folder, version in folders.items()}

    @classmethod
    def make(cls, parents: tuple[str, ...], name: str, limits: Limits) -> "Groups":
        """Makes them with their limits. `parents`: `VERSION:CONTROLLERS:FOLDER` each. Raises OSError."""
        made: dict[str, int] = {}
        for parent in parents:
            version, controllers, folder = parent.split(":", 2)
            group = Path(folder) / name
            wanted = settings_of(limits, int(version), tuple(controllers.split(",")))
            if not wanted:  # to join a group costs milliseconds
                continue
            group.mkdir(exist_ok=True)
            for file, value in wanted:
                with suppress(FileNotFoundError):  # a kernel without swap accounting lacks that file
                    (group / file).write_text(value)
            made[str(group)] = int(version)
        return cls(made)

    @property
    def folders(self) -> dict[str, int]:
        return {str(folder): version for folder, version in self._folders.items()}

    def join(self) -> None:
        """Moves this process in."""
        for folder in self._folders:
            (folder / "cgroup.procs").write_text("0")

    def add(self, pid: int) -> None:
        """Moves a process of this machine in, which is not confined otherwise. Raises OSError."""
        for folder in self._folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def oom_kills(self) -> int:
        """Returns the number of processes that the kernel killed for the groups' memory."""
        for folder, version in self._folders.items():
            with suppress(OSError):
                counted = _OOM_KILLS.search((folder / ("memory.events" if version == 2 else "memory.oom_control")).read_text())
                if counted:
                    return int(counted.group(1))
        return 0

    def remove(self) -> None:
        """Removes them; what still has processes stays."""
        for folder in self._folders:
            with suppress(OSError):
                folder.rmdir()


def parents_of(usable: Mapping[str, Hierarchy]) -> tuple[str, ...]:
    """Returns the arguments of `Groups.make`, one a folder."""
    by_folder: dict[str, tuple[int, list[str]]] = {}
    for controller, hierarchy in usable.items():
        by_folder.setdefault(hierarchy.folder, (hierarchy.version, []))[1].append(controller)
    return tuple(f"{version}:{','.join(controllers)}:{folder}" for folder, (version, controllers) in by_folder.items())
