"""An operator's event on a real broker: acked, or refused at once where its topic is not there."""

import time

import pytest

from trainhouse.client.errors import NotReachableError
from trainhouse.client.kafka.operator_events import send_event
from trainhouse.events.model.upgrade import UpgradeFinished
from trainhouse.events.settings import KafkaSettings

EVENT = UpgradeFinished(journal="trainhouse.decisions", level=9, reason="a try", user="ops", at_ms=1)
# Much less than the 30 s for which a producer waits for a topic that may still be made.
AT_ONCE_S = 20.0


def test_a_topic_that_is_not_there_is_said_at_once(settings: KafkaSettings) -> None:
    began = time.monotonic()
    with pytest.raises(NotReachableError, match=r"nothing was written.*trainhouse\.absent is not there.*create the topics first"):
        send_event(settings, "trainhouse.absent", EVENT, event_id="upgrade:1", source="test", key=EVENT.key)
    assert time.monotonic() - began < AT_ONCE_S
