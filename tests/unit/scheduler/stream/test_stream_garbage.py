"""The collector of a long-lived process: it looks at young objects alone, and at everything only when twice as much is there."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from trainhouse.scheduler.stream.gc_tuning import COUNT_EVERY, NEVER, Settling


class Node:
    """One end of a cycle."""

    other: "Node | None" = None


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def cycle() -> "tuple[Node, weakref.ref[Node]]":
    one, other = Node(), Node()
    one.other, other.other = other, one
    return one, weakref.ref(one)


def test_a_young_cycle_goes_at_the_next_step() -> None:
    settling = Settling(least=10**9)
    settling.step()
    one, seen = cycle()
    del one
    settling.step()
    assert seen() is None and settling.full_looks == 0


def test_a_cycle_that_dies_later_goes_when_twice_as_much_is_there() -> None:
    settling = Settling(least=0)
    settling.step()
    assert settling.full_looks == 1
    one, seen = cycle()
    settling.step()
    del one
    more: list[list[int]] = []
    for _ in range(2 * COUNT_EVERY):
        settling.step()
    assert settling.full_looks == 1 and seen() is not None, "a state that does not grow is never looked at as a whole"
    more.extend([] for _ in range(2 * gc.get_freeze_count()))
    for _ in range(COUNT_EVERY):
        settling.step()
    assert settling.full_looks == 2 and seen() is None


def test_while_it_runs_nothing_else_looks_at_everything_and_afterwards_all_is_as_before() -> None:
    async def tale() -> None:
        before = gc.get_threshold()
        task = asyncio.create_task(Settling(least=10**9).run())
        await asyncio.sleep(0)
        assert gc.get_threshold()[2] == NEVER and gc.get_freeze_count() > 0
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert gc.get_threshold() == before and gc.get_freeze_count() == 0

    asyncio.run(tale())
