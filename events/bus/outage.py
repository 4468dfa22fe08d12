"""Whether a client of librdkafka still reaches the brokers that others reach.

A broker that stops answers its last questions about topics with a list of no brokers. Where its connection ends before that answer is
handled, librdkafka (2.10 to 2.16) forgets every broker it knew, those of `bootstrap.servers` included, and asks none ever again, without an
error: its issue 5301. No setting keeps it from that; a client made anew does.

Holds: a client that works is asked nothing while records come, and one question a minute while none do; after an outage sooner.
Never: gives up a client while no other would do better.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any, Protocol

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from trainhouse.events.runtime.clock import steady_s

if TYPE_CHECKING:
    from trainhouse.events.settings import KafkaSettings

# After all brokers were down: librdkafka connects again by itself within `reconnect.backoff.max.ms`, which is 10 s at most.
AFTER_OUTAGE_S = 15.0
AFTER_SILENCE_S = 60.0
OWN_ANSWER_S = 1.0
OTHER_ANSWER_S = 3.0


class Asked(Protocol):
    """A consumer, a producer or an AdminClient."""

    def list_topics(self, topic: str = ..., timeout: float = ...) -> Any:
        """Returns the brokers' metadata of a topic."""


class Outage:
    """Schedule of a client's connection checks, and the condition to replace it. Reads no clock."""

    def __init__(self, now_s: float, after_silence_s: float) -> None:
        self._after_silence_s = after_silence_s
        self.on_message(now_s)

    def on_message(self, now_s: float) -> None:
        """Notes a message from the brokers."""
        self._ask_at_s = now_s + self._after_silence_s

    def all_down(self, now_s: float) -> None:
        """Notes that the client reaches no broker."""
        self._ask_at_s = min(self._ask_at_s, now_s + AFTER_OUTAGE_S)

    def due(self, now_s: float) -> bool:
        """Whether to ask now."""
        return now_s >= self._ask_at_s

    def asked(self, reaches: bool, others_reach: bool, now_s: float) -> bool:
        """Returns whether to replace the client, by the answers; `others_reach` is ignored where it reaches them itself."""
        away = not reaches and not others_reach
        self._ask_at_s = now_s + (AFTER_OUTAGE_S if away else self._after_silence_s)
        return not reaches and others_reach


class Watch:
    """Outage detection of one client; give `on_error` to the client as its `error_cb`. Blocks in `lost` alone, 4 s and a fetch at most."""

    def __init__(self, settings: KafkaSettings, after_silence_s: float = AFTER_SILENCE_S, fetch_wait_s: float = 0.0) -> None:
        """`fetch_wait_s`: how long brokers may keep a fetch open, behind which an answer on the same connection waits."""
        self._settings = settings
        self._own_answer_s = OWN_ANSWER_S + fetch_wait_s
        self._outage = Outage(steady_s(), after_silence_s)

    def on_error(self, error: KafkaError) -> None:
        """Takes an error notice of the client."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._outage.all_down(steady_s())

    def on_message(self) -> None:
        """Notes a message from the brokers."""
        self._outage.on_message(steady_s())

    def due(self) -> bool:
        """Whether `lost` would ask anybody now."""
        return self._outage.due(steady_s())

    def lost(self, client: Asked, topic: str) -> bool:
        """Whether the client no longer reaches brokers that a new one reaches. Blocks."""
        reaches = answers(client, topic, self._own_answer_s)
        others_reach = not reaches and answers(AdminClient(self._settings.client_config(log_level=0)), topic, OTHER_ANSWER_S)
        return self._outage.asked(reaches, others_reach, steady_s())


class ProducerWatch(Watch):
    """Of a producer, which has nothing to be silent about: it is asked after an outage alone. Never blocks."""

    def __init__(self, settings: KafkaSettings) -> None:
        super().__init__(settings, after_silence_s=math.inf)
        self._asking = threading.Lock()
        self._lost = False

    def cut_off(self, producer: Asked, topic: str) -> bool:
        """Whether it was found that the producer is to be made anew; true once. Another thread asks."""
        if self._lost:
            self._lost = False
            return True
        if self.due() and self._asking.acquire(blocking=False):
            threading.Thread(target=self._find_out, args=(producer, topic), name="brokers-asked", daemon=True).start()
        return False

    def _find_out(self, producer: Asked, topic: str) -> None:
        try:
            self._lost = self.lost(producer, topic)
        finally:
            self._asking.release()


def answers(client: Asked, topic: str, timeout_s: float) -> bool:
    """Whether some broker says to this client that it serves. Blocks up to `timeout_s`."""
    try:
        return bool(client.list_topics(topic, timeout=timeout_s).brokers)
    except KafkaException:
        return False
