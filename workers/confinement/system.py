"""System calls that Python 3.11 has no function for.

Holds: each raises ConfinementError with its name and the kernel's reason; none starts a thread.
"""

import ctypes
import os
import resource
import struct
import sys
from pathlib import Path

NEWNS, NEWIPC, NEWUSER, NEWPID = 0x20000, 0x8000000, 0x10000000, 0x20000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_SLAVE = 1, 2, 4, 8, 4096, 16384, 1 << 19
MNT_DETACH = 2
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 1, 2, 4
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 4, 24, 38, 47
PR_SET_SECCOMP, SECCOMP_MODE_FILTER, PR_CAP_AMBIENT_CLEAR_ALL = 22, 2, 4
_SYS_MOUNT_SETATTR = 442  # one number on every architecture since Linux 5.0
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_SYS_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION_3 = 0x20080522


class ConfinementError(Exception):
    """A layer of confinement could not be entered; the message names the step and the kernel's reason."""


_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def _checked(result: int, step: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise ConfinementError(f"{step}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    """Leaves the namespaces that `flags` names for new ones; with NEWPID, children are born there."""
    _checked(_libc.unshare(flags), "namespaces cannot be made")


def setns(fd: int, kind: int) -> None:
    """Enters a namespace by its descriptor."""
    _checked(_libc.setns(fd, kind), "a namespace cannot be entered")


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """Mounts, as mount(2)."""
    arguments = (source.encode(), target.encode(), kind.encode() if kind else None, ctypes.c_ulong(flags), options.encode())
    _checked(_libc.mount(*arguments), f"{source} cannot be mounted at {target}")


def mount_attributes(target: str, attributes: int, recursive: bool) -> None:
    """Sets attributes of a mount, and of all below it. Since Linux 5.12."""
    wanted = struct.pack("=QQQQ", attributes, 0, 0, 0)
    arguments = (
        ctypes.c_int(AT_FDCWD),
        target.encode(),
        ctypes.c_uint(AT_RECURSIVE if recursive else 0),
        wanted,
        ctypes.c_size_t(len(wanted)),
    )
    _checked(_libc.syscall(_SYS_MOUNT_SETATTR, *arguments), f"{target} cannot be made read-only")


def pivot_root(new_root: str) -> None:
    """Makes a mounted folder the root; the old one is gone from this mount namespace."""
    os.chdir(new_root)
    _checked(_libc.syscall(_SYS_PIVOT_ROOT[os.uname().machine], b".", b"."), "the root cannot be changed")
    _checked(_libc.umount2(b".", MNT_DETACH), "the old root cannot be left")
    os.chdir("/")


def prctl(option: int, *arguments: int) -> None:
    """Calls prctl(2)."""
    values = [ctypes.c_ulong(a) for a in (*arguments, 0, 0, 0, 0)[:4]]
    _checked(_libc.prctl(option, *values), f"prctl {option}")


def without_core_dumps() -> None:
    """From here on this process and all that come of it leave no memory behind when they crash, also where a program takes core dumps."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        with open("/proc/self/coredump_filter", "w") as file:
            file.write("0x0")
    except OSError as error:
        print(f"trainhouse: a program that takes core dumps may see memory of this attempt: {error}", file=sys.stderr, flush=True)


def drop_bounding_set() -> None:
    """Takes every capability out of what a program could ever gain. Needs CAP_SETPCAP."""
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for capability in range(last + 1):
        prctl(PR_CAPBSET_DROP, capability)
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)


def drop_capabilities() -> None:
    """Gives up every capability that this thread has."""
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    _checked(_libc.syscall(_SYS_CAPSET[os.uname().machine], header, bytes(24)), "capabilities cannot be dropped")


def load_filter(program: bytes) -> None:
    """Loads a seccomp filter; needs no_new_privs. It counts for this thread and all that it starts."""
    buffer = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("@HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    holder = ctypes.create_string_buffer(head, len(head))
    _checked(_libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, holder), "the filter of system calls cannot be loaded")
