"""Hands every event of the alerts topic to a webhook, each at least once.

Holds: the group's offset moves on only after an answer of 2xx, or after the last try of a bounded number; a receiver tells a repeat by the
event's id. What was told before the webhook was first configured is not sent.
Never: holds the rules up: it has a thread of its own.
"""

import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException

import structlog
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from trainhouse.events.bus.kafka import consumer, partitions_of, watermarks
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.codec import CONTENT_TYPE
from trainhouse.events.wire.topics import ALERTS
from trainhouse.projections.alerts.settings import AlertsSettings
from trainhouse.projections.http_status import FOR_GOOD

GROUP = "trainhouse-alerts-webhook"
FIRST_WAIT_S, MAX_WAIT_S = 0.5, 30.0
POLL_S = 1.0
ANSWER_S = 30.0

log = structlog.get_logger(__name__)


class Webhook(threading.Thread):
    """Follows the topic until `stop` is set."""

    def __init__(self, kafka: KafkaSettings, settings: AlertsSettings, stop: threading.Event) -> None:
        super().__init__(name="webhook", daemon=True)
        self._kafka = kafka
        self._settings = settings
        self._leave = stop

    def run(self) -> None:
        while not self._leave.is_set():
            reader = consumer(self._kafka, group=GROUP, **{"reconnect.backoff.max.ms": 2000, "queued.max.messages.kbytes": 2048})
            try:
                self._follow(reader)
            except Exception as error:
                # Whatever it is, alerts on the topic and in the log go on; what was not delivered is tried again from here.
                log.warning("the webhook waits", error=f"{type(error).__name__}: {error}")
                self._leave.wait(POLL_S)
            finally:
                reader.close()

    def _follow(self, reader: Consumer) -> None:
        places = [TopicPartition(ALERTS, p) for p in partitions_of(reader, ALERTS, ANSWER_S)]
        committed = reader.committed(places, timeout=ANSWER_S)
        starts = [tp if tp.offset >= 0 else _end(reader, tp.partition) for tp in committed]
        reader.commit(offsets=starts, asynchronous=False)
        reader.assign(starts)
        while not self._leave.is_set():
            message = reader.poll(POLL_S)
            if message is None:
                continue
            problem = message.error()
            if problem is not None:
                raise KafkaException(problem)
            if self._hand_over(message):
                after = TopicPartition(ALERTS, message.partition() or 0, (message.offset() or 0) + 1)
                reader.commit(offsets=[after], asynchronous=False)

    def _hand_over(self, message: Message) -> bool:
        """True when it is done with, delivered or given up; False when the process ends meanwhile."""
        where = {"partition": message.partition(), "offset": message.offset()}
        problem = deliver(self._settings, message.value() or b"", self._leave.wait)
        if problem is None:
            return True
        if self._leave.is_set():
            return False
        log.error("an alert was not delivered to the webhook; it is on the topic and in the log", problem=problem, **where)
        return True


def deliver(settings: AlertsSettings, body: bytes, wait: Callable[[float], bool]) -> str | None:
    """Posts one event; None when it was taken, else the last problem. Blocks, `webhook_tries` times at most; `wait` says when to leave."""
    problem = "not tried"
    pause_s = FIRST_WAIT_S
    for number in range(settings.webhook_tries):
        if number and wait(pause_s):
            return problem
        pause_s = min(MAX_WAIT_S, pause_s * 2) if number else pause_s
        request = urllib.request.Request(settings.webhook_url, body, {"Content-Type": CONTENT_TYPE, "User-Agent": "trainhouse"})
        try:
            with urllib.request.urlopen(request, timeout=settings.webhook_timeout_s):  # nosec B310  # settings admit http(s) alone
                return None
        except urllib.error.HTTPError as error:
            problem = f"{error.code} {error.reason}"
            error.close()
            if error.code in FOR_GOOD:
                return problem
        except (OSError, HTTPException, ValueError) as error:
            problem = str(error) or type(error).__name__
    return problem


def _end(reader: Consumer, partition: int) -> TopicPartition:
    return TopicPartition(ALERTS, partition, watermarks(reader, ALERTS, partition, ANSWER_S)[1])
