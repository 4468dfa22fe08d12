"""Publishing answers: when they change, at a bounded rate, and again after the brokers were away."""

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

from trainhouse.events import decode
from trainhouse.events.model.explanation import JobExplained, Obstacle
from trainhouse.events.wire.topics import EXPLANATIONS
from trainhouse.scheduler.core.errors import LogUnavailableError
from trainhouse.scheduler.core.explain.answer import Answer
from trainhouse.scheduler.stream.interfaces import Log
from trainhouse.scheduler.stream.scheduling.explanation_publisher import MAX_SENT_AT_ONCE, Explaining


class Clock:
    at_s = 0.0

    def now_ms(self) -> int:
        return int(self.at_s * 1000)

    def steady_s(self) -> float:
        return self.at_s


class Sent:
    """What a log got; `away` makes it refuse."""

    def __init__(self) -> None:
        self.records: list[tuple[str, bytes, bytes | None]] = []
        self.away = False

    async def send(self, topic: str, key: bytes, value: bytes | None) -> None:
        if self.away:
            raise LogUnavailableError("no broker")
        self.records.append((topic, key, value))


def answers(state: dict[str, str], now_ms: int) -> Iterable[Answer]:
    for place, (job_id, text) in enumerate(state.items(), 1):
        event = JobExplained(
            job_id=job_id, pool="p", team="t", at_ms=now_ms, waiting_since_ms=0, place=place, waiting=len(state),
            needs="1 device", obstacle=Obstacle.NO_ROOM, text=text,
        )  # fmt: skip
        yield Answer(job_id, text, lambda event=event: event)  # type: ignore[misc]


def stayed(state: dict[str, str], job_id: str) -> bool:
    return False


async def look(explaining: Explaining[Any], clock: Clock, state: dict[str, str]) -> None:
    clock.at_s += 10
    follower = SimpleNamespace(partition=0, folded=SimpleNamespace(state=state, now_ms=clock.now_ms()))
    await explaining.after_record(cast(Any, follower))
    while any(not t.done() for t in explaining._looking.values()):
        await asyncio.sleep(0)


def test_an_answer_is_sent_when_it_changes_and_a_tombstone_when_the_job_waits_no_more() -> None:
    async def story() -> None:
        sent, clock = Sent(), Clock()
        explaining = Explaining(cast(Log, sent), clock, answers, stayed)
        await look(explaining, clock, {"a": "full", "b": "full"})
        await look(explaining, clock, {"a": "full", "b": "quota"})
        await look(explaining, clock, {"b": "quota"})
        assert [(t, k) for t, k, _ in sent.records] == [(EXPLANATIONS, k) for k in (b"a", b"b", b"b", b"a")]
        assert sent.records[-1][2] is None
        event = decode(sent.records[2][2], []).event
        assert isinstance(event, JobExplained) and event.text == "quota"

    asyncio.run(story())


def test_a_job_that_went_to_another_partition_gets_no_tombstone_and_is_explained_anew_when_it_is_back() -> None:
    async def story() -> None:
        sent, clock = Sent(), Clock()
        explaining = Explaining(cast(Log, sent), clock, answers, lambda state, job_id: job_id == "a" and "a" not in state)
        for state in ({"a": "full", "b": "full"}, {"b": "full"}, {"a": "full"}):
            await look(explaining, clock, state)
        assert [(k, v is None) for _, k, v in sent.records] == [(b"a", False), (b"b", False), (b"a", False), (b"b", True)]

    asyncio.run(story())


def test_a_look_is_bounded_in_rate_and_number_and_nothing_is_forgotten() -> None:
    async def story() -> None:
        sent, clock = Sent(), Clock()
        explaining = Explaining(cast(Log, sent), clock, answers, stayed)
        many = {f"j{n}": "full" for n in range(MAX_SENT_AT_ONCE + 7)}
        await look(explaining, clock, many)
        assert len(sent.records) == MAX_SENT_AT_ONCE
        clock.at_s -= 10
        await look(explaining, clock, many)
        assert len(sent.records) == MAX_SENT_AT_ONCE
        await look(explaining, clock, many)
        assert len(sent.records) == MAX_SENT_AT_ONCE + 7

    asyncio.run(story())


def test_answers_that_could_not_be_sent_are_sent_later() -> None:
    async def story() -> None:
        sent, clock = Sent(), Clock()
        explaining = Explaining(cast(Log, sent), clock, answers, stayed)
        sent.away = True
        await look(explaining, clock, {"a": "full"})
        sent.away = False
        await look(explaining, clock, {"a": "full"})
        assert [k for _, k, _ in sent.records] == [b"a"]

    asyncio.run(story())
