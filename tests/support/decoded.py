"""Events of a topic that tests share: some of them write what no reader can decode, on purpose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from trainhouse.events.bus.kafka import headers_of
from trainhouse.events.model.errors import InvalidEvent
from trainhouse.events.wire.codec import decode
from trainhouse.events.wire.envelope import Envelope


def decoded(messages: Iterable[Any]) -> Iterator[Envelope]:
    """The envelopes of those Kafka messages that can be decoded, in order."""
    for message in messages:
        with suppress(InvalidEvent):
            yield decode(message.value(), headers_of(message))
