"""A publisher that gets no answer is one that failed: its owner gives the partition up, instead of deciding with nothing public."""

import asyncio
from typing import Any

import pytest

from trainhouse.events.settings import KafkaSettings
from trainhouse.scheduler.core.errors import LogUnavailableError
from trainhouse.scheduler.stream.kafka import publisher


class Hanging:
    """aiokafka's producer where a broker could not end the transaction before: it asks for its id again and again."""

    stopped = 0

    def __init__(self, **_: Any) -> None:
        return

    async def start(self) -> None:
        return

    async def begin_transaction(self) -> None:
        await asyncio.Event().wait()

    async def stop(self) -> None:
        Hanging.stopped += 1


def test_a_publisher_that_cannot_begin_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "AIOKafkaProducer", Hanging)
    monkeypatch.setattr(publisher, "START_TIMEOUT_S", 0.01)
    with pytest.raises(LogUnavailableError, match="could not start"):
        asyncio.run(publisher.open_publisher(KafkaSettings(), "journal-0", "journal"))
    assert Hanging.stopped == 1
