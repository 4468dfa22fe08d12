"""Creates the topics of the table on a cluster; tells one topic from another of the same name.

Holds: idempotent; an existing topic keeps its partitions (they can never change: a pool's partition is for ever).
"""

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from trainhouse.events.errors import BusUnavailable
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.topics import TOPICS


def create_topics(settings: KafkaSettings, timeout_s: float = 30.0) -> list[str]:
    """Creates what is missing and returns its names. Blocks up to `timeout_s`. Raises BusUnavailable, or KafkaException."""
    admin = AdminClient(settings.client_config(log_level=4))
    try:
        existing = set(admin.list_topics(timeout=timeout_s).topics)
    except KafkaException as error:
        raise BusUnavailable(f"the brokers at {settings.bootstrap} did not answer in {timeout_s:.0f} s: {error}") from error
    replication = {"min.insync.replicas": "2"} if settings.replication >= 3 else {}
    missing = [
        NewTopic(
            t.name,
            num_partitions=1 if t.single_partition else settings.partitions,
            replication_factor=settings.replication,
            config=t.config() | replication,
        )
        for t in TOPICS
        if t.name not in existing
    ]
    if not missing:
        return []
    for future in admin.create_topics(missing, operation_timeout=timeout_s).values():
        try:
            future.result(timeout_s)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    return [t.topic for t in missing]


def topic_id(settings: KafkaSettings, topic: str, timeout_s: float = 15.0) -> str:
    """The id that a topic keeps until it is deleted; one that is made anew under the name has another. Blocks. Raises BusUnavailable."""
    try:
        admin = AdminClient(settings.client_config(log_level=4))
        described = admin.describe_topics(TopicCollection([topic]), request_timeout=timeout_s)[topic].result()
    except KafkaException as error:
        raise BusUnavailable(f"the brokers at {settings.bootstrap} did not describe {topic}: {error}; are they up?") from error
    return str(described.topic_id)
