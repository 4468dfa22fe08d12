"""Creates the topics of the table on a cluster.

Holds: idempotent; an existing topic keeps its partitions (they can never change: a pool's partition is for ever).
"""

from confluent_kafka import KafkaError, KafkaException
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
