"""Redirected inputs unwrapped."""

import orjson

from trainhouse.events.model.handover import RedirectedInput
from trainhouse.events.wire.codec import HEADERS, decode
from trainhouse.events.wire.envelope import Envelope


def unwrapped(redirected: RedirectedInput) -> Envelope:
    """Returns the input as it came first. Raises InvalidEvent."""
    return decode(orjson.dumps(redirected.event), HEADERS, stored=True)
