"""A live stream over the real engine: what came before, what comes, and what is missed between two connections, each once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.gateway_world import World
from trainhouse.gateway.auth.roles import Principal, Role
from trainhouse.gateway.live.hub import KINDS, Hub
from trainhouse.gateway.live.messages import Place
from trainhouse.gateway.live.poller import Poller
from trainhouse.gateway.live.stream import JobStream
from trainhouse.gateway.queries.sql_reader import SqlReader
from trainhouse.projections.settings import ClickHouseSettings

JOB = "live-1"
ANA = Principal("ana", (Role.VIEWER,), ("vision",))
ENOUGH_S = 30.0
Told = tuple[str, str, Any]


@pytest.fixture(scope="module")
def world(gateway_world: World) -> World:
    gateway_world.submit(JOB, "vision")
    gateway_world.log(JOB, ["before 0", "before 1"])
    gateway_world.points(JOB, range(3))
    return gateway_world


class Live:
    """A hub, its poller, and streams on them."""

    def __init__(self, reader: SqlReader) -> None:
        self.hub = Hub(10, 100)
        self.poller = Poller(self.hub, reader, 0.05)
        self.reader = reader
        self.over = ""

    @asynccontextmanager
    async def stream(self, place: str | None = None, job_id: str = JOB) -> AsyncIterator[AsyncIterator[Told]]:
        """Events of a new connection: (id, name, data)."""
        watcher = self.hub.join(job_id, frozenset(KINDS))
        await asyncio.wait_for(self.hub.ready(watcher), ENOUGH_S)
        job = {"job_id": job_id, "status_seq": 1, "project": "vision", "reason": ""}
        stream = JobStream(self.reader, ANA, watcher, job, lambda _: self.over)
        try:
            yield events(stream.parts(Place.parse(place) if place else None))
        finally:
            self.hub.leave(watcher)


async def events(parts: AsyncIterator[bytes]) -> AsyncIterator[Told]:
    async for part in parts:
        fields = dict(line.split(": ", 1) for line in part.decode().strip().splitlines() if not line.startswith(":"))
        if "data" in fields:
            yield fields.get("id", ""), fields["event"], json.loads(fields["data"])


async def until(told: AsyncIterator[Told], line: str) -> tuple[str, list[str], list[int]]:
    """The id with which a line came; all lines and steps until then."""
    lines: list[str] = []
    steps: list[int] = []
    async with asyncio.timeout(ENOUGH_S):
        async for place, name, data in told:
            lines += [one["line"] for one in data["lines"]] if name == "log" else []
            steps += [one["step"] for one in data["points"]] if name == "metrics" else []
            if line in lines:
                return place, lines, steps
    raise AssertionError(f"{line} never came")


def run(world: World, scene: Any) -> None:
    async def all_of_it() -> None:
        reader = SqlReader(ClickHouseSettings(url=world.tables.url))
        live = Live(reader)
        polling = asyncio.create_task(live.poller.run())
        try:
            await scene(live)
        finally:
            polling.cancel()
            await reader.close()

    asyncio.run(all_of_it())


def test_every_line_and_point_comes_once_over_any_number_of_connections(world: World) -> None:
    async def scene(live: Live) -> None:
        place, lines, steps = None, list[str](), list[int]()
        async with live.stream(None) as told:
            assert (await anext(told))[1] == "status"
            waiting = asyncio.create_task(until(told, "new 0"))
            await asyncio.sleep(0.2)
            await asyncio.to_thread(world.log, JOB, ["new 0"], 20)
            place, lines, _ = await waiting
        for n in range(1, 6):
            # Some comes while nobody is connected, some while the stream is.
            await asyncio.to_thread(world.points, JOB, [10 * n, 10 * n + 1], n * 100)
            await asyncio.to_thread(world.log, JOB, [f"away {n}"], n * 100)
            async with live.stream(place) as told:
                waiting = asyncio.create_task(until(told, f"here {n}"))
                await asyncio.to_thread(world.log, JOB, [f"here {n}"], n * 100 + 50)
                place, more_lines, more_steps = await waiting
                lines, steps = lines + more_lines, steps + more_steps
        assert lines == ["new 0", *(f"{where} {n}" for n in range(1, 6) for where in ("away", "here"))]
        assert steps == [step for n in range(1, 6) for step in (10 * n, 10 * n + 1)]

    run(world, scene)


def test_the_first_record_of_a_partition_is_told(world: World) -> None:
    columns = "job_id, epoch, attempt, rank, stream, offset, time, line, node_id, source_partition, source_offset"
    first = f"INSERT INTO logs ({columns}) VALUES ('live-2', 1, 0, 0, 'stdout', 0, now(), 'first', 'n1', 7, 0)"

    async def scene(live: Live) -> None:
        async with live.stream(None, "live-2") as told:
            assert (await anext(told))[1] == "status"
            waiting = asyncio.create_task(until(told, "first"))
            await asyncio.to_thread(world.tables.clickhouse.command, first)
            assert (await waiting)[1] == ["first"]

    run(world, scene)


def test_a_stream_ends_with_its_token_and_says_why(world: World) -> None:
    async def scene(live: Live) -> None:
        async with live.stream(None) as told:
            assert (await anext(told))[1] == "status"
            live.over = "the token was revoked"
            await asyncio.to_thread(world.log, JOB, ["last"], 5000)
            async with asyncio.timeout(ENOUGH_S):
                found = [event async for event in told]
            assert found[-1][1:] == ("cut", {"reason": "the token was revoked"})

    run(world, scene)
