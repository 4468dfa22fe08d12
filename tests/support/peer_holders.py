"""Holders of chunks as nodes have them: the real process of each, its record in a store, and access to it as an agent gives it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.waiting import until
from trainhouse.checkpointing.lease.access_rule import Lease
from trainhouse.checkpointing.lease.agent_peers import grant_of, holder_of
from trainhouse.checkpointing.peer_memory.holder_choice import Place
from trainhouse.checkpointing.peer_memory.holder_records import HolderRecords
from trainhouse.checkpointing.peer_memory.peers import Grant
from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.workers.agent.peer_memory.holder_desk import HolderDesk
from trainhouse.workers.agent.peer_memory.holder_keeper import HolderKeeper, HolderSettings

POOL = "pool"
BUDGET_BYTES = 256 * 2**20


@contextmanager
def holding(objects: ObjectStore, node_id: str, rack: str = "", budget_bytes: int = BUDGET_BYTES) -> Iterator[HolderKeeper]:
    """A node that holds chunks, from when its record is there."""
    place, records = Place(node_id, rack), HolderRecords(objects, POOL)
    keeper = HolderKeeper(place, records, HolderSettings("127.0.0.1", 0, budget_bytes))
    keeper.start()
    try:
        until(lambda: records.read(place) is not None, "a holder's record", every_s=0.02)
        yield keeper
    finally:
        keeper.close()


class DeskPeers:
    """Access of one attempt's rank on one node. `own`: its node."""

    def __init__(self, objects: ObjectStore, own: Place, lease: Lease) -> None:
        self._desk = HolderDesk(own, HolderRecords(objects, POOL))
        self._lease = lease

    def holder(self) -> Grant | str | None:
        return holder_of(self._desk.access(self._lease, ""))

    def reach(self, node_id: str) -> Grant | str:
        return grant_of(self._desk.access(self._lease, node_id))
