"""Builds an attempt's view of the file system, in a mount namespace of its own, and makes it the root.

Holds: the root is an empty file system in memory; what is shown is bound to the same path as outside, read-only unless it is named
writable. Nothing of the host's file system is created or changed. Devices are the harmless ones, and those that are named.
Never: leaves a way to the old root.
"""

import os
from contextlib import suppress
from pathlib import Path

from trainhouse.workers.confinement.plan import DEVICES, HOME, Confinement, Kind, Place, in_order
from trainhouse.workers.confinement.system import (
    ATTR_NODEV,
    ATTR_NOSUID,
    ATTR_RDONLY,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_REC,
    MS_SLAVE,
    mount,
    mount_attributes,
    pivot_root,
)

SAFE = MS_NOSUID | MS_NODEV
SYSTEM = ("/usr", "/etc", "/opt", "/sys", "/nix", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
OF_KERNEL = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi")  # who has uid 0 may write there without any capability
NOT_OF_SYSTEM = ("/etc/trainhouse", "/sys/fs/cgroup", "/usr/local/etc/trainhouse")


def build(scratch: Path, confinement: Confinement, uid: int, gid: int) -> None:
    """Makes the view and enters it. `scratch` is an empty folder. Raises ConfinementError or OSError."""
    mount("none", "/", None, MS_REC | MS_SLAVE)
    root = str(scratch)
    mount("tmpfs", root, "tmpfs", SAFE, "mode=0755,size=16m")
    closed = [root]
    system = [Place(p, Kind.READ_ONLY) for p in SYSTEM if os.path.exists(p)] + [Place(p, Kind.HIDDEN) for p in NOT_OF_SYSTEM]
    places = in_order([*system, *_names_of_hosts(), *confinement.places])
    later = [place for place in places if place.path.startswith("/dev/")]  # an attempt's secrets: /dev and /dev/shm are made anew first
    closed += [root + place.path for place in places if place not in later and _show(root, place, uid, gid)]
    _devices(root, confinement.devices)
    closed += [root + place.path for place in later if _show(root, place, uid, gid)]
    _account(root, uid, gid)
    os.makedirs(f"{root}/proc", exist_ok=True)
    mount("proc", f"{root}/proc", "proc", SAFE | MS_NOEXEC)
    for name in OF_KERNEL:
        path = f"{root}/proc/{name}"
        if os.path.exists(path):
            mount(path, path, None, MS_BIND | MS_REC)
            mount_attributes(path, ATTR_RDONLY, recursive=True)
    for path in closed:
        mount_attributes(path, ATTR_RDONLY, recursive=False)
    pivot_root(root)


def _show(root: str, place: Place, uid: int, gid: int) -> bool:
    """Shows one place; whether it is an empty one to be closed at the end."""
    target = root + place.path
    if place.kind is Kind.SCRATCH:
        os.makedirs(target, exist_ok=True)
        mount("tmpfs", target, "tmpfs", SAFE, "mode=1777" if place.path != HOME else f"mode=0700,uid={uid},gid={gid}")
    elif place.kind is Kind.HIDDEN:
        if os.path.isdir(target):
            mount("tmpfs", target, "tmpfs", SAFE, "mode=0755,size=1m")
            return True
    elif os.path.islink(place.path) and place.kind is Kind.READ_ONLY:
        with suppress(FileExistsError):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.symlink(os.readlink(place.path), target)
    elif os.path.exists(place.path):
        _point(place.path, target)
        writable = place.kind is Kind.WRITABLE
        mount(place.path, target, None, MS_BIND if writable else MS_BIND | MS_REC)
        mount_attributes(target, ATTR_NOSUID | ATTR_NODEV | (0 if writable else ATTR_RDONLY), recursive=True)
    return False


def _point(source: str, target: str) -> None:
    """Makes what a mount needs to be mounted on, in memory: what lies in a shown folder is there already."""
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))


def _devices(root: str, named: tuple[str, ...]) -> None:
    dev = f"{root}/dev"
    os.makedirs(dev, exist_ok=True)
    mount("tmpfs", dev, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=0755,size=1m")
    for path in (*(f"/dev/{name}" for name in DEVICES), *named):
        if os.path.exists(path):
            _point(path, root + path)
            mount(path, root + path, None, MS_BIND | MS_REC)
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2"), ("ptmx", "pts/ptmx")):
        os.symlink(target, f"{dev}/{name}")
    for name in ("shm", "pts"):
        os.mkdir(f"{dev}/{name}")
    mount("tmpfs", f"{dev}/shm", "tmpfs", SAFE, "mode=1777")
    mount("devpts", f"{dev}/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620")
    mount_attributes(dev, ATTR_RDONLY, recursive=False)


def _account(root: str, uid: int, gid: int) -> None:
    """Gives the uid a name: libraries ask for it."""
    lines = {"passwd": f"root:x:0:0::/root:/bin/sh\njob:x:{uid}:{gid}::{HOME}:/bin/sh\n", "group": f"root:x:0:\njob:x:{gid}:\n"}
    for name, text in lines.items():
        source, target = Path(f"{root}/.{name}"), f"{root}/etc/{name}"
        if uid and os.path.exists(target):
            source.write_text(text + "nobody:x:65534:65534::/:/usr/sbin/nologin\n" if name == "passwd" else text)
            mount(str(source), target, None, MS_BIND)


def _names_of_hosts() -> list[Place]:
    """Target folder of the /etc/resolv.conf link."""
    real = os.path.realpath("/etc/resolv.conf")
    return [] if real.startswith("/etc/") or not os.path.exists(real) else [Place(os.path.dirname(real), Kind.READ_ONLY)]
