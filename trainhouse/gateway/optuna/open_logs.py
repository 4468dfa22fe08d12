"""Logs that this gateway has open: the ones that were used last, within a bound of memory.

Holds: a log that is forgotten is read from the store again; one that something still waits for is not forgotten. One log is read whole at
a time.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.gateway.bus import Bus
from trainhouse.gateway.optuna.journal_log import logs_prefix
from trainhouse.gateway.optuna.open_log import OpenLog
from trainhouse.gateway.optuna.stored_segments import StoredSegments
from trainhouse.gateway.optuna.trial_fold import EndedTrial
from trainhouse.gateway.optuna.trial_runs import records

MOST_LOGS: Final = 1000
LISTED_S: Final = 60.0
MOST_BYTES: Final = 512 * 1024 * 1024
"""Of all logs in memory, beside the one that is being read: a full log fits in. One that is larger alone is kept while it is used."""
LINE_BYTES: Final = 512
"""What a line takes beside its text, with its share of an append."""


@dataclass
class OpenLogs:
    """All of one gateway."""

    objects: ObjectStore
    bus: Bus
    _logs: OrderedDict[tuple[str, str], OpenLog] = field(default_factory=OrderedDict)
    _loading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _sizes: dict[str, tuple[float, int]] = field(default_factory=dict)
    """By project that has a limit: when its logs were listed last, and their bytes."""

    def open(self, project: str, name: str) -> OpenLog:
        """The log of a project and name, whether there is something in it or not. Does not block."""
        key = project, name
        if key not in self._logs:
            stored = StoredSegments(self.objects, project, name)
            self._logs[key] = OpenLog(stored, partial(self._publish, project, name), self._alone)
        self._logs.move_to_end(key)
        self._forget()
        return self._logs[key]

    async def stored_bytes(self, project: str) -> int:
        """Bytes of all logs of a project, as the store had them within LISTED_S. Raises CheckpointError."""
        read_s, known = self._sizes.get(project, (float("-inf"), 0))
        if time.monotonic() - read_s >= LISTED_S:
            self._sizes[project] = time.monotonic(), known  # who comes meanwhile takes the figure before
            stats = self.objects.list(logs_prefix(project))
            known = await asyncio.to_thread(lambda: sum(stat.size_bytes for stat in stats))
            self._sizes[project] = time.monotonic(), known
        return known

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Lets one log be read at a time, so that many large ones which are asked for at once are not in memory together."""
        async with self._loading:
            await asyncio.sleep(0)  # the log that was read before is idle once its task has ended
            self._forget()
            yield

    def _forget(self) -> None:
        size_bytes = sum(map(_memory_bytes, self._logs.values()))
        for key in list(self._logs)[:-1]:
            if len(self._logs) <= MOST_LOGS and size_bytes <= MOST_BYTES:
                return
            if self._logs[key].idle:
                size_bytes -= _memory_bytes(self._logs.pop(key))

    async def _publish(self, project: str, name: str, ended: EndedTrial) -> None:
        sends = [self.bus.send(topic, event, event_id) for topic, event, event_id in records(project, name, ended)]
        # They go out in this order, and together: each is queued before the next one's task begins.
        await asyncio.gather(*sends)


def _memory_bytes(log: OpenLog) -> int:
    return log.state.size_bytes + LINE_BYTES * len(log.state.lines)
