"""Seals the outputs of attempts whose ranks have all exited with code 0: notes that of this node, and makes them on the node of rank 0.

Holds: the loop never waits for the store: threads do, and what was not done is tried again after a pause, RETRY_MS at first and
MOST_PAUSE_MS at most, for as long as the attempt is in its phase; that the ranks of this node ended is noted once. Whatever is done twice,
after a restart of the agent too, gives the same objects. The names and the project are those of the allocation, whatever ranks wrote.
Never: publishes; the job's scheduler asks intake for that.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from trainhouse.events import GangAllocated
from trainhouse.events.model.dataset import DataShard
from trainhouse.workers.agent.core import AttemptKey, Sealed
from trainhouse.workers.agent.periodic import due
from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.outputs.sealing import FileStore, all_ended, note_ended, purposes_of, seal, with_bounded_fields

RETRY_MS: Final = 500
MOST_PAUSE_MS: Final = 15_000
THREADS: Final = 2
log = structlog.get_logger(__name__)


@dataclass
class _Sealing:
    """One attempt. `again_at_ms`: the store was away, or other nodes have not ended; after `pause_ms` it is looked at again. `noted`: the
    store has it that this node's ranks ended. `copied`: shards of each output that are copied by now."""

    allocation: GangAllocated
    working: "Future[Sealed | None] | None" = None
    again_at_ms: int = 0
    copied: dict[str, set[DataShard]] = field(default_factory=dict)
    pause_ms: int = 0
    noted: bool = False


class OutputSealer:
    """Of one node. All methods return at once and belong to one thread; `make_store` is called in the threads that work, each of which
    keeps one shard in files without a name in `folder`."""

    def __init__(self, node_id: str, make_store: Callable[[], FileStore], folder: Path | None = None) -> None:
        self._node_id = node_id
        self._make_store = make_store
        self._store: FileStore | None = None
        self._folder = folder
        self._attempts: dict[AttemptKey, _Sealing] = {}
        self._workers = ThreadPoolExecutor(THREADS, thread_name_prefix="outputs")

    def begin(self, allocation: GangAllocated) -> None:
        """From now on its part of this attempt's outputs is done."""
        self._attempts.setdefault(AttemptKey(str(allocation.job_id), int(allocation.epoch)), _Sealing(allocation))

    def keep(self, keys: set[AttemptKey]) -> None:
        """Forgets all attempts but these."""
        for key in self._attempts.keys() - keys:
            del self._attempts[key]

    def look(self, now_ms: int) -> Iterator[Sealed]:
        """Yields the attempts that are done by now."""
        for key, sealing in list(self._attempts.items()):
            if sealing.working is not None and sealing.working.done():
                done, sealing.working = sealing.working.result(), None
                sealing.pause_ms = min(MOST_PAUSE_MS, 2 * sealing.pause_ms or RETRY_MS)
                sealing.again_at_ms = now_ms + sealing.pause_ms
                if done is not None:
                    del self._attempts[key]
                    yield done
            elif sealing.working is None and due(sealing.again_at_ms, now_ms, sealing.pause_ms or RETRY_MS):
                sealing.working = self._workers.submit(self._try, key, sealing)

    def close(self) -> None:
        """Waits for nothing."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _try(self, key: AttemptKey, sealing: _Sealing) -> Sealed | None:
        """Does this node's part; returns None where it is to be tried again."""
        allocation = sealing.allocation
        try:
            self._store = objects = self._store or self._make_store()
            if not sealing.noted:
                note_ended(objects, key.job_id, key.epoch, self._node_id)
                sealing.noted = True
            first = next(part for part in allocation.placements if 0 in part.ranks)
            if first.node_id != self._node_id:
                return Sealed(key)
            if not all_ended(objects, key.job_id, key.epoch, [str(part.node_id) for part in allocation.placements]):
                return None
            spec = allocation.spec
            purposes = purposes_of(objects, spec)
            versions = with_bounded_fields(
                seal(
                    objects,
                    key.job_id,
                    spec.project,
                    output,
                    key.epoch,
                    purposes=purposes,
                    folder=self._folder,
                    copied=sealing.copied.setdefault(output, set()),
                )
                for output in spec.outputs
            )
        except InvalidDataError as error:
            return Sealed(key, makes=True, failure=str(error))
        except Exception as error:  # the store is away, or refuses what it took before: the attempt waits, and can be cancelled
            log.warning("the outputs of an attempt are not made yet", attempt=str(key), error=str(error))
            return None
        log.info("the outputs of an attempt are in the store", attempt=str(key), outputs=[str(version.name) for version in versions])
        return Sealed(key, makes=True, versions=versions)
