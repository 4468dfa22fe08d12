"""Keeps the garbage collector from stopping a process that holds a large state.

A full collection looks at every object: 0.2 s for a fleet of 1,250 nodes, and Python starts one whenever the state has grown by a quarter.
What has lived for a few seconds lives long here, and reference counts free it when a record replaces it; only cycles need the collector.

Holds: what survives is set aside every few seconds, so that a collection looks at young objects alone; when twice as much is set aside
as was alive at the last full look, everything is looked at once: cycles that died later are bounded by that.
"""

import asyncio
import gc

from trainhouse.scheduler.stream.cancellation import still_wanted

SETTLE_EVERY_S = 2.0
# Counting what is set aside walks through it, so it is done seldom.
COUNT_EVERY = 15
YOUNG, MIDDLE = 10_000, 20
# `Settling` alone starts a full collection.
NEVER = 1_000_000_000
LEAST = 200_000
GROWTH = 2


class Settling:
    """One process's collector. `full_looks` counts how often everything was looked at."""

    def __init__(self, least: int = LEAST) -> None:
        self.full_looks = 0
        self._least = least
        # What a process that forked this one set aside is code, looked at by it: a look here would write to each of the pages they share.
        self._alive = gc.get_freeze_count()
        self._steps = 0

    async def run(self) -> None:
        """Until cancelled; the collector is as it was afterwards."""
        before = gc.get_threshold()
        gc.set_threshold(YOUNG, MIDDLE, NEVER)
        try:
            while True:
                still_wanted()
                self.step()
                await asyncio.sleep(SETTLE_EVERY_S)
        finally:
            gc.unfreeze()
            gc.set_threshold(*before)

    def step(self) -> None:
        """Sets aside what survives a look at the young; looks at everything where that has grown too much."""
        gc.collect(1)
        gc.freeze()
        if self._steps % COUNT_EVERY == 0 and gc.get_freeze_count() > max(self._least, GROWTH * self._alive):
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            self.full_looks += 1
            self._alive = gc.get_freeze_count()
        self._steps += 1
