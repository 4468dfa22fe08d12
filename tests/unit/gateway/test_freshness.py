"""How a wait for the projections ends where no broker answers."""

import asyncio
import socket
from collections.abc import Iterable
from typing import cast

import pytest

from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.settings import KafkaSettings
from trainhouse.gateway.queries import freshness
from trainhouse.gateway.queries.freshness import Freshness
from trainhouse.gateway.queries.sql_reader import SqlReader


class NoRows:
    """A reader of projections that hold nothing."""

    async def rows(self, *arguments: object) -> list[dict[str, object]]:
        return []


class CountedTries(Freshness):
    """Notes the deadline of each question to the brokers."""

    def __init__(self, settings: KafkaSettings) -> None:
        super().__init__(settings, cast(SqlReader, NoRows()), 1.0)
        self.deadlines_s: list[float] = []

    async def _ends_by(self, topics: Iterable[str], deadline_s: float) -> dict[tuple[str, int], int]:
        self.deadlines_s.append(deadline_s)
        return await super()._ends_by(topics, deadline_s)


@pytest.mark.parametrize("partitions", [{}, {"jobs": [0]}])
def test_brokers_that_are_away_are_waited_for_once(partitions: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freshness, "ANSWER_S", 1.0)
    monkeypatch.setattr(freshness, "LATE_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]  # closed below: no broker is there
    waits = CountedTries(KafkaSettings(bootstrap=f"127.0.0.1:{port}"))
    waits._partitions = dict(partitions)
    with pytest.raises(BusUnavailableError):
        asyncio.run(waits.reached("jobs"))
    assert len(waits.deadlines_s) == 1


class FencedOnce(CountedTries):
    """Whose first client a new leader fences."""

    async def _ends_by(self, topics: Iterable[str], deadline_s: float) -> dict[tuple[str, int], int]:
        self.deadlines_s.append(deadline_s)
        if len(self.deadlines_s) == 1:
            raise BusUnavailableError("fenced")
        return {}


def test_a_new_client_asks_again_within_the_same_time() -> None:
    waits = FencedOnce(KafkaSettings(bootstrap="127.0.0.1:1"))
    asyncio.run(waits.reached("jobs"))
    assert len(waits.deadlines_s) == 2
    assert len(set(waits.deadlines_s)) == 1


def test_no_read_waits_for_ever_when_the_question_of_another_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freshness, "ANSWER_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]  # closed below: no broker is there
    waits = Freshness(KafkaSettings(bootstrap=f"127.0.0.1:{port}"), cast(SqlReader, NoRows()), 1.0)
    waits._partitions = {"jobs": [0]}

    async def read(begins: asyncio.Event) -> None:
        await begins.wait()
        await waits.reached("jobs")

    async def several() -> list[BaseException | None]:
        begun = [asyncio.Event() for _ in range(4)]
        reads = [asyncio.create_task(read(one)) for one in begun]
        for one in begun:  # each asks while those before it still wait
            one.set()
            await asyncio.sleep(0.3)
        ended, waiting = await asyncio.wait(reads, timeout=30)
        for one_read in waiting:
            one_read.cancel()
        assert not waiting, f"{len(waiting)} of {len(reads)} reads wait for ever"
        return [one_read.exception() for one_read in ended]

    assert all(isinstance(error, BusUnavailableError) for error in asyncio.run(several()))
