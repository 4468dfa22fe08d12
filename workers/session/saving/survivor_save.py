"""A rank of the gang is gone, and this one is not: it saves the last finished step for all, so that no step is done again.

Possible where each rank holds the whole model and optimizer (DDP) and nothing of them has changed since the step boundary: a collective
that fails does so before the optimizer's step (`survivable`). What the other ranks have of their own is in their files, also that of the
dead one; what is on other machines comes by the object store (`peer_state`). The first rank that meets the failure saves, alone: its gang's
collectives do not work any more.

Holds: what is saved is exactly the state at a step boundary of all ranks, or nothing is. Keeping it possible costs less than `MOST_SHARE`
of a step, otherwise it is not kept. The agent ends the rank when the deadline of the release is over; a commit is whole or not there.
Never: acts for a failure of the program's own; saves over a newer attempt (the chain is fenced); tries where a failure is known too late.
"""

import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from trainhouse.checkpointing.errors import CheckpointError
from trainhouse.workers.launcher.ports import RankPaths
from trainhouse.workers.session.saving.own_state import OwnStateNotSavedError, OwnStates
from trainhouse.workers.session.saving.peer_state import Elsewhere, Others, unavailable_message
from trainhouse.workers.session.saving.survivable import why_not_survivable
from trainhouse.workers.session.saving.tracked_state import Tracked

MOST_SHARE = 0.01
TRY_AGAIN_STEPS = 1_000
# A save by all is not repeated by one when it is younger than this, or than twice what it cost.
YOUNG_S = 1.0
# What torch's backends say of a peer that is gone: gloo in words of sockets, nccl in its own.
_WORDS = ("closed by peer", "reset by peer", "broken pipe", "connection refused", "gloo", "nccl", "timed out waiting", "socket timeout")

SaveForAll = Callable[[dict[str, Any], list[dict[str, Any]], int], bool]


class Survival:
    """Of one rank. `folders`: those of all ranks of the gang, by rank; of ranks on other machines there are none, but `elsewhere`."""

    def __init__(self, rank: int, folders: Sequence[Path], save_for_all: SaveForAll, elsewhere: Elsewhere | None = None) -> None:
        self._rank = rank
        self._folders = folders
        self._others = Others(rank, folders, elsewhere)
        self._save_for_all = save_for_all
        self._tracked = Tracked()
        self._own: OwnStates | None = None
        self._changed = False
        self._step = -1
        self._counters: dict[str, Any] = {}
        self._was: list[int] = []
        self._warm = False
        self._cost_s = 0.0
        self._boundary_at = 0.0
        self._silent_until = 0
        self._done = False

    @property
    def possible(self) -> bool:
        """True if this rank holds the whole state, and has kept what the others would need of it at the last boundary."""
        return self._step >= 0

    def track(self, tracked: Tracked) -> None:
        """From now on, if each rank has the whole of it."""
        if len(self._folders) < 2 or not self._others.reachable:
            return
        why = why_not_survivable(tracked, len(self._folders))
        if why:
            if self._rank == 0:
                _say(f"should a rank die, those that are left cannot save for it: {why}")
            return
        self._tracked = tracked
        self._own = OwnStates(RankPaths(self._folders[self._rank]).own)
        for optimizer in tracked.optimizers:
            optimizer.register_step_pre_hook(self._stepping)

    def _stepping(self, *_: Any) -> None:
        self._changed = True

    def boundary(self, step: int, now: float) -> None:
        """All of `step` steps is finished, and nothing of the next one has begun."""
        if self._own is None:
            return
        took_s, self._boundary_at = now - self._boundary_at, now
        began_s = time.thread_time()
        self._step = -1
        if step < self._silent_until:
            return
        try:
            self._own.keep(step, self._tracked.of_this_rank())
        except OwnStateNotSavedError as why:
            self._give_up(str(why))
            return
        self._counters = {name: dict(part.state_dict()) for name, part in self._tracked.counters().items()}
        self._was = self._versions()
        self._changed = False
        self._step = step
        self._count(step, took_s, time.thread_time() - began_s)  # of the processor: on one that is too busy everything takes longer

    def _count(self, step: int, took_s: float, cost_s: float) -> None:
        """Keeps quiet for a while if this costs too much of a step."""
        if not self._warm:
            self._warm = True  # the first one pays for what is made once
            return
        self._cost_s = cost_s if self._cost_s == 0 else 0.9 * self._cost_s + 0.1 * cost_s
        if self._cost_s > MOST_SHARE * took_s:
            self._silent_until = step + TRY_AGAIN_STEPS
            self._cost_s = 0.0

    def rescue(self, error: BaseException, saved_s: float, save_cost_s: float) -> bool:
        """Saves for all if `error` says that a peer is gone. `saved_s`: how old the newest save is. Blocks. Whether it was saved."""
        if self._done or self._own is None or not lost_a_peer(error) or saved_s < max(YOUNG_S, 2 * save_cost_s):
            return False
        self._done = True
        if self._step < 0:
            _say(f"nothing is saved by the ranks that are left: keeping it possible cost more than {MOST_SHARE:.0%} of a step")
            return False
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the release gives time for this; its end is SIGKILL
        own = self._collected()
        if isinstance(own, str):
            if own:
                _say(f"no save of step {self._step} by the ranks that are left: {own}; training goes on from the newest checkpoint")
            return False
        state = self._tracked.shared() | self._counters
        saved = self._save_for_all(state, own, self._step)
        if saved:
            _say(f"a rank is gone; rank {self._rank} saved step {self._step} for all")
        return saved

    def _collected(self) -> list[dict[str, Any]] | str:
        """The own states of all ranks, if this one is to save them; else why not, which is empty if another one does."""
        why = self._why_not()
        if why:
            return why
        try:
            return self._others.own_states(self._step) if self._others.chosen(self._step) else ""
        except CheckpointError as error:
            return unavailable_message(error)

    def _why_not(self) -> str:
        if self._changed:
            return "the optimizer had begun its step"
        if self._versions() != self._was:
            return "the model has changed since"
        return ""

    def _versions(self) -> list[int]:
        """Returns the number of writes to each tensor of the model, as torch counts them."""
        return [t._version for model in self._tracked.models for t in (*model.parameters(), *model.buffers())]

    def _give_up(self, why: str) -> None:
        _say(f"should a rank die, those that are left cannot save for it: {why}")
        own, self._own = self._own, None
        if own is not None:
            own.close()


def lost_a_peer(error: BaseException) -> bool:
    """Returns whether an exception is a collective's word that another rank is gone."""
    seen: BaseException | None = error
    for _ in range(10):
        if seen is None:
            return False
        if isinstance(seen, torch.distributed.DistError):
            return True
        if isinstance(seen, RuntimeError) and any(word in str(seen).lower() for word in _WORDS):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
