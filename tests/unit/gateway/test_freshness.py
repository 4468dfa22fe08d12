"""How a wait for the projections ends where no broker answers."""

import asyncio
import socket
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
