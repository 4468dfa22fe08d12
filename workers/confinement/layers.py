"""Layers of confinement that this machine offers: each is tried for real, in a child process.

Holds: trying leaves nothing behind. What is not given has a reason in words.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from trainhouse import landlock
from trainhouse.workers.confinement import cgroups, interpreters, seccomp
from trainhouse.workers.confinement.cgroups import Limits
from trainhouse.workers.confinement.plan import Confinement, Kind, Place, in_order, scratch_places

FIRST_UID, UIDS = 1_900_000_000, 65_536
TRY_TIMEOUT_S = 180.0  # a slow machine is not one without namespaces
UID, NAMESPACES, SECCOMP, LANDLOCK, SCOPES, LIMITS = "uid", "namespaces", "seccomp", "landlock", "scopes", "limits"


@dataclass(frozen=True)
class Layer:
    """One layer: whether it is there, and why not (or what of it lacks)."""

    name: str
    on: bool
    why: str = ""


@dataclass(frozen=True)
class Layers:
    """All layers, and where groups for limits can be made."""

    layers: tuple[Layer, ...]
    groups: tuple[str, ...] = ()

    def on(self, name: str) -> bool:
        return any(layer.on for layer in self.layers if layer.name == name)

    def why(self, name: str) -> str:
        return next((layer.why for layer in self.layers if layer.name == name), "unknown")

    @property
    def complete(self) -> bool:
        """True if a job can neither see nor touch what is not its own."""
        return self.on(NAMESPACES) and self.on(SECCOMP) and self.on(LANDLOCK) and (self.on(UID) or os.geteuid() != 0)

    @property
    def lacking(self) -> str:
        """Words for what is not there."""
        return "; ".join(f"{layer.name}: {layer.why}" for layer in self.layers if not layer.on)

    def confinement(self, places: tuple[Place, ...], devices: tuple[str, ...] = (), limits: Limits = Limits()) -> Confinement:
        """Of one attempt, with all that there is."""
        uids = (FIRST_UID, UIDS) if self.on(UID) else None
        on = self.on
        return Confinement(on(NAMESPACES), uids, on(SECCOMP), on(LANDLOCK), on(SCOPES), places, devices, limits, self.groups)


def examine(interpreter: str) -> Layers:
    """Tries each. `interpreter`: what ranks must be able to run. Blocks for some tenths of a second."""
    usable, lacking = cgroups.found()
    limits = Layer(LIMITS, bool(usable), lacking)
    filtered = seccomp.known(os.uname().machine)
    version = landlock.abi()
    layers = [
        Layer(SECCOMP, filtered, "" if filtered else f"there is no filter for {os.uname().machine}"),
        Layer(LANDLOCK, version > 0, "" if version else "this kernel has no Landlock (Linux 5.13), or it is switched off"),
        Layer(
            SCOPES,
            version >= landlock.SCOPES_SINCE_ABI,
            ""
            if version >= landlock.SCOPES_SINCE_ABI
            else f"Landlock's ABI is {version}, scopes take {landlock.SCOPES_SINCE_ABI} (Linux 6.12)",
        ),
        limits,
    ]
    base = Layers(tuple(layers), cgroups.parents_of(usable))
    return Layers((*_of_namespaces(interpreter, base), *layers), base.groups)


def _of_namespaces(interpreter: str, base: Layers) -> tuple[Layer, Layer]:
    if os.geteuid() == 0:
        # Both or none: root within namespaces, without a uid of its own, still owns the agent's files.
        failure = _tried(interpreter, base, (Layer(UID, True), Layer(NAMESPACES, True)))
        return Layer(UID, not failure, failure), Layer(NAMESPACES, not failure, failure)
    failure = _tried(interpreter, base, (Layer(NAMESPACES, True),))
    return Layer(UID, False, "the agent is not root, so jobs keep its uid, in a user namespace"), Layer(NAMESPACES, not failure, failure)


def _tried(interpreter: str, base: Layers, more: tuple[Layer, ...]) -> str:
    """Runs the interpreter confined so; why it does not work, or ""."""
    layers = Layers((*more, *base.layers))
    with TemporaryDirectory(prefix="trainhouse-try-") as folder:
        own = Path(folder) / "own"
        own.mkdir()
        shown = [Place(p, Kind.READ_ONLY) for p in (*interpreters.shown_for(interpreter, trusted=True), *interpreters.own())]
        places = in_order([*scratch_places(), *shown, Place(folder, Kind.READ_ONLY), Place(str(own), Kind.WRITABLE)])
        order = {"folder": folder, "own": str(own), "interpreter": interpreter, "confinement": layers.confinement(places).as_json()}
        command = [sys.executable, "-m", "trainhouse.workers.confinement.trial"]
        try:
            done = subprocess.run(command, input=json.dumps(order), capture_output=True, text=True, timeout=TRY_TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    if done.returncode == 0:
        return ""
    lines = (done.stderr or done.stdout).strip().splitlines()
    return lines[-1][:500] if lines else f"the trial ended with {done.returncode}"


def as_event(layers: Layers, mode: str) -> dict[str, Any]:
    """For the node's registration."""
    return {"mode": mode, "complete": layers.complete, "layers": [asdict(layer) for layer in layers.layers]}


Examine = Callable[[str], Layers]
