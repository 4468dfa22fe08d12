"""Per-rank states at the last two step boundaries, as bytes: the files, and how they reach ranks on other machines.

A rank keeps them in two files (`session/saving/own_state.py`). When its gang breaks, the agent of its machine puts those of all its ranks
into one object of the store, from where the rank that saves for all takes them. A gang that trains costs nothing of that.

Holds: importing it imports no torch. A state is whole or not there: its header has a checksum. Sizes are bounded by what ranks keep.
Never: looks into a state; it is pickled by and for the ranks of one job.
"""

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import orjson

from trainhouse.checkpointing.chain.chunks import GRACE_S
from trainhouse.checkpointing.errors import DamagedError
from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.workers.launcher.ports import RankPaths
from trainhouse.workers.untrusted import read_plain

HEADER = struct.Struct("<8sQQI")
MAGIC = b"thouse01"
MAX_BYTES = 4 * 2**20
OWN = "own"
NAMES = ("own-state-0", "own-state-1")
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class Left:
    """Remains of one rank: its states as they are in its files, and whether it is gone, so that nothing newer will come."""

    rank: int
    gone: bool
    states: tuple[bytes, ...]

    def at(self, step: int) -> bytes | None:
        """Returns the state kept when `step` steps were finished; None if it is not there whole."""
        found = (content_of(raw, step) for raw in self.states)
        return next((content for content in found if content is not None), None)

    @property
    def newest(self) -> int | None:
        """The last step boundary of which anything is there."""
        steps = [HEADER.unpack_from(raw)[1] for raw in self.states if len(raw) >= HEADER.size]
        return max(steps, default=None)


def sealed(step: int, content: bytes) -> bytes:
    """One state as it stands in a file."""
    return HEADER.pack(MAGIC, step, len(content), zlib.crc32(content)) + content


def content_of(raw: bytes, step: int) -> bytes | None:
    """The state in `raw` if it is that of `step`, and whole."""
    if len(raw) < HEADER.size:
        return None
    magic, of_step, size_bytes, checksum = HEADER.unpack_from(raw)
    content = raw[HEADER.size : HEADER.size + size_bytes]
    if magic != MAGIC or of_step != step or len(content) != size_bytes or zlib.crc32(content) != checksum:
        return None
    return content


def read_left(rank: int, folder: Path) -> Left:
    """Reads the folder of a rank on this machine."""
    gone = RankPaths(folder).exit.exists()  # first: of a rank that is gone the files do not change any more
    return Left(rank, gone, tuple(_bytes_of(RankPaths(folder).own / name) for name in NAMES))


def stamp_of(folder: Path) -> tuple[tuple[int, int], ...]:
    """Changes whenever `read_left` may give something else. Cheap."""
    return tuple(_stamp(path) for path in (RankPaths(folder).exit, *(RankPaths(folder).own / name for name in NAMES)))


def packed(ranks: Iterable[Left]) -> bytes:
    """Packs the own states of one machine's ranks into one object."""
    every = list(ranks)
    head = orjson.dumps([{"rank": left.rank, "gone": left.gone, "sizes": [len(s) for s in left.states]} for left in every])
    return b"".join((_LENGTH.pack(len(head)), head, *(state for left in every for state in left.states)))


def unpacked(body: bytes) -> list[Left]:
    """The inverse of `packed`. Raises DamagedError."""
    try:
        (length,) = _LENGTH.unpack_from(body)
        at = _LENGTH.size + length
        found = []
        for entry in orjson.loads(body[_LENGTH.size : at]):
            ends = [at + sum(entry["sizes"][:n]) for n in range(len(entry["sizes"]) + 1)]
            found.append(Left(int(entry["rank"]), bool(entry["gone"]), tuple(body[a:b] for a, b in pairwise(ends))))
            at = ends[-1]
    except (struct.error, ValueError, KeyError, TypeError) as error:
        raise DamagedError(f"no packed states of ranks: {error}") from error
    return found


def sweep_left(objects: ObjectStore, grace_s: float = GRACE_S) -> int:
    """Removes what attempts put there so long ago that none of them can still be saved: how many objects. Blocks long.

    A job's next attempt removes what the earlier ones left; this is for jobs that never had a next one.
    """
    old = [found.key for found in objects.list("jobs/") if found.key.split("/")[2:3] == [OWN] and found.age_s > grace_s]
    for key in old:
        objects.delete(key)
    return len(old)


def nodes_prefix(job_id: str, epoch: int) -> str:
    """Key prefix of an attempt's node objects."""
    return f"{epoch_prefix(job_id, epoch)}nodes/"


def node_key(job_id: str, epoch: int, node_id: str) -> str:
    """Key of the object with one machine's own states."""
    return f"{nodes_prefix(job_id, epoch)}{node_id}"


def saver_key(job_id: str, epoch: int, step: int) -> str:
    """Key that names the one rank that saves `step` for all."""
    return f"{epoch_prefix(job_id, epoch)}savers/{step}"


def epoch_prefix(job_id: str, epoch: int) -> str:
    return f"{job_prefix(job_id)}{epoch:010d}/"


def job_prefix(job_id: str) -> str:
    return f"jobs/{job_id}/{OWN}/"


def _bytes_of(path: Path) -> bytes:
    try:
        return read_plain(path, HEADER.size + MAX_BYTES)
    except OSError:
        return b""


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return (0, 0)
    return (found.st_mtime_ns, found.st_size)
