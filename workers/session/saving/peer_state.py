"""State of the other ranks of a broken gang: from their files on this machine, from the object store for those on others.

Each machine's agent puts there what its ranks have left when it hears that the gang is broken (`workers/own_states.py`); a machine that is
gone puts nothing, and then nothing can be saved.

Holds: the wait is bounded. One rank of a gang at most collects for one step. Never: collective; asks nothing of a rank.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainhouse.checkpointing.chain.chunks import in_threads
from trainhouse.checkpointing.errors import CheckpointError
from trainhouse.checkpointing.stores.object_store import ObjectStore, get_or_none
from trainhouse.workers.launcher.ports import RankPaths
from trainhouse.workers.own_states import Left, job_prefix, nodes_prefix, read_left, saver_key, unpacked
from trainhouse.workers.session.saving.own_state import own_of

PEER_GONE_S = 5.0
ELSEWHERE_S = 10.0
LOOK_S = 0.01
LOOK_ELSEWHERE_S = 0.1
THREADS = 8


@dataclass(frozen=True)
class Missing:
    """An obstacle to the save; `final`: one that stays."""

    why: str
    final: bool = False


class Elsewhere:
    """The other machines of one attempt, as the object store shows them. All methods block; they raise CheckpointError."""

    def __init__(self, objects: ObjectStore, job_id: str, epoch: int) -> None:
        self._objects = objects
        self._job_id = job_id
        self._epoch = epoch

    def chosen(self, rank: int, step: int) -> bool:
        """Returns whether this rank is the one that saves `step` for all: the first that asks is."""
        return self._objects.put_if_absent(saver_key(self._job_id, self._epoch, step), f"rank {rank}, process {os.getpid()}".encode())

    def left(self) -> list[Left]:
        """Returns the remains of the ranks of all machines, as far as they are there."""
        keys = [found.key for found in self._objects.list(nodes_prefix(self._job_id, self._epoch))]
        bodies = in_threads(lambda key: get_or_none(self._objects, key), keys, THREADS)
        return [left for body in bodies if body is not None for left in unpacked(body)]

    def forget_older(self) -> None:
        """Removes what earlier attempts left there: they cannot commit any more."""
        mine = nodes_prefix(self._job_id, self._epoch).removesuffix("nodes/")
        older = [found.key for found in self._objects.list(job_prefix(self._job_id)) if found.key < mine]
        for key in older:
            self._objects.delete(key)


class Others:
    """The ranks of this gang, by the folders that they have, or would have, on this machine."""

    def __init__(self, rank: int, folders: Sequence[Path], elsewhere: Elsewhere | None) -> None:
        self._rank = rank
        self._folders = folders
        self._elsewhere = elsewhere
        self._found: dict[int, Left] = {}

    @property
    def reachable(self) -> bool:
        """True if what all of them leave could be had at all."""
        return self._elsewhere is not None or self._all_here

    @property
    def _all_here(self) -> bool:
        return all(folder.is_dir() for folder in self._folders)

    def _shared(self) -> Path:
        """The one folder on this machine that each of its ranks may write to and finds by itself."""
        return RankPaths(next((folder for folder in self._folders if folder.is_dir()), self._folders[self._rank])).own

    def chosen(self, step: int) -> bool:
        """Returns whether this rank saves `step` for all. Blocks on the store for other machines. Raises CheckpointError."""
        try:
            os.close(os.open(self._shared() / f"saves-{step}-for-all", os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            return False
        return self._all_here or (self._elsewhere is not None and self._elsewhere.chosen(self._rank, step))

    def own_states(self, step: int) -> list[dict[str, Any]] | str:
        """By rank, what each had of its own when `step` steps were finished; else why not. Blocks. Raises CheckpointError."""
        wait_s, look_s = (PEER_GONE_S, LOOK_S) if self._all_here else (ELSEWHERE_S, LOOK_ELSEWHERE_S)
        deadline = time.monotonic() + wait_s
        while True:
            self._look(step)
            found = judged(self._found, self._rank, len(self._folders), step)
            if not isinstance(found, Missing):
                return found
            if found.final:
                return found.why
            if time.monotonic() > deadline:
                return f"{found.why} after {wait_s:g} s"
            time.sleep(look_s)

    def _look(self, step: int) -> None:
        """Looks again at whoever has not left what is wanted, or is not known to be gone."""
        here = [rank for rank, folder in enumerate(self._folders) if folder.is_dir()]
        lefts = [read_left(rank, self._folders[rank]) for rank in here if not self._settled(rank, step)]
        if self._elsewhere is not None and len(here) < len(self._folders):
            there = set(range(len(self._folders))) - set(here)
            if not all(self._settled(rank, step) for rank in there) or not any(left.gone for left in self._found.values()):
                lefts += [left for left in self._elsewhere.left() if left.rank in there]
        self._found |= {left.rank: left for left in lefts}

    def _settled(self, rank: int, step: int) -> bool:
        """Nothing new can come of it, or nothing new is needed."""
        left = self._found.get(rank)
        return left is not None and (left.gone or (left.at(step) is not None and any(found.gone for found in self._found.values())))


def judged(found: dict[int, Left], me: int, world_size: int, step: int) -> list[dict[str, Any]] | Missing:
    """The own states of all ranks at `step`, if they are there and some other rank is gone. Pure."""
    states = {rank: own_of(found[rank], step) if rank in found else None for rank in range(world_size)}
    missing = [rank for rank, state in states.items() if state is None]
    ended = [rank for rank in missing if rank in found and found[rank].gone]
    if ended:
        return Missing(f"rank {ended[0]} is gone, and what it had of its own at step {step} was not kept", final=True)
    for rank in missing:
        newest = found[rank].newest if rank in found else step
        if newest is None or not step - 1 <= newest <= step:
            return Missing(f"rank {rank} does not keep what it has of its own at step {step}", final=True)
    if not any(left.gone for rank, left in found.items() if rank != me):
        return Missing("no rank of the gang is gone")
    if missing and missing[0] in found:
        return Missing(f"rank {missing[0]} has not come to step {step}")
    if missing:
        return Missing(f"what rank {missing[0]} has of its own is on another machine, which has not told it")
    return [state for state in states.values() if state is not None]


def unavailable_message(error: CheckpointError) -> str:
    """Message for own states of other machines that cannot be fetched."""
    return f"what ranks on other machines have of their own cannot be asked for: {error}"
