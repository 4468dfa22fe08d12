"""Creates the topics of the table on a cluster; tells one topic from another of the same name.

Holds: idempotent; an existing topic keeps its partitions (they can never change: a pool's partition is for ever), and is given the
settings in `Topic.extra` where it has others, since readers rely on them; so are the topics of projects.
"""

import time
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from trainhouse.events.errors import BusUnavailable
from trainhouse.events.project_topics import TOPICS_COUNT_AFTER_S, rows_of, topics_of
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.topics import TOPICS, Topic


def create_topics(settings: KafkaSettings, timeout_s: float = 30.0) -> list[str]:
    """Creates what is missing and returns its names. Blocks up to `timeout_s`. Raises BusUnavailable, or KafkaException."""
    return _create(settings, TOPICS, timeout_s)


def create_project_topics(settings: KafkaSettings, project: str, timeout_s: float = 30.0) -> list[str]:
    """The same for a project's own two. From its return on, every status of the project's jobs goes to its topic too. Raises ValueError."""
    made = _create(settings, topics_of(project), timeout_s)
    if made:
        _wait_until_listed(settings, set(made), timeout_s)
        time.sleep(2 * TOPICS_COUNT_AFTER_S)
    return made


def _wait_until_listed(settings: KafkaSettings, names: set[str], timeout_s: float) -> None:
    """Brokers list a topic a moment after it was made."""
    deadline_s = time.monotonic() + timeout_s
    while not names <= set(AdminClient(settings.client_config(log_level=4)).list_topics(timeout=timeout_s).topics):
        if time.monotonic() > deadline_s:
            raise BusUnavailable(f"{', '.join(sorted(names))}: made, but the brokers do not list them after {timeout_s:.0f} s; try again")
        time.sleep(0.1)


def _create(settings: KafkaSettings, wanted: Sequence[Topic], timeout_s: float) -> list[str]:
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
        for t in wanted
        if t.name not in existing
    ]
    known = {t.name: t for t in (*wanted, *rows_of(existing))}
    _set(admin, [t for t in known.values() if t.extra and t.name in existing], timeout_s)
    if not missing:
        return []
    for future in admin.create_topics(missing, operation_timeout=timeout_s).values():
        try:
            future.result(timeout_s)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    return [t.topic for t in missing]


def _set(admin: AdminClient, wanted: Sequence[Topic], timeout_s: float) -> None:
    """Gives topics that an older version made the settings that readers rely on."""
    asked = {ConfigResource(ConfigResource.Type.TOPIC, t.name): t.extra for t in wanted}
    if not asked:
        return
    try:
        found = {resource: future.result(timeout_s) for resource, future in admin.describe_configs(list(asked)).items()}
        other = [
            ConfigResource(
                ConfigResource.Type.TOPIC,
                resource.name,
                incremental_configs=[
                    ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in extra.items()
                ],
            )
            for resource, extra in asked.items()
            if any(found[resource][name].value != value for name, value in extra.items())
        ]
        for future in (admin.incremental_alter_configs(other) if other else {}).values():
            future.result(timeout_s)
    except (KafkaException, TimeoutError) as error:
        raise BusUnavailable(f"the settings of topics could not be made what readers rely on: {error}") from error


def topic_id(settings: KafkaSettings, topic: str, timeout_s: float = 15.0) -> str:
    """The id that a topic keeps until it is deleted; one that is made anew under the name has another. Blocks. Raises BusUnavailable."""
    try:
        admin = AdminClient(settings.client_config(log_level=4))
        described = admin.describe_topics(TopicCollection([topic]), request_timeout=timeout_s)[topic].result()
    except KafkaException as error:
        raise BusUnavailable(f"the brokers at {settings.bootstrap} did not describe {topic}: {error}; are they up?") from error
    return str(described.topic_id)
