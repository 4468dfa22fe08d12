"""The agent's reader of grants goes on after whatever error, and its log says that it could not read for long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import pytest
from confluent_kafka import KafkaError, KafkaException
from structlog.testing import capture_logs

from tests.support.waiting import until
from trainhouse.events import DatasetGranted
from trainhouse.events.model.dataset_grant import GrantKey
from trainhouse.events.settings import KafkaSettings
from trainhouse.workers.agent.launch import grant_reader
from trainhouse.workers.agent.launch.grant_reader import GrantReader

KEY = GrantKey("speech", "a" * 64, "vision", "research")


class Failing:
    """A factory of consumers that raises."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.calls = 0

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        self.calls += 1
        raise self.error


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[GrantReader]:
    monkeypatch.setattr(grant_reader, "AGAIN_S", 0.001)
    monkeypatch.setattr(grant_reader, "MOST_AGAIN_S", 0.002)
    made = GrantReader(KafkaSettings())
    made._table.fold(
        DatasetGranted(dataset="speech", sha256=KEY.sha256, owner="speech", project="vision", purpose="research", number=1, granted_at_ms=1)
    )
    yield made
    made.close()


def test_a_consumer_that_cannot_be_made_is_made_again_and_again(reader: GrantReader, monkeypatch: pytest.MonkeyPatch) -> None:
    factory = Failing(KafkaException(KafkaError(KafkaError._CRIT_SYS_RESOURCE, "Failed to create thread")))
    monkeypatch.setattr(grant_reader, "consumer", factory)
    reader._begin()
    until(lambda: factory.calls > 3, "more tries")
    assert reader._thread is not None and reader._thread.is_alive()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ended_is_begun_again_at_the_next_look_at_a_grant(reader: GrantReader, monkeypatch: pytest.MonkeyPatch) -> None:
    factory = Failing(SystemExit())
    monkeypatch.setattr(grant_reader, "consumer", factory)
    reader._begin()
    until(lambda: reader._thread is not None and not reader._thread.is_alive(), "the end of the thread")
    assert factory.calls == 1 and reader.covers(KEY)
    until(lambda: factory.calls == 2 and reader._thread is not None and not reader._thread.is_alive(), "another try, and its end")
    reader._begin()
    until(lambda: factory.calls > 2, "another try")


def test_the_log_says_how_long_no_grant_could_be_read(reader: GrantReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grant_reader, "STALE_S", 0.0)
    factory = Failing(KafkaException(KafkaError(KafkaError._CRIT_SYS_RESOURCE, "Failed to create thread")))
    monkeypatch.setattr(grant_reader, "consumer", factory)
    with capture_logs() as logs:
        reader._begin()
        until(lambda: any("revocations" in entry["event"] for entry in list(logs)), "the warning")
        reader.close()
    [first, *_] = [entry for entry in logs if "revocations" in entry["event"]]
    assert first["log_level"] == "warning" and first["for_s"] >= 0 and first["topic"] == "trainhouse.datasets"


def test_the_log_is_silent_as_long_as_that_is_not_long(reader: GrantReader, monkeypatch: pytest.MonkeyPatch) -> None:
    factory = Failing(KafkaException(KafkaError(KafkaError._CRIT_SYS_RESOURCE, "Failed to create thread")))
    monkeypatch.setattr(grant_reader, "consumer", factory)
    with capture_logs() as logs:
        reader._begin()
        until(lambda: factory.calls > 3, "more tries")
        reader.close()
    assert not any("revocations" in entry["event"] for entry in logs)
