"""Access of this node's ranks to holders of chunks: chooses the holder, and makes tokens.

Holds: a token is for one job's chunks, and for reading those of the job that it resumes from, once that is known to be of the same project.
It ends after TOKEN_S. Where the holders are, or that it cannot be read, is asked of the store at most every LOOK_S; while no other node of
the pool is one, and none is named, more and more rarely, up to LONGEST_LOOK_S.
Never: raises; the answer has the reason, and the rank uses the store.
"""

import threading
import time
from collections.abc import Callable

import structlog

from trainhouse.checkpointing.errors import CheckpointError
from trainhouse.checkpointing.lease.access_rule import Lease
from trainhouse.checkpointing.lease.wire import HolderReply
from trainhouse.checkpointing.peer_memory.access_token import Access, token_of
from trainhouse.checkpointing.peer_memory.holder_choice import Place, chosen
from trainhouse.checkpointing.peer_memory.holder_records import HolderRecords

TOKEN_S = 900.0
LOOK_S = 10.0
LONGEST_LOOK_S = 640.0
NO_HOLDER = "no other node of the pool holds checkpoints in memory (TRAINHOUSE_AGENT_PEER_MEMORY_GIB)"
GONE = "it holds nothing in memory any more"
log = structlog.get_logger(__name__)


class HolderDesk:
    """Of one agent. Safe to share by threads."""

    def __init__(
        self,
        own: Place,
        records: HolderRecords,
        wall_s: Callable[[], float] = time.time,
        steady_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._own = own
        self._records = records
        self._wall_s = wall_s
        self._lock = threading.Lock()
        self._places: list[Place] = []
        self._steady_s = steady_s
        self._looked_s: float | None = None
        self._is_none = False
        self._none_for_s = LOOK_S
        self._error: CheckpointError | None = None

    def access(self, lease: Lease, node_id: str) -> HolderReply:
        """Access to this holder; for an empty name to the one of this node's chunks. Blocks on the store."""
        try:
            with self._lock:
                self._look(LOOK_S if node_id else self._none_for_s)
                places = list(self._places)
            place = next((p for p in places if p.node_id == node_id), None) if node_id else chosen(self._own, places)
            if place is None:
                return HolderReply(why=GONE) if node_id else HolderReply(kind="none", why=NO_HOLDER)
            record = self._records.read(place)
        except CheckpointError as error:
            return HolderReply(why=f"where holders are cannot be read: {error}")
        except Exception as error:
            log.exception("no access to holders of chunks")
            return HolderReply(why=f"where holders are cannot be read: {type(error).__name__}: {error}")
        if record is None:
            return HolderReply(why=GONE)
        reads = (lease.job_id, *([lease.resumes] if lease.resumes else []))
        access = Access(lease.job_id, lease.epoch, reads, writes=not node_id, until_s=self._wall_s() + TOKEN_S)
        token = token_of(record.secret, access)
        return HolderReply(node_id=place.node_id, address=record.address, port=record.port, token=token)

    def _look(self, after_s: float) -> None:
        now_s = self._steady_s()
        if self._looked_s is None or now_s - self._looked_s > after_s:
            self._looked_s, self._error = now_s, None
            try:
                self._places = self._records.places()
                before, self._is_none = self._is_none, chosen(self._own, self._places) is None
                self._none_for_s = min(2 * self._none_for_s, LONGEST_LOOK_S) if before and self._is_none else LOOK_S
            except CheckpointError as error:
                self._error = error
                self._none_for_s = LOOK_S
        if self._error is not None:
            raise self._error
