"""What an account on a broker is let do, found by trying it."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.waiting import until
from trainhouse.events.security.grants import PRINCIPALS, READ, TOPIC, Needs, allowed, needs_of_project, project_of_account
from trainhouse.events.settings import KafkaSettings

ANSWER_S = 20.0
# Many times longer than what is allowed takes to come after the first of it.
QUIET_S = 2.0
REFUSED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}


def needs_of(principal: str) -> Needs:
    """What an account is meant to do."""
    project = project_of_account(principal)
    return PRINCIPALS[principal] if project is None else needs_of_project(project)


def outcome(error: KafkaError | None) -> bool:
    """Whether it was let; raises on what is neither that nor a refusal."""
    if error is None:
        return True
    assert error.code() in REFUSED, error
    return False


def writes(settings: KafkaSettings, names: Iterable[str]) -> set[str]:
    """The topics to which a record was acked."""
    took: dict[str, bool] = {}
    producer = Producer(settings.client_config(**{"log_level": 0, "linger.ms": 0}))
    for name in names:
        producer.produce(name, b"", key=b"probe", on_delivery=lambda e, m: took.setdefault(str(m.topic()), outcome(e)))
    assert producer.flush(ANSWER_S) == 0
    assert set(took) == set(names)
    return {name for name, ok in took.items() if ok}


def reads(settings: KafkaSettings, names: Collection[str]) -> set[str]:
    """The topics of which something came, or the notice of a partition's end; of a topic that is refused nothing comes, for long enough."""
    reader = Consumer(
        settings.client_config(**{"group.id": "x", "enable.partition.eof": True, "log_level": 0, "enable.auto.commit": False})
    )
    reader.assign([TopicPartition(name, 0, 0) for name in names])
    took: set[str] = set()
    wanted = {name for name in names if allowed(str(settings.sasl_username), TOPIC, name, READ)}
    end = time.monotonic() + ANSWER_S
    complete = False
    try:
        while time.monotonic() < end:
            for message in reader.consume(200, timeout=0.1):
                error = message.error()
                if error is None or error.code() == KafkaError._PARTITION_EOF:
                    took.add(str(message.topic()))
                else:
                    outcome(error)
            if not complete and took >= wanted:
                complete, end = True, time.monotonic() + QUIET_S
    finally:
        reader.close()
    return took


def describes(settings: KafkaSettings, names: Iterable[str]) -> set[str]:
    """The topics that are shown."""
    return set(AdminClient(settings.client_config(log_level=0)).list_topics(timeout=ANSWER_S).topics) & set(names)


def joins(settings: KafkaSettings, names: Iterable[str]) -> set[str]:
    """The groups in whose name an offset could be committed: what a member does, and what would make others skip records."""
    admin = AdminClient(settings.client_config(log_level=0))
    took = set()
    for group in names:
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(needs_of(str(settings.sasl_username)).reads[0], 0, 0)])
        if outcome(until(lambda asked=asked: answered(admin, asked), group)[0]):
            took.add(group)
    return took


def answered(admin: AdminClient, asked: ConsumerGroupTopicPartitions) -> tuple[KafkaError | None] | None:
    """What came of a commit; None while the group's coordinator is being found."""
    try:
        found = admin.alter_consumer_group_offsets([asked], request_timeout=ANSWER_S)[asked.group_id].result(ANSWER_S)
        error = found.topic_partitions[0].error
    except KafkaException as raised:
        error = raised.args[0]
    soon = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
    return None if error is not None and error.code() in soon else (error,)


def transacts(settings: KafkaSettings, names: Iterable[str]) -> set[str]:
    """The transactional ids that could be taken, which fences whoever had them."""
    took = set()
    for name in names:
        try:
            Producer(settings.client_config(**{"transactional.id": name, "log_level": 0})).init_transactions(ANSWER_S)
            took.add(name)
        except KafkaException as error:
            outcome(error.args[0])
    return took
