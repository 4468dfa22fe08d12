"""Desk of an agent for access to holders: how often it asks the store where they are."""

from collections.abc import Iterator

from tests.support.fakes.memory_store import MemoryObjectStore
from trainhouse.checkpointing.errors import ObjectStoreUnavailableError
from trainhouse.checkpointing.lease.access_rule import Lease
from trainhouse.checkpointing.peer_memory.holder_choice import Place
from trainhouse.checkpointing.peer_memory.holder_records import HolderRecord, HolderRecords
from trainhouse.checkpointing.stores.object_store import ObjectStat
from trainhouse.workers.agent.peer_memory.holder_desk import LONGEST_LOOK_S, LOOK_S, HolderDesk


class Unlisted(MemoryObjectStore):
    """A store whose LIST does not answer."""

    lists = 0

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectStat]:
        self.lists += 1
        raise ObjectStoreUnavailableError("LIST does not answer")


def test_a_store_that_does_not_list_is_not_asked_by_each_rank_anew() -> None:
    store = Unlisted()
    desk = HolderDesk(Place("a"), HolderRecords(store, "pool"))
    replies = [desk.access(Lease("j", 1), "") for _ in range(8)]
    assert store.lists == 1
    assert {reply.get("why") for reply in replies} == {"where holders are cannot be read: LIST does not answer"}


class Counted(MemoryObjectStore):
    """A store that counts its LISTs."""

    lists = 0

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectStat]:
        self.lists += 1
        return super().list(prefix, start_after)


def test_a_pool_without_holders_is_asked_more_and_more_rarely_and_a_first_one_is_noticed() -> None:
    store, now = Counted(), [0.0]
    records = HolderRecords(store, "pool")
    desk = HolderDesk(Place("a"), records, steady_s=lambda: now[0])
    records.write(Place("a"), HolderRecord("10.0.0.1", 1, "own"))
    for second in range(24 * 60):  # a save each minute of a day
        now[0] = second * 60.0
        assert desk.access(Lease("j", 1), "").get("kind") == "none"
    assert store.lists < 24 * 3600 / LONGEST_LOOK_S + 10
    records.write(Place("b"), HolderRecord("10.0.0.2", 2, "other"))
    now[0] += LONGEST_LOOK_S + 1
    assert desk.access(Lease("j", 1), "")["node_id"] == "b"
    before = store.lists
    now[0] += LOOK_S + 1
    assert desk.access(Lease("j", 1), "")["node_id"] == "b" and store.lists == before + 1


def test_a_holder_that_a_manifest_names_is_looked_for_at_once() -> None:
    store, now = MemoryObjectStore(), [0.0]
    records = HolderRecords(store, "pool")
    desk = HolderDesk(Place("a"), records, steady_s=lambda: now[0])
    for _ in range(9):
        now[0] += LONGEST_LOOK_S + 1
        desk.access(Lease("j", 1), "")
    records.write(Place("b"), HolderRecord("10.0.0.2", 2, "other"))
    now[0] += LOOK_S + 1
    assert desk.access(Lease("j", 1), "b")["node_id"] == "b"
