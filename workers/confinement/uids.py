"""Claims of uids: of the attempts that run on this machine, each has one that no other has.

Holds: a claim is a lock on a file in a folder that root alone can enter, so no other user can take uids away. The kernel frees it with
its last descriptor, however the holder ends.
Never: removes a file; who waits on a removed one would hold the same uid as who makes it anew.
"""

import fcntl
import hashlib
import os
import stat

from trainhouse.workers.confinement.system import ConfinementError

FOLDER = "/run/trainhouse-uids"
TRIES = 4096


def claimed(uids: tuple[int, int], seed: str, folder: str = FOLDER) -> tuple[int, int]:
    """A free uid, and the descriptor that holds it. Raises ConfinementError."""
    first, count = uids
    start = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big")
    try:
        inside = _opened(folder)
    except OSError as error:
        raise ConfinementError(
            f"uids cannot be claimed in {folder}: {error.strerror}; the agent must be able to write below /run"
        ) from error
    try:
        for number in range(min(TRIES, count)):
            uid = first + (start + number) % count
            holder = _locked(str(uid), inside)
            if holder is not None:
                return uid, holder
    finally:
        os.close(inside)
    raise ConfinementError(f"no uid from {first} on is free after {TRIES} tries")


def _opened(folder: str) -> int:
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise ConfinementError(f"{folder} must be a folder of mode 0700 that the agent's user owns; remove what is there")
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _locked(name: str, inside: int) -> int | None:
    try:
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=inside)
    except OSError as error:
        raise ConfinementError(f"the uid {name} cannot be claimed: {error.strerror}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd
