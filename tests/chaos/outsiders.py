"""Somebody who sends events made from their schemas, with values at and beyond every edge, to topics that processes of the platform read.

Holds: what is sent comes from the seed, by an account that may write there; where a record landed, or that the brokers refused it, is kept.
Half of it is signed, by a key of the sender's own. To topics on which the platform's word rests on its account alone go records that cannot
be read. Never: a valid request about the pool or project in which the campaign's own jobs run; that would count, as it should.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from tests.support.extremes import drawn, records
from trainhouse.deploy.local.client_config import part_config
from trainhouse.deploy.local.layout import StackFolder, read_toml
from trainhouse.events import Event, InvalidEvent, JobSubmitted, decode
from trainhouse.events.bus.kafka import producer_config
from trainhouse.events.model.project import ChangeProject
from trainhouse.events.security.grants import PRINCIPALS
from trainhouse.events.security.signing import SigningKey
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import HEADERS
from trainhouse.events.wire.topic_types import TOPIC_EVENTS

EACH, EACH_TRUSTED = 25, 8
FLUSH_S = 20.0
# Whose word counts there is told by a signature, by intake, or by nothing that decides.
OPEN: Final = (
    *(topics.JOBS, topics.CONTROL, topics.PROGRESS, topics.HEARTBEATS, topics.METRICS, topics.TRACKED_METRICS, topics.TRACKING),
    *(topics.ENVIRONMENTS, topics.CHECKPOINTS, topics.LOGS, topics.NODE_AUDIT, topics.OPERATION_REPLIES),
)
# Who may write there is the platform: what can be read counts.
TRUSTED: Final = (
    *(topics.ADMISSION, topics.SNAPSHOTS, topics.JOURNAL_REPAIRS, topics.ALLOCATIONS, topics.STATUS, topics.POOLS, topics.POLICIES),
    *(topics.PROJECTS, topics.NODE_KEYS, topics.VERDICTS, topics.EXPLANATIONS, topics.RESERVATIONS, topics.ALERTS, topics.TOKENS),
    *(topics.OPERATIONS, topics.AUDIT, topics.SERVICES, topics.TRACES, topics.DEAD_LETTERS, topics.UPGRADES, topics.TOPOLOGY),
    *(topics.UPGRADES_FINISHED, topics.DATASETS, topics.MODELS, topics.MODEL_REQUESTS, topics.MODEL_HISTORY),
    *(topics.OBSERVATIONS, topics.MODEL_DRIFT, topics.STUDIES, topics.STUDY_REQUESTS, topics.STUDY_HISTORY),
)
ALL_TRUSTED = "all others"
WAYS: Final = (*OPEN, ALL_TRUSTED)
OURS = frozenset({"default", "*"})


@dataclass(frozen=True)
class Sent:
    """One record that the brokers took. `readable`: it decodes; else why it does not."""

    topic: str
    partition: int
    offset: int
    readable: bool
    event_id: str = ""


@dataclass
class Outsiders:
    """Sends to the brokers of a stack, with the accounts of its parts."""

    folder: StackFolder
    seed: int = 1
    sent: list[Sent] = field(default_factory=list)
    refused: int = 0

    def send(self, way: str) -> bool:
        """Sends some to a topic, or to all that the platform alone writes; False where the brokers were too late. Blocks for seconds."""
        producers = [self._begin(topic) for topic in (TRUSTED if way == ALL_TRUSTED else (way,))]
        deadline_s = time.monotonic() + FLUSH_S
        return all(producer.flush(max(0.1, deadline_s - time.monotonic())) == 0 for producer in producers)

    def _begin(self, topic: str) -> Producer:
        self.seed += 1
        producer = Producer(producer_config(self._account(topic), **{"log_level": 0, "message.timeout.ms": int(FLUSH_S * 1000)}))
        key, made = SigningKey.made(), records(TOPIC_EVENTS.get(topic, TOPIC_EVENTS[topics.JOBS]))
        values = drawn(made, self.seed, EACH if topic in OPEN else EACH_TRUSTED)
        for n, value in enumerate(value for value in values if may_be_sent(topic, value)):
            signed = [key.header(topic, value)] if n % 2 else []
            producer.produce(topic, value=value, key=f"k{n}".encode(), headers=[*HEADERS, *signed], on_delivery=self._landed(value))
            producer.poll(0)
        return producer

    def _landed(self, value: bytes) -> Callable[[KafkaError | None, Message], None]:
        def landed(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.refused += 1
                return
            event_id = readable_id(value)
            where = message.topic() or "", message.partition() or 0, message.offset() or 0
            self.sent.append(Sent(*where, event_id is not None, event_id or ""))

        return landed

    def _account(self, topic: str) -> KafkaSettings:
        """A principal's that may write there, or the operator's, who may write anywhere."""
        able = [name for name in ("agent", "gateway", "detector", "scheduler", "intake") if topic in PRINCIPALS[name].writes]
        file = part_config(self.folder, able[0]) if able else self.folder.client_config
        return KafkaSettings.model_validate(read_toml(file)["kafka"])


def readable_id(value: bytes) -> str | None:
    """The id of an event that decodes."""
    try:
        return str(decode(value, HEADERS).id)
    except InvalidEvent:
        return None


def may_be_sent(topic: str, value: bytes) -> bool:
    """Whether it would be answered without being obeyed where the campaign's own jobs run."""
    try:
        event = decode(value, HEADERS).event
    except InvalidEvent:
        return True
    return topic in OPEN and not _about_ours(event)


def _about_ours(event: Event) -> bool:
    if isinstance(event, JobSubmitted):
        return event.spec.pool in OURS
    if isinstance(event, ChangeProject):
        return event.project.name in OURS
    return getattr(event, "pool", "") in OURS or getattr(event, "project", "") in OURS
