"""The topics of the alerts process when brokers refuse: what is wrong is said once, with its topic, and nothing is taken for read."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from structlog.testing import capture_logs

from trainhouse.events.model.alert import AlertFired, Severity
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import VERDICTS
from trainhouse.projections.alerts import broker_io
from trainhouse.projections.alerts.broker_io import AlertsBus
from trainhouse.projections.alerts.errors import WatcherReplacedError
from trainhouse.projections.messages import TopicTroubles

FIRED = AlertFired(rule="r", key="k", severity=Severity.WARNING, summary="s", since_ms=1, at_ms=1)


class Said:
    """What the brokers say of one partition: a record, or an error."""

    def __init__(self, topic: str, partition: int, code: int | None = None) -> None:
        self.topic, self.partition = (lambda: topic), (lambda: partition)
        self.error = (lambda: None) if code is None else (lambda: KafkaError(code))


class Brokers:
    """A consumer and a producer that are refused."""

    def __init__(self) -> None:
        self.refusal = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        self.abort: KafkaException | None = None
        self.says: list[Said] = []

    def consume(self, count: int, timeout: float) -> list[Said]:
        return self.says

    def offsets_for_times(self, wanted: list[TopicPartition], timeout: float) -> list[Any]:
        class Unknown:
            partition, offset, error = 0, -1001, KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)

        return [Unknown()]

    def init_transactions(self, *_: Any) -> None: ...

    def begin_transaction(self) -> None: ...

    def produce(self, topic: str, on_delivery: Any, **_: Any) -> None:
        on_delivery(self.refusal, Said(topic, 0))

    def commit_transaction(self, *_: Any) -> None:
        raise KafkaException(KafkaError(KafkaError._INCONSISTENT, "some records failed", txn_requires_abort=True))

    def abort_transaction(self, *_: Any) -> None:
        if self.abort is not None:
            raise self.abort


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    made = Brokers()
    monkeypatch.setattr(broker_io, "consumer", lambda *_, **__: made)
    monkeypatch.setattr(broker_io, "Producer", lambda *_: made)
    monkeypatch.setattr(broker_io, "partitions_of", lambda *_: [0])
    monkeypatch.setattr(broker_io, "watermarks", lambda *_: (0, 9))
    return made


@pytest.mark.parametrize("code", [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART])
def test_verdicts_that_cannot_be_read_are_said_once(brokers: Brokers, code: int) -> None:
    reading = AlertsBus(KafkaSettings(bootstrap="nobody:1"))
    brokers.says = [Said(VERDICTS, 0, code), Said(VERDICTS, 1, code)]
    with capture_logs() as logs:
        for _ in range(5):
            assert reading.verdicts(0) == []
    assert [(line["log_level"], line["topic"]) for line in logs] == [("error", VERDICTS)]
    assert "create the topics" in logs[0]["error"] and "let this user read" in logs[0]["error"]


def test_a_topic_is_well_when_all_its_partitions_are_read_again_and_what_passes_is_no_trouble() -> None:
    troubles, unknown = TopicTroubles(), KafkaError.UNKNOWN_TOPIC_OR_PART

    def take(*said: Said) -> int:
        return len(troubles.good(said))  # type: ignore[arg-type]

    with capture_logs() as logs:
        assert take(Said("a", 0, unknown), Said("a", 1, unknown), Said("b", 0), Said("", 0, KafkaError._ALL_BROKERS_DOWN)) == 1
        assert take(Said("a", 0), Said("a", 1, unknown), Said("a", 0)) == 2
        assert [line["log_level"] for line in logs] == ["error"]
        take(Said("a", 1), Said("a", 1))
        assert [line["log_level"] for line in logs] == ["error", "info"]
        take(Said("a", 1, unknown))
    assert [(line["log_level"], line["topic"]) for line in logs] == [("error", "a"), ("info", "a"), ("error", "a")]


def test_an_alert_that_is_refused_says_by_which_topic_and_why(brokers: Brokers) -> None:
    telling = AlertsBus(KafkaSettings(bootstrap="nobody:1"))
    with pytest.raises(BusUnavailableError, match=r"trainhouse\.alerts: .*[Aa]uthorization failed"):
        telling.publish([FIRED], 1)


def test_a_transaction_that_cannot_be_taken_back_ends_the_process_in_words(brokers: Brokers) -> None:
    telling = AlertsBus(KafkaSettings(bootstrap="nobody:1"))
    brokers.abort = KafkaException(KafkaError(KafkaError._TIMED_OUT, retriable=True))
    with pytest.raises(WatcherReplacedError, match="no known end"):
        telling.publish([FIRED], 1)


def test_not_to_know_where_verdicts_begin_is_not_that_there_are_none(brokers: Brokers) -> None:
    with pytest.raises(BusUnavailableError, match=r"where to begin in .*-0 is not known"):
        AlertsBus(KafkaSettings(bootstrap="nobody:1"))._starts(1)
