"""What passes by itself while ends of partitions and offsets of groups are asked for is asked again, within the time that there is."""

import time
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from trainhouse.events.bus.kafka import at_least_s, committed, consumer, partitions_of, watermarks
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.settings import KafkaSettings

NO_BROKER = "127.0.0.1:1"


class Failing:
    """A consumer whose client answers so many times with an error."""

    def __init__(self, code: int, times: int) -> None:
        self._code, self._left = code, times

    def get_watermark_offsets(self, *_: Any, **__: Any) -> tuple[int, int]:
        self._left -= 1
        if self._left >= 0:
            raise KafkaException(KafkaError(self._code))
        return 3, 9


# The last one: the client knows the brokers now, and gives up its connection to the address that it began from.
@pytest.mark.parametrize(
    "code", [KafkaError._TRANSPORT, KafkaError.LEADER_NOT_AVAILABLE, KafkaError._TIMED_OUT, KafkaError._DESTROY_BROKER]
)
def test_the_ends_of_a_partition_are_asked_for_again(code: int) -> None:
    assert watermarks(cast(Consumer, Failing(code, 2)), "t", 0, timeout_s=20.0) == (3, 9)


def test_what_does_not_pass_is_said_at_once() -> None:
    with pytest.raises(BusUnavailableError, match="t-0: its ends are not known"):
        watermarks(cast(Consumer, Failing(KafkaError.TOPIC_AUTHORIZATION_FAILED, 1)), "t", 0, timeout_s=20.0)


def test_a_client_of_slow_brokers_waits_for_as_long_as_its_settings_say() -> None:
    reader = consumer(KafkaSettings(bootstrap=NO_BROKER, min_timeout_s=90), log_level=0)
    try:
        assert at_least_s(reader, 10.0) == 90 and at_least_s(reader, 120.0) == 120
    finally:
        reader.close()
    assert at_least_s(cast(Consumer, Failing(0, 0)), 10.0) == 10


@pytest.mark.parametrize("ask", ["partitions", "ends", "committed"])
def test_brokers_that_answer_nothing_are_asked_for_that_long(ask: str) -> None:
    settings, began = KafkaSettings(bootstrap=NO_BROKER, min_timeout_s=0.7), time.monotonic()
    reader = consumer(settings, log_level=0)
    asks = {
        "partitions": lambda: partitions_of(reader, "t", 0.1),
        "ends": lambda: watermarks(reader, "t", 0, 0.1),
        "committed": lambda: committed(settings, "g", "t", 0, 0.1),
    }
    try:
        with pytest.raises(BusUnavailableError):
            asks[ask]()
    finally:
        reader.close()
    assert time.monotonic() - began > 0.5
