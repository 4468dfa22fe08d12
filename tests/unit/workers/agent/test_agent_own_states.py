"""What ranks have of their own goes to the object store when their gang breaks over several nodes, and never before."""

from pathlib import Path

import pytest

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.waiting import until
from tests.unit.workers.agent.test_agent_core import Node, gang, release
from trainhouse.checkpointing.errors import ObjectStoreUnavailableError
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.s3 import S3ObjectStore
from trainhouse.events import GangAllocated, NodePlacement
from trainhouse.workers.agent.core import Action, AttemptKey, Terminate, UploadOwnStates
from trainhouse.workers.agent.ship.own_states import LONGEST_MS, OwnStatesUploader
from trainhouse.workers.own_states import NAMES, node_key, saver_key, sealed, sweep_left, unpacked

KEY = AttemptKey("j", 0)
WHERE = node_key("j", 0, "n1")


def over_two_nodes() -> GangAllocated:
    other = NodePlacement(node_id="n2", boot_id="b", address="127.0.0.1", first_rank=2, devices=("d8", "d9"))
    return gang().model_copy(update={"placements": (*gang().placements, other)})


def broken(allocation: GangAllocated, code: int | None = None) -> list[Action]:
    """What an agent does when one of two ranks ends."""
    node = Node()
    node.command(allocation)
    node.launch_ends()
    before = len(node.actions)
    node.rank_ends(KEY, 1, code)
    return node.actions[before:]


def test_a_rank_that_dies_of_a_gang_over_nodes_is_told_of() -> None:
    assert UploadOwnStates(KEY) in broken(over_two_nodes())
    assert UploadOwnStates(KEY) in broken(over_two_nodes(), 1)


@pytest.mark.parametrize("code", [0, 75, 76, 77])
def test_ends_that_nobody_saves_for_are_not(code: int) -> None:
    assert UploadOwnStates(KEY) not in broken(over_two_nodes(), code)


def test_ranks_on_one_node_read_each_others_files() -> None:
    assert UploadOwnStates(KEY) not in broken(gang())


def test_a_node_hears_from_the_release_that_a_rank_elsewhere_died() -> None:
    node = Node()
    node.command(over_two_nodes())
    node.launch_ends()
    assert UploadOwnStates(KEY) not in node.command(release())
    node = Node()
    node.command(over_two_nodes())
    node.launch_ends()
    actions = node.command(release().model_copy(update={"for_survivors": True}))
    assert actions.index(UploadOwnStates(KEY)) < actions.index(Terminate(KEY))


class Ranks:
    """Two ranks' folders, and what tells of them."""

    def __init__(self, folder: Path, store: MemoryObjectStore) -> None:
        self.store = store
        self.folders = [(rank, folder / f"rank-{rank}") for rank in (0, 1)]
        for _, path in self.folders:
            path.mkdir()
        self.teller = OwnStatesUploader("n1", lambda: store)

    def keep(self, rank: int, step: int, content: bytes) -> None:
        (self.folders[rank][1] / NAMES[step % 2]).write_bytes(sealed(step, content))

    def die(self, rank: int) -> None:
        (self.folders[rank][1] / "exit.json").write_text("{}")

    def told(self) -> list[tuple[int, bool, bytes | None]]:
        """Of each rank in the store: whether it is gone, and its state at step 4."""
        return [(left.rank, left.gone, left.at(4)) for left in unpacked(self.store.get(WHERE))]

    def forgotten(self, now_ms: int) -> None:
        def look() -> bool:
            self.teller.look(now_ms)
            return not self.teller._attempts

        until(look)

    def look_until(self, expected: list[tuple[int, bool, bytes | None]], now_ms: int = 1_000) -> None:
        clock = [now_ms]

        def look() -> bool:
            clock[0] += 100
            self.teller.look(clock[0])
            return bool(list(self.store.list(WHERE))) and self.told() == expected

        until(look)


def test_what_changes_is_told_again_until_all_are_gone(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, MemoryObjectStore())
    ranks.keep(0, 4, b"zero")
    ranks.keep(1, 3, b"behind")
    ranks.teller.look(0)
    ranks.teller.begin(KEY, ranks.folders, 0)
    ranks.die(0)
    ranks.look_until([(0, True, b"zero"), (1, False, None)])
    ranks.keep(1, 4, b"one")
    ranks.look_until([(0, True, b"zero"), (1, False, b"one")], 50_000)
    ranks.die(1)
    ranks.look_until([(0, True, b"zero"), (1, True, b"one")], 60_000)
    ranks.store.delete(WHERE)
    ranks.forgotten(70_000)
    ranks.teller.look(80_000)
    assert not list(ranks.store.list(WHERE)), "it is forgotten"
    ranks.teller.close()


def test_ranks_without_a_session_have_nothing_to_tell(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, MemoryObjectStore())
    ranks.die(0)
    ranks.teller.begin(KEY, ranks.folders, 0)
    assert not ranks.teller._attempts
    ranks.teller.close()


class Away(MemoryObjectStore):
    """Refuses until it is let."""

    away = True
    asked = 0

    def put(self, key: str, body: bytes | bytearray | memoryview) -> None:
        if self.away:
            self.asked += 1
            raise ObjectStoreUnavailableError("away")
        super().put(key, body)


def test_a_store_that_is_away_is_tried_again_but_not_for_ever(tmp_path: Path) -> None:
    store = Away()
    ranks = Ranks(tmp_path, store)
    ranks.keep(0, 4, b"zero")
    ranks.teller.begin(KEY, ranks.folders, 0)
    ranks.teller.look(0)
    for now_ms in range(50, 1_000, 50):
        until(lambda: (sending := ranks.teller._attempts[KEY].sending) is None or sending.done())
        ranks.teller.look(now_ms)
    assert store.asked == 1, "not as fast as it refuses"
    store.away = False
    ranks.look_until([(0, False, b"zero"), (1, False, None)])
    ranks.forgotten(LONGEST_MS)
    ranks.teller.close()


def test_an_address_that_is_none_does_not_end_the_agent(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, MemoryObjectStore())
    ranks.teller = OwnStatesUploader("n1", lambda: S3ObjectStore(StoreSettings(endpoint="nowhere")))
    ranks.keep(0, 4, b"zero")
    ranks.teller.begin(KEY, ranks.folders, 0)
    ranks.teller.look(0)
    until(lambda: ranks.teller._attempts[KEY].sending.done())  # type: ignore[union-attr]
    ranks.forgotten(LONGEST_MS)
    ranks.teller.close()


def test_what_a_job_without_another_attempt_left_goes_when_it_is_old() -> None:
    now_s = [0.0]
    objects = MemoryObjectStore(lambda: now_s[0])
    for key in (WHERE, saver_key("j", 0, 7), "jobs/j/commits/0000000001", "jobs/j/tags/own"):
        objects.put(key, b"x")
    now_s[0] = 3600
    objects.put(node_key("young", 3, "n1"), b"x")
    assert sweep_left(objects, 3600) == 0
    now_s[0] = 3601
    assert sweep_left(objects, 3600) == 2
    assert [found.key for found in objects.list("")] == ["jobs/j/commits/0000000001", "jobs/j/tags/own", node_key("young", 3, "n1")]
