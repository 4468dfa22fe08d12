"""The namespaces of one attempt on one node, held open by a first process of its own, and the way into them.

Order: the keeper calls `Sandbox.open`, which forks the first process (number 1 in there: it builds the view and reaps orphans), and
`scope`; then each forked rank calls `enter`. A process from elsewhere (`trainhouse exec`) enters by the record in the attempt's folder.

Holds: ranks stay children of their keeper. What is confined cannot be undone by who is confined. All ranks of the attempt share uid,
view, /dev/shm and messages. When the first process is killed, the kernel kills all that is in there.
Never: starts a thread; after `open` this process may not either (its children are born elsewhere).
"""

import os
import select
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

from trainhouse import landlock
from trainhouse.workers.confinement import seccomp, system, uids, view
from trainhouse.workers.confinement.cgroups import Groups
from trainhouse.workers.confinement.plan import DEVICES, Confinement
from trainhouse.workers.confinement.system import ConfinementError

RECORD = "confinement.json"
SCRATCH = "view"
_KINDS = (("ipc", system.NEWIPC), ("mnt", system.NEWNS))


@dataclass
class Sandbox:
    """One attempt's. `pid`: of its first process as seen from outside; None without namespaces."""

    confinement: Confinement
    uid: int
    gid: int
    groups: Groups
    pid: int | None = None
    user_namespace: bool = False
    _entrances: list[tuple[int, int]] = field(default_factory=list)
    _claim: int | None = None
    _end: int | None = None

    @classmethod
    def open(cls, folder: Path, own: Sequence[Path], confinement: Confinement) -> "Sandbox":
        """Makes it; `own`: folders that the attempt's uid is to hold. Raises ConfinementError or OSError, and then nothing is left."""
        uid, claim = uids.claimed(confinement.uids, str(folder)) if confinement.uids else (os.getuid(), None)
        gid = uid if confinement.uids else os.getgid()
        groups = Groups.make(confinement.groups, f"{folder.parent.name}-{folder.name}", confinement.limits)
        sandbox = cls(confinement, uid, gid, groups, _claim=claim)
        try:
            if confinement.uids:
                for path in own:
                    _give(path, uid, gid)
                # Who is outside is kept off by the folders above, which the view shows as empty ones.
                # Only those: the parent of the secrets' folder holds other jobs'.
                for path in {folder, *(p.parent for p in own if p.parent.is_relative_to(folder))}:
                    path.chmod(path.stat().st_mode | 0o555)
            if confinement.namespaces:
                sandbox._open_namespaces(folder)
        except BaseException:
            sandbox.close()
            raise
        return sandbox

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> "Sandbox":
        """Running sandbox, for a process that is to join it. Raises OSError when it is gone."""
        sandbox = cls(
            Confinement.from_json(record["confinement"]),
            record["uid"],
            record["gid"],
            Groups(record["groups"]),
            record["pid"],
            record["user"],
        )
        if sandbox.pid is not None:
            sandbox._entrances = _namespaces_of(sandbox.pid, (("user", system.NEWUSER),) if sandbox.user_namespace else ())
        return sandbox

    def record(self) -> dict[str, Any]:
        """Returns the input of `of_record`."""
        return {
            "pid": self.pid,
            "uid": self.uid,
            "gid": self.gid,
            "user": self.user_namespace,
            "groups": self.groups.folders,
            "confinement": self.confinement.as_json(),
        }

    def scope(self) -> None:
        """Takes signals to processes outside from this process and all that it starts later: what was started before is outside.

        Not before `open`: no process in a scope may mount, and the first one mounts.
        """
        if self.confinement.scopes:
            landlock.scope(("/",) if self.pid is None else ("/", f"/proc/{self.pid}/root"))

    def join(self) -> None:
        """Enters the namespaces from outside; children of this process are born in there. Then `enter` in a child."""
        for fd, kind in self._entrances:
            if kind == system.NEWUSER:
                system.setns(fd, kind)
        if self.pid is not None:
            fd = os.open(f"/proc/{self.pid}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
            system.setns(fd, system.NEWPID)
            os.close(fd)
        self.scope()

    def enter(self, cwd: str) -> None:
        """Confines the calling process, a fresh child, for good."""
        self.groups.join()
        for fd, kind in self._entrances:
            if kind != system.NEWUSER:
                system.setns(fd, kind)
        self._restrict()
        os.chdir(cwd)

    def out_of_memory(self) -> str:
        """Words for the end of a process, if the kernel killed any in here for the limit of memory; else empty."""
        limit = self.confinement.limits.memory_bytes
        killed = self.groups.oom_kills() if limit is not None else 0
        if not killed or limit is None:
            return ""
        return f"Memory cgroup out of memory: the kernel killed {killed} of the attempt's processes at its limit of {limit / 2**30:.2f} GiB"

    def close(self) -> None:
        """Ends what is in there."""
        if self._end is not None:
            with suppress(BrokenPipeError):
                os.write(self._end, b".")
            os.close(self._end)
            self._end = None
        if self.pid is not None:
            # From within a scope the first process cannot be signalled: it ends by what is written above.
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGKILL)
        for fd, _ in self._entrances:
            os.close(fd)
        self._entrances = []

    def _open_namespaces(self, folder: Path) -> None:
        if os.geteuid() != 0:
            uid, gid = os.getuid(), os.getgid()
            system.unshare(system.NEWUSER | system.NEWPID)
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
            Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
            self.user_namespace = True
        else:
            system.unshare(system.NEWPID)
        scratch = folder / SCRATCH
        scratch.mkdir(exist_ok=True)
        reader, writer = os.pipe()
        end, self._end = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._first_process(scratch, writer, end)
        os.close(writer)
        os.close(end)
        reply = b""
        while piece := os.read(reader, 4096):
            reply += piece
        os.close(reader)
        self.pid = pid
        if reply != b"ready":
            raise ConfinementError(f"the attempt's view cannot be made: {reply.decode(errors='replace') or 'its process died'}")
        self._entrances = _namespaces_of(pid, _KINDS)

    def _first_process(self, scratch: Path, writer: int, end: int) -> NoReturn:
        try:
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                with suppress(OSError, ValueError):
                    signal.signal(number, signal.SIG_IGN if number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) else signal.SIG_DFL)
            os.setsid()
            _close_all_but(writer, end)
            self.groups.join()  # the hierarchies cannot be reached later; its memory is the attempt's
            system.unshare(system.NEWNS | system.NEWIPC)
            view.build(scratch, self.confinement, self.uid, self.gid)
            self._restrict()
            if self.confinement.uids:
                system.prctl(system.PR_SET_DUMPABLE, 0)  # ranks, which have its uid, may not trace it
            os.write(writer, b"ready")
            os.close(writer)
            _reap_until(end)
        except BaseException as error:
            with suppress(OSError):
                os.write(writer, f"{type(error).__name__}: {error}".encode()[:4000])
        finally:
            os._exit(1)

    def _restrict(self) -> None:
        """Gives up privileges, files and system calls. The order matters: each step needs what a later one takes."""
        c = self.confinement
        with suppress(ConfinementError):  # an agent that is not privileged has nothing to drop
            system.drop_bounding_set()
        if c.uids:
            os.setgroups([])
            os.setresgid(self.gid, self.gid, self.gid)
            os.setresuid(self.uid, self.uid, self.uid)
        system.drop_capabilities()
        system.prctl(system.PR_SET_NO_NEW_PRIVS, 1)
        if c.landlock:
            readable = ["/"] if c.namespaces else [*view.SYSTEM, "/proc/self", *c.readable]
            devices = [*(f"/dev/{name}" for name in DEVICES), *c.devices, "/dev/shm", "/dev/pts"]  # nosec B108  # within the view
            writable = [*c.writable, *(("/dev", "/proc") if c.namespaces else (*devices, "/proc/self"))]
            if not landlock.restrict(readable, writable, missing_ok=True):
                raise ConfinementError("this kernel has no Landlock, which this attempt is to be confined by")
        if c.seccomp:
            system.load_filter(seccomp.program(os.uname().machine, tracing=c.namespaces))
        # Last: from here on processes of the same uid may trace this one, which must have nothing more to give up.
        system.prctl(system.PR_SET_DUMPABLE, 1)


def _namespaces_of(pid: int, kinds: Sequence[tuple[str, int]]) -> list[tuple[int, int]]:
    wanted = (*kinds, *(k for k in _KINDS if k not in kinds))
    return [(os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC), kind) for name, kind in wanted]


def _give(folder: Path, uid: int, gid: int) -> None:
    """Hands a folder and all in it over; links are not followed."""
    os.chown(folder, uid, gid, follow_symlinks=False)
    for base, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.chown(os.path.join(base, name), uid, gid, follow_symlinks=False)


def _reap_until(end: int) -> None:
    """Collects processes that ended until something is written to `end`; that its writer is gone is no reason to end."""
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    watched = [woken, end]
    while True:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        ready = select.select(watched, [], [])[0]
        if woken in ready:
            os.read(woken, 4096)
        if end in ready:
            if os.read(end, 1):
                return
            watched.remove(end)


def _close_all_but(*kept: int) -> None:
    for low, high in pairwise((2, *sorted(kept), os.sysconf("SC_OPEN_MAX") if sys.platform != "linux" else 1 << 20)):
        os.closerange(low + 1, high)
