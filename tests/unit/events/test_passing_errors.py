"""What passes by itself while ends of partitions and offsets of groups are asked for is asked again, within the time that there is."""

from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from trainhouse.events.bus.kafka import watermarks
from trainhouse.events.model.errors import BusUnavailableError


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
@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError.LEADER_NOT_AVAILABLE, KafkaError._DESTROY_BROKER])
def test_the_ends_of_a_partition_are_asked_for_again(code: int) -> None:
    assert watermarks(cast(Consumer, Failing(code, 2)), "t", 0, timeout_s=20.0) == (3, 9)


def test_what_does_not_pass_is_said_at_once() -> None:
    with pytest.raises(BusUnavailableError, match="t-0: its ends are not known"):
        watermarks(cast(Consumer, Failing(KafkaError.TOPIC_AUTHORIZATION_FAILED, 1)), "t", 0, timeout_s=20.0)
