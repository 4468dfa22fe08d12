"""Landlock for ranks: which files they may use, and that signals and abstract sockets of others are out of their reach.

`trainhouse.events.landlock` says the same for servers; a cold start cannot wait for that package's models to be imported.

Holds: a scope comes without rules on files, since a process under such rules may not mount; ranks add theirs later, each for itself.
"""

import ctypes
import os
import stat
import struct
from collections.abc import Iterable

from trainhouse.workers.confinement import system

SCOPES_SINCE_ABI = 6
_CREATE, _ADD, _RESTRICT = 444, 445, 446
_READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read a file, list a folder
_OF_FILES = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
_MAKE_DEVICES = 1 << 6 | 1 << 11
_SINCE = ((1, (1 << 13) - 1), (2, 1 << 13), (3, 1 << 14), (5, 1 << 15))
_SCOPES = 0b11


def abi() -> int:
    """The version of Landlock here; 0 where there is none."""
    return system.version_of(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(1))


def restrict_files(readable: Iterable[str], writable: Iterable[str]) -> None:
    """Leaves the calling thread these paths, those that exist. Needs no_new_privs. Raises ConfinementError."""
    version = abi()
    handled = sum(rights for since, rights in _SINCE if version >= since)
    ruleset = _made(struct.pack("=Q", handled))
    try:
        for paths, rights in ((readable, handled & _READ), (writable, handled & ~_MAKE_DEVICES)):
            for path in paths:
                _allow(ruleset, path, rights)
        _enter(ruleset)
    finally:
        os.close(ruleset)


def scope_signals_and_sockets() -> None:
    """Takes away signals to, and abstract Unix sockets of, processes outside; children share the scope. Raises ConfinementError."""
    ruleset = _made(struct.pack("=QQQ", 0, 0, _SCOPES))
    try:
        system.prctl(system.PR_SET_NO_NEW_PRIVS, 1)
        _enter(ruleset)
    finally:
        os.close(ruleset)


def _made(attributes: bytes) -> int:
    return system.call(_CREATE, "a set of Landlock's rules cannot be made", attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0))


def _enter(ruleset: int) -> None:
    system.call(_RESTRICT, "Landlock's rules cannot be entered", ctypes.c_int(ruleset), ctypes.c_uint(0))


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        of_kind = rights if stat.S_ISDIR(os.fstat(fd).st_mode) else rights & _OF_FILES
        rule = struct.pack("=Qi", of_kind, fd)
        system.call(_ADD, f"no rule for {path} can be made", ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint(0))
    finally:
        os.close(fd)
