"""Landlock: a process gives up files, TCP ports and signals for good, itself and for all that it starts. Linux, no privileges needed.

Holds: what is not named is refused by the kernel afterwards, with EACCES; `no_new_privs` is set with it. It counts for the thread
that calls and for threads and processes that it starts later: call it before there are others.
Never: takes away what is open already. UDP, Unix sockets and signals of others are no part of it but for scopes (ABI 6). Imports nothing of
ours: a rank that starts cold cannot wait for the models of events.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys
from collections.abc import Collection, Iterable
from pathlib import Path

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


class LandlockError(Exception):
    """A restriction that was asked for could not be made; the process is as free as before."""


def abi() -> int:
    """Returns the version of Landlock that this kernel offers; 0 where it has none, or it is switched off."""
    if not sys.platform.startswith("linux"):
        return 0
    found = _libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION))
    return max(0, int(found))


def restrict(
    read_only: Iterable[Path | str],
    read_write: Iterable[Path | str],
    connect_ports: Collection[int] | None = None,
    bind_ports: Collection[int] | None = None,
    scoped: bool = False,
    *,
    missing_ok: bool = False,
) -> bool:
    """Leaves this thread, and what it starts, these paths with all below them, and these TCP ports; None leaves all ports.

    `scoped` also takes away what `scope` does. With `missing_ok`, paths that cannot be opened are left out, and so not left to the thread.
    Returns False where there is no Landlock. Raises LandlockError when a path does not exist, or when this kernel's Landlock knows no ports
    or no scopes.
    """
    version = abi()
    if version == 0:
        return False
    if version < PORTS_SINCE_ABI and not (connect_ports is None and bind_ports is None):
        raise LandlockError(f"Landlock of this kernel (ABI {version}) knows no ports; that takes ABI {PORTS_SINCE_ABI}, Linux 6.7")
    if scoped:
        _refuse_without_scopes(version)
    handled = _handled(version)
    net = (0 if bind_ports is None else _BIND) | (0 if connect_ports is None else _CONNECT)
    ruleset = _ruleset(version, handled, net, _ALL_SCOPES if scoped else 0)
    try:
        for paths, rights in ((read_only, handled & _READ), (read_write, handled & ~_DEVICE_FILES)):
            for path in paths:
                _allow_path(ruleset, path, rights, missing_ok)
        for port in connect_ports or ():
            _allow_port(ruleset, port, _CONNECT)
        for port in bind_ports or ():
            _allow_port(ruleset, port, _BIND)
        _enter(ruleset)
    finally:
        os.close(ruleset)
    return True


def scope(roots: Iterable[Path | str] = ("/",)) -> None:
    """Takes away signals to, and abstract Unix sockets of, processes outside, and mounts; what this thread starts shares the scope.

    `roots`: the root folders of this process and of those that it starts. Below them files may still be renamed and linked from one folder
    into another, which the kernel otherwise refuses (EXDEV) to all that gets rules on files later. Raises LandlockError where this kernel's
    Landlock knows no scopes.
    """
    version = abi()
    _refuse_without_scopes(version)
    ruleset = _ruleset(version, _REFER, 0, _ALL_SCOPES)
    try:
        for root in roots:
            _allow_path(ruleset, root, _REFER, missing_ok=False)
        _enter(ruleset)
    finally:
        os.close(ruleset)


def existing(paths: Iterable[Path]) -> list[Path]:
    """Returns those of the paths that exist: machines differ in which folders of a system they have."""
    return [path for path in paths if path.exists()]


def _refuse_without_scopes(version: int) -> None:
    if version < SCOPES_SINCE_ABI:
        raise LandlockError(f"Landlock of this kernel (ABI {version}) knows no scopes; that takes ABI {SCOPES_SINCE_ABI}, Linux 6.12")


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


def _enter(ruleset: int) -> None:
    _checked(_libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs cannot be set")
    _checked(_libc().syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)), "the restriction cannot be entered")


def _allow_path(ruleset: int, path: Path | str, rights: int, missing_ok: bool) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        if missing_ok:
            return
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
