"""Confinement of an attempt on this node, from the node's settings, the machine's layers and the attempt's needs.

Holds: a job sees the system, Python, the paths that the operator named, and its own attempt's folder. The agent's folders, and so other
jobs', are never among them, also where they lie in a folder that is shown.
"""

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainhouse.events import GangAllocated, NodePlacement
from trainhouse.events.model.node import IsolationLayer, NodeIsolation
from trainhouse.workers.agent.errors import NotLaunchableError
from trainhouse.workers.agent.node.devices import DeviceSource
from trainhouse.workers.confinement import interpreters
from trainhouse.workers.confinement.cgroups import Limits
from trainhouse.workers.confinement.layers import UID, Examine, Layers, examine
from trainhouse.workers.confinement.plan import HOME, Confinement, Kind, Place, in_order, scratch_places
from trainhouse.workers.launcher import AttemptPaths

REQUIRED, PREFERRED, NONE = "required", "preferred", "none"
PIDS_PER_RANK = 8192
MEMORY_FOR_ALL = 0.95  # of the machine's, for a job that names no limit: what is left keeps its agent alive
GIB = 2**30
# Where a person has caches and keys; what a job is told instead lies in its own view.
OF_A_PERSON = ("TMPDIR", "XDG_CACHE_HOME", "SHELL")
CACHES = ("HF_HOME", "TORCH_HOME")
CACHE_OF_SHARDS = "TRAINHOUSE_DATA_CACHE_DIR"


@dataclass(frozen=True)
class Hidden:
    """Folders of the agent's own."""

    agent_dir: Path
    secrets_dir: Path

    def places(self) -> list[Place]:
        """Each as it is named, and where it really is."""
        named = [str(p) for p in (self.agent_dir.parent, self.agent_dir, self.secrets_dir)]
        return [Place(p, Kind.HIDDEN) for p in dict.fromkeys((*named, *map(os.path.realpath, named)))]


@dataclass
class Confiner:
    """One node's. `paths`: what its operator shows to all jobs, `PATH` or `PATH:rw`."""

    mode: str
    interpreter: str
    hidden: Hidden
    devices: DeviceSource
    memory_bytes: int
    paths: Sequence[str] = ()
    examine: Examine = examine
    _layers: Layers | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def layers(self) -> Layers | None:
        """Returns the layers of this machine; None where nothing is wanted. Blocks the first time."""
        if self.mode == NONE:
            return None
        with self._lock:
            if self._layers is None:
                self._layers = self.examine(self.interpreter)
            return self._layers

    def report(self) -> NodeIsolation:
        """For the node's registration."""
        layers = self.layers()
        if layers is None:
            return NodeIsolation(mode=self.mode, complete=False, reason="switched off by the node's setting `isolation`")
        listed = tuple(IsolationLayer(name=layer.name, on=layer.on, reason=layer.why) for layer in layers.layers)
        return NodeIsolation(mode=self.mode, complete=layers.complete, reason="" if layers.complete else layers.lacking, layers=listed)

    def of(
        self, allocation: GangAllocated, placement: NodePlacement, paths: AttemptPaths, secrets: Path | None = None
    ) -> Confinement | None:
        """The attempt's, with its secrets' folder; None where nothing is confined. Makes its ranks' own folders. Raises
        NotLaunchableError."""
        layers = self.layers()
        if layers is None:
            return None
        if self.mode == REQUIRED and not layers.complete:
            raise NotLaunchableError(f"this node must confine jobs and cannot ({layers.lacking})", retryable=True)
        own = [paths.rank(rank).folder / "own" for rank in placement.ranks]
        for folder in own:
            folder.mkdir(parents=True, exist_ok=True)
        interpreter = allocation.spec.runtime.interpreter
        python = [*interpreters.shown_for(self.interpreter, trusted=True), *interpreters.own()]
        places = [
            *(Place(p, Kind.READ_ONLY) for p in self._of_job(interpreter)),
            *self.hidden.places(),
            *(Place(p, Kind.READ_ONLY) for p in python),
            *scratch_places(),
            *self.declared(),
            Place(str(paths.folder), Kind.READ_ONLY),
            *([Place(str(secrets), Kind.READ_ONLY)] if secrets is not None else []),
            *(Place(str(p), Kind.WRITABLE) for p in (paths.code, *own)),
        ]
        nodes = tuple(node for device in placement.devices for node in self.devices.nodes(str(device)))
        return layers.confinement(in_order(places), nodes, self._limits(allocation, placement))

    def _of_job(self, interpreter: str | None) -> list[str]:
        """The installation of Python that a job names; never one that holds, or lies in, a folder of the agent's.

        Nor one in a folder in which jobs write: the folder is shown already, and what a job put there says nothing about other folders.
        """
        if not interpreter:
            return []
        hidden = [p.path for p in self.hidden.places()]
        written = [q for p in self.declared() if p.kind is Kind.WRITABLE for q in (p.path, os.path.realpath(p.path))]
        if _lies_in(interpreter, (*hidden, *written)):
            return []
        shown = interpreters.shown_for(interpreter, trusted=False)
        return [p for p in shown if not _lies_in(p, (*hidden, *written)) and not any(_holds(p, h) for h in hidden)]

    def declared(self) -> list[Place]:
        """Returns the paths that the operator shows."""
        found = []
        for text in self.paths:
            path, _, how = text.partition(":")
            found.append(Place(path, Kind.WRITABLE if how == "rw" else Kind.READ_ONLY))
        return found

    def environ(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The node's part of a rank's environment without what is not there for it."""
        layers = self.layers()
        if layers is None or not layers.on("namespaces"):
            return dict(environ)
        shown = [p.path for p in self.declared()]
        kept = {k: v for k, v in environ.items() if k not in OF_A_PERSON and (k not in CACHES or any(_within(v, p) for p in shown))}
        # A cache is its user's alone, and where attempts have uids of their own, the next attempt is another user.
        written = [] if layers.on(UID) else [p.path for p in self.declared() if p.kind is Kind.WRITABLE]
        if not any(_within(kept.get(CACHE_OF_SHARDS, ""), p) for p in written):
            kept.pop(CACHE_OF_SHARDS, None)
        return {**kept, "HOME": HOME, "USER": "job", "LOGNAME": "job"}

    def _limits(self, allocation: GangAllocated, placement: NodePlacement) -> Limits:
        memory_gib, cpus = 0.0, 0.0
        whole = True
        for rank in placement.ranks:
            role, _ = allocation.spec.role_of(rank)
            needs = allocation.spec.resources if role is None or role.resources is None else role.resources
            whole = whole and needs.memory_gib_per_device is not None
            memory_gib += needs.memory_gib_per_device or 0
            cpus += max(1.0, needs.cpus_per_device) if needs.cpus_per_device else float("inf")
        most = round(self.memory_bytes * MEMORY_FOR_ALL) or None
        memory = round(memory_gib * GIB) if whole else most
        return Limits(memory, PIDS_PER_RANK * len(placement.ranks), None if cpus == float("inf") else cpus)


def _lies_in(path: str, folders: Sequence[str]) -> bool:
    """Returns whether it does as it is named, or where it really is."""
    return any(_within(p, f) for p in (os.path.abspath(path), os.path.realpath(path)) for f in folders)


def _holds(folder: str, path: str) -> bool:
    return _within(path, folder) or _within(path, os.path.realpath(folder))


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
