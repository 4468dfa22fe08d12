"""Destination of a rank's stdout and stderr: straight into files, or through a masker when the job names secrets.

Holds: files are opened to append, so nothing is overwritten. Without secrets the keeper is not in the way: output survives its death.
"""

import fcntl
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from trainhouse.workers.launcher.masker import Masker
from trainhouse.workers.launcher.ports import RankPaths
from trainhouse.workers.launcher.rotated import Rotated

PIECE = 1 << 16


@dataclass
class Pump:
    """One pipe from a rank, masked into a file."""

    source: int
    target: int
    masker: Masker
    rotated: Rotated
    done: bool = False

    def pump(self) -> bool:
        """Move what there is, up to one piece; False at the end. Blocks only on the file."""
        if self.done:
            return False
        try:
            piece = os.read(self.source, PIECE)
        except BlockingIOError:
            return True
        self.rotated.look(self.masker)
        _write(self.target, self.masker.feed(piece) if piece else self.masker.flush())
        self.done = not piece
        return bool(piece)

    def drain(self) -> None:
        """Move all that is in the pipe by now."""
        while not self.done:
            try:
                piece = os.read(self.source, PIECE)
            except BlockingIOError:
                break
            self.rotated.look(self.masker)
            _write(self.target, self.masker.feed(piece))
            if not piece:
                break

    def close(self) -> None:
        self.drain()
        _write(self.target, self.masker.flush())
        os.close(self.source)
        os.close(self.target)


@dataclass
class RankOutput:
    """`stdout` and `stderr` are the descriptors that the rank is to get as 1 and 2."""

    stdout: int
    stderr: int
    pumps: list[Pump] = field(default_factory=list)

    @classmethod
    def open(cls, paths: RankPaths, secrets: Sequence[str], secrets_dir: str = "") -> "RankOutput":
        files = [os.open(p, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644) for p in (paths.stdout, paths.stderr)]
        if not secrets:
            return cls(files[0], files[1])
        pumps, writers = [], []
        for target in files:
            reader, writer = os.pipe2(os.O_CLOEXEC)
            fcntl.fcntl(reader, fcntl.F_SETFL, fcntl.fcntl(reader, fcntl.F_GETFL) | os.O_NONBLOCK)
            pumps.append(Pump(reader, target, Masker(secrets), Rotated(secrets_dir)))
            writers.append(writer)
        return cls(writers[0], writers[1], pumps)

    def close_writers(self) -> None:
        """After the fork: the rank has them now."""
        os.close(self.stdout)
        os.close(self.stderr)

    def drain(self) -> None:
        for pump in self.pumps:
            pump.drain()

    def close(self) -> None:
        for pump in self.pumps:
            pump.close()


def _write(fd: int, data: bytes) -> None:
    """Write all; on a full disk the rest of this piece is lost rather than the rank."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except OSError as error:
        print(f"keeper: {len(view)} bytes of output are lost: {error}", file=sys.stderr, flush=True)
