"""Live streams whose watcher's rights end: what waited by then is not sent, and the place is that of what was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, cast

import orjson

from trainhouse.gateway.auth.roles import Principal, Role
from trainhouse.gateway.live.hub import EVENT, KINDS, LOG, METRICS, STATUS, Hub, News, Watcher
from trainhouse.gateway.live.messages import Place
from trainhouse.gateway.live.stream import FleetStream, JobStream
from trainhouse.gateway.queries.sql_reader import SqlReader

OVER = "ana is no member of project vision any more"
ANA = Principal("ana", (Role.VIEWER,), ("*",))
AT = "2026-01-01T00:00:00.000Z"


class Past:
    """The projections: rows of before, the same for each question; then none."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self._rows = list(rows)

    async def one(self, sql: str, values: object) -> dict[str, Any]:
        return {"metrics": -1, "lines": -1}

    async def rows(self, sql: str, values: object) -> list[dict[str, Any]]:
        found, self._rows = self._rows, []
        return found


@dataclass
class Door:
    """Whether ana is a member still."""

    reason: str = ""
    asked: list[Principal] = field(default_factory=list)

    def ended(self, principal: Principal) -> str:
        self.asked.append(principal)
        return self.reason


def job(seq: int, name: str = "a") -> dict[str, Any]:
    return {"job_id": name, "status_seq": seq, "project": "vision", "updated_at": AT}


def stream_of(door: Door, watcher: Watcher, past: Past | None = None) -> JobStream:
    return JobStream(cast(SqlReader, past or Past()), ANA, watcher, job(1), door.ended)


async def told(parts: AsyncIterator[bytes]) -> tuple[str, dict[str, Any], str]:
    """The next event: its name, its data, its id."""
    lines = dict(line.split(": ", 1) for line in (await anext(parts)).decode().strip().split("\n"))
    return lines["event"], orjson.loads(lines["data"]), lines.get("id", "")


async def nothing_more(parts: AsyncIterator[bytes]) -> bool:
    return [part async for part in parts] == []


def test_what_waits_when_a_membership_ends_is_not_sent_to_a_jobs_watcher() -> None:
    async def scene() -> None:
        hub, door = Hub(10, 100), Door()
        watcher = hub.join("a", frozenset(KINDS))
        parts = stream_of(door, watcher).parts(None)
        assert (await told(parts))[0] == "status"
        hub.status(job(2))
        hub.news(News(EVENT, "a", [{"time": AT, "summary": "x"}], 0))
        hub.news(News(METRICS, "a", [{"loss": 1.0}], 5))
        hub.news(News(LOG, "a", [{"line": "secret"}], 7))
        door.reason = OVER
        name, data, _ = await told(parts)
        assert (name, data) == ("cut", {"reason": OVER}) and await nothing_more(parts)

    asyncio.run(scene())


def test_what_comes_behind_the_event_at_which_a_membership_ends_is_not_sent() -> None:
    async def scene() -> None:
        hub, door = Hub(10, 100), Door()
        parts = stream_of(door, watcher := hub.join("a", frozenset(KINDS))).parts(None)
        await anext(parts)
        hub.status(job(2))
        hub.news(News(METRICS, "a", [{"loss": 1.0}], 5))
        hub.news(News(LOG, "a", [{"line": "secret"}], 7))
        assert (await told(parts))[0] == "status"
        name, _, place = await told(parts)
        assert name == "metrics" and watcher.take() == ([], []), "the line was taken already"
        door.reason = OVER
        assert await told(parts) == ("cut", {"reason": OVER}, place), "a member again gets the line, by this id"
        assert await nothing_more(parts)

    asyncio.run(scene())


def test_what_was_missed_is_not_sent_either() -> None:
    async def scene() -> None:
        hub, door = Hub(10, 100), Door()
        line = {"job_id": "a", "source_partition": 0, "source_offset": 3, "line": "secret"}
        parts = stream_of(door, hub.join("a", frozenset({LOG, STATUS})), Past(line)).parts(Place())
        assert (await told(parts))[0] == "status"
        door.reason = OVER
        name, data, _ = await told(parts)
        assert (name, data) == ("cut", {"reason": OVER}) and await nothing_more(parts)

    asyncio.run(scene())


def test_the_fleets_watcher_is_asked_at_each_status_also_of_those_missed() -> None:
    async def scene() -> None:
        hub, door = Hub(10, 100), Door()
        reader = cast(SqlReader, Past())
        stream = FleetStream(reader, ANA, hub.join(None, frozenset({STATUS})), door.ended, [job(1, "m1"), job(1, "m2")])
        parts = stream.parts()
        await anext(parts)
        assert (await told(parts))[1]["job_id"] == "m1"
        door.reason = OVER
        assert (await told(parts))[0] == "cut" and await nothing_more(parts)
        door.reason = ""
        parts = FleetStream(reader, ANA, hub.join(None, frozenset({STATUS})), door.ended, []).parts()
        await anext(parts)
        hub.status(job(1, "b"))
        hub.status(job(1, "c"))
        assert (await told(parts))[1]["job_id"] == "b"
        door.reason = OVER
        assert (await told(parts))[0] == "cut" and await nothing_more(parts)
        assert all(principal is ANA for principal in door.asked)

    asyncio.run(scene())


def test_a_watcher_to_whom_nothing_comes_is_cut_when_it_is_woken() -> None:
    async def scene() -> None:
        hub, door = Hub(10, 100), Door()
        parts = stream_of(door, hub.join("a", frozenset(KINDS))).parts(None)
        await anext(parts)
        waiting = asyncio.ensure_future(told(parts))
        await asyncio.sleep(0)
        door.reason = OVER
        hub.wake()
        assert (await asyncio.wait_for(waiting, 5))[0] == "cut" and await nothing_more(parts)

    asyncio.run(scene())


def test_a_stream_that_the_gateway_ends_sends_what_waited() -> None:
    async def scene() -> None:
        hub, door = Hub(10, 100), Door()
        parts = stream_of(door, hub.join("a", frozenset(KINDS))).parts(None)
        await anext(parts)
        hub.status(job(2))
        hub.end("closing")
        assert (await told(parts))[0] == "status"
        assert (await told(parts))[:2] == ("cut", {"reason": "closing"}) and await nothing_more(parts)

    asyncio.run(scene())
