"""A range that is read once more is read whole, also while the brokers come and go."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.settings import KafkaSettings
from trainhouse.projections.ingest import reader
from trainhouse.projections.ingest.reader import KafkaSource
from trainhouse.projections.store.positions import Range


class Said:
    """A record at an offset, or an error."""

    def __init__(self, offset: int, code: int | None = None) -> None:
        self.error = (lambda: None) if code is None else (lambda: KafkaError(code))
        self.offset, self.topic, self.partition = (lambda: offset), (lambda: "t"), (lambda: 0)
        self.timestamp, self.key, self.headers, self.value = (lambda: (1, 1)), (lambda: None), (lambda: None), (lambda: b"v")


class Brokers:
    """A consumer that is given what it reads."""

    def __init__(self, says: list[Said]) -> None:
        self._says = says

    def get_watermark_offsets(self, *_: Any, **__: Any) -> tuple[int, int]:
        return 0, 100

    def assign(self, _: Any) -> None: ...

    def close(self) -> None: ...

    def poll(self, timeout: float) -> Said | None:
        return next(iter(self.consume(1, timeout)), None)

    def consume(self, count: int, timeout: float) -> list[Said]:
        said, self._says = self._says[:1], self._says[1:]
        return said


def source(monkeypatch: pytest.MonkeyPatch, says: list[Said]) -> KafkaSource:
    monkeypatch.setattr(reader, "consumer", lambda *_, **__: Brokers(says))
    return KafkaSource(KafkaSettings(bootstrap="nobody:1"), ["t"], 10, 10)


@pytest.mark.parametrize("last", [Said(3), Said(4), Said(0, KafkaError._PARTITION_EOF)])
def test_a_broker_that_is_away_for_a_moment_cuts_no_batch(monkeypatch: pytest.MonkeyPatch, last: Said) -> None:
    away = [Said(0, KafkaError._ALL_BROKERS_DOWN), Said(0, KafkaError._TRANSPORT), Said(0, KafkaError._TIMED_OUT)]
    reading = source(monkeypatch, [Said(0), *away, Said(1), Said(2), last])
    assert [r.offset for r in reading.read([Range("t", 0, 0, 4)])] == ([0, 1, 2, 3] if last.offset() == 3 else [0, 1, 2])


def test_a_topic_that_cannot_be_read_cuts_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = source(monkeypatch, [Said(0), Said(0, KafkaError.TOPIC_AUTHORIZATION_FAILED), Said(1)])
    with pytest.raises(BusUnavailableError, match=r"reading t: .*let this user read"):
        reading.read([Range("t", 0, 0, 4)])
