"""Landlock: a process gives up files and TCP ports for good, itself and for all that it starts. Linux, no privileges needed.

Holds: what is not named is refused by the kernel afterwards, with EACCES; `no_new_privs` is set with it. It counts for the thread
that calls and for threads and processes that it starts later: call it before there are others.
Never: takes away what is open already. UDP, Unix sockets and signals of others are no part of it but for `scoped` (ABI 6).
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys
from collections.abc import Collection, Iterable
from pathlib import Path

from trainhouse.events.errors import EventError

PORTS_SINCE_ABI = 4
SCOPES_SINCE_ABI = 6

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_PATH_BENEATH, _NET_PORT = 1, 2
_PR_SET_NO_NEW_PRIVS = 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
# All that the first ABI knows: besides the four above, to remove (2) and to make (7 kinds of) files.
_FIRST_ABI = (1 << 13) - 1
_DEVICE_FILES = 1 << 6 | 1 << 11
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_BIND, _CONNECT = 1 << 0, 1 << 1
_ALL_SCOPES = 1 << 0 | 1 << 1


class LandlockError(EventError):
    """A restriction that was asked for could not be made; the process is as free as before."""


def abi() -> int:
    """Returns the version of Landlock that this kernel offers; 0 where it has none, or it is switched off."""
    if not sys.platform.startswith("linux"):
        return 0
    found = _libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION))
    return max(0, int(found))


def restrict(
    read_only: Iterable[Path],
    read_write: Iterable[Path],
    connect_ports: Collection[int] | None = None,
    bind_ports: Collection[int] | None = None,
    scoped: bool = False,
) -> bool:
    """Leaves this thread, and what it starts, these paths with all below them, and these TCP ports; None leaves all ports.

    `scoped` also takes away abstract Unix sockets and signals to processes outside. Returns False where there is no Landlock.
    Raises LandlockError when a path does not exist, or when this kernel's Landlock knows no ports or no scopes.
    """
    version = abi()
    if version == 0:
        return False
    if version < PORTS_SINCE_ABI and not (connect_ports is None and bind_ports is None):
        raise LandlockError(f"Landlock of this kernel (ABI {version}) knows no ports; that takes ABI {PORTS_SINCE_ABI}, Linux 6.7")
    if version < SCOPES_SINCE_ABI and scoped:
        raise LandlockError(f"Landlock of this kernel (ABI {version}) knows no scopes; that takes ABI {SCOPES_SINCE_ABI}, Linux 6.12")
    handled = _handled(version)
    net = (0 if bind_ports is None else _BIND) | (0 if connect_ports is None else _CONNECT)
    ruleset = _ruleset(version, handled, net, _ALL_SCOPES if scoped else 0)
    try:
        for path in read_only:
            _allow_path(ruleset, path, handled & _READ)
        for path in read_write:
            _allow_path(ruleset, path, handled & ~_DEVICE_FILES)
        for port in connect_ports or ():
            _allow_port(ruleset, port, _CONNECT)
        for port in bind_ports or ():
            _allow_port(ruleset, port, _BIND)
        _checked(_libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs cannot be set")
        _checked(_libc().syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)), "the restriction cannot be entered")
    finally:
        os.close(ruleset)
    return True


def existing(paths: Iterable[Path]) -> list[Path]:
    """Returns those of the paths that exist: machines differ in which folders of a system they have."""
    return [path for path in paths if path.exists()]


def _handled(version: int) -> int:
    rights = _FIRST_ABI
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEVICE)):
        if version >= since:
            rights |= right
    return rights


def _ruleset(version: int, files: int, net: int, scopes: int) -> int:
    # The kernel refuses fields that it does not know, so the structure is as long as its ABI has it.
    fields = 1 if version < PORTS_SINCE_ABI else 2 if version < SCOPES_SINCE_ABI else 3
    attributes = struct.pack(f"={fields}Q", *(files, net, scopes)[:fields])
    made = _libc().syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    return _checked(int(made), "a set of rules cannot be made")


def _allow_path(ruleset: int, path: Path, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        raise LandlockError(f"{path} cannot be named in a rule: {error.strerror}; name what exists") from error
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= _OF_FILES
        rule = struct.pack("=Qi", rights, fd)
        added = _libc().syscall(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint32(0))
        _checked(added, f"no rule for {path} can be made")
    finally:
        os.close(fd)


def _allow_port(ruleset: int, port: int, right: int) -> None:
    rule = struct.pack("=QQ", right, port)
    added = _libc().syscall(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_NET_PORT), rule, ctypes.c_uint32(0))
    _checked(added, f"no rule for port {port} can be made")


def _checked(result: int, what: str) -> int:
    if result < 0:
        raise LandlockError(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc
