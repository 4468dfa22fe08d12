"""Creates the topics of the table on a cluster; tells one topic from another of the same name.

Holds: idempotent; an existing topic keeps its partitions, whose counts are recorded (`topology`), and is given the settings in
`Topic.extra` where it has others, since readers rely on them; so are the topics of projects.
"""

import time
from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from trainhouse.events.bus.topology_log import read_topology, record, setting_of, unrecorded
from trainhouse.events.model.errors import BusUnavailableError, TopicsDifferError
from trainhouse.events.runtime.clock import wall_ms
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.partition_counts import SCHEDULING, Grow, Topology, grow_plan, why_refused
from trainhouse.events.wire.project_topics import TOPICS_COUNT_AFTER_S, rows_of, topics_of
from trainhouse.events.wire.topics import TOPICS, TOPOLOGY, Topic


def create_topics(settings: KafkaSettings, timeout_s: float = 30.0) -> list[str]:
    """Creates what is missing, records how many partitions each topic has, and returns the new names. Blocks up to `timeout_s`.

    Raises TopicsDifferError where the topics or the settings are not as recorded; BusUnavailableError, or KafkaException.
    """
    return _create(settings, TOPICS, timeout_s)


def create_project_topics(settings: KafkaSettings, project: str, timeout_s: float = 30.0) -> list[str]:
    """The same for a project's own two. From its return on, every status of the project's jobs goes to its topic too. Raises ValueError."""
    made = _create(settings, topics_of(project), timeout_s)
    if made:
        time.sleep(2 * TOPICS_COUNT_AFTER_S)
    return made


def _wait_until_listed(settings: KafkaSettings, least: Mapping[str, int], timeout_s: float) -> dict[str, int]:
    """Brokers list a topic, or its new partitions, a moment after they were made. Gives the counts of all that are listed."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        listed = AdminClient(settings.client_config(log_level=4)).list_topics(timeout=timeout_s).topics
        counts = {name: len(topic.partitions) for name, topic in listed.items() if topic.error is None}
        # Another process may have made one with another count: that is what counts.
        if all(counts.get(name, 0) >= (count if name in SCHEDULING else 1) for name, count in least.items()):
            return counts
        if time.monotonic() > deadline_s:
            names = ", ".join(sorted(least))
            raise BusUnavailableError(f"{names}: made, but the brokers do not list them after {timeout_s:.0f} s; try again")
        time.sleep(0.1)


def grow_topics(settings: KafkaSettings, partitions: int, timeout_s: float = 30.0, *, dry_run: bool = False) -> Grow:
    """Records that the scheduler's topics have so many partitions, then adds them. Repeating it finishes one that was cut off.

    Raises ValueError where that cannot be; TopicsDifferError where another topic is not as recorded; BusUnavailableError.
    """
    topology, found = read_topology(settings, timeout_s=timeout_s)
    plan = grow_plan(topology, found, partitions)
    refusal = why_refused(topology, {name: count for name, count in found.items() if name not in SCHEDULING})
    if refusal:
        raise TopicsDifferError(refusal)
    if dry_run:
        return plan
    wanted = {topic: partitions for topic in SCHEDULING if topology.counts.get(topic) != partitions}
    known = unrecorded(topology, found, (name for name in found if name not in SCHEDULING))
    record(settings, known | wanted, wall_ms(), {topic: plan.before[topic] for topic in wanted})
    admin = AdminClient(settings.client_config(log_level=4))
    asked = [NewPartitions(topic, partitions) for topic in plan.missing]
    try:
        for future in (admin.create_partitions(asked, operation_timeout=timeout_s) if asked else {}).values():
            future.result(timeout_s)
    except (KafkaException, TimeoutError) as error:
        raise BusUnavailableError(f"partitions are recorded, but not all were added: {error}; run the same command again") from error
    _wait_until_listed(settings, dict.fromkeys(SCHEDULING, partitions), timeout_s)
    return plan


def _create(settings: KafkaSettings, wanted: Sequence[Topic], timeout_s: float) -> list[str]:
    admin = AdminClient(settings.client_config(log_level=4))
    topology, found = read_topology(settings, timeout_s=timeout_s)
    refusal = why_refused(topology, found, setting_of(settings))
    if refusal:
        raise TopicsDifferError(refusal)
    missing = {t.name: _count(t, topology.adopting(found), settings) for t in wanted if t.name not in found}
    known = {t.name: t for t in (*wanted, *rows_of(found))}
    _set(admin, [t for t in known.values() if t.extra and t.name in found], timeout_s)
    _make(admin, [known[name] for name in missing], missing, settings, timeout_s)
    counts = _wait_until_listed(settings, missing, timeout_s) if missing else found
    if TOPOLOGY in counts and (new := unrecorded(topology, counts, known)):
        record(settings, new, wall_ms())
    return list(missing)


def _count(topic: Topic, topology: Topology, settings: KafkaSettings) -> int:
    """With how many partitions a topic is made."""
    if topic.single_partition:
        return 1
    made_with = topology.made_with(settings.partitions)
    return topology.scheduling(made_with) if topic.name in SCHEDULING else made_with


def _make(admin: AdminClient, rows: Sequence[Topic], counts: Mapping[str, int], settings: KafkaSettings, timeout_s: float) -> None:
    replication = {"min.insync.replicas": "2"} if settings.replication >= 3 else {}
    asked = [
        NewTopic(t.name, num_partitions=counts[t.name], replication_factor=settings.replication, config=t.config() | replication)
        for t in rows
    ]
    for future in (admin.create_topics(asked, operation_timeout=timeout_s) if asked else {}).values():
        try:
            future.result(timeout_s)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


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
        raise BusUnavailableError(f"the settings of topics could not be made what readers rely on: {error}") from error


def topic_id(settings: KafkaSettings, topic: str, timeout_s: float = 15.0) -> str:
    """The id that a topic keeps until it is deleted; one that is made anew under the name has another. Blocks. Raises
    BusUnavailableError."""
    try:
        admin = AdminClient(settings.client_config(log_level=4))
        described = admin.describe_topics(TopicCollection([topic]), request_timeout=timeout_s)[topic].result(2 * timeout_s)
    except (KafkaException, TimeoutError) as error:
        raise BusUnavailableError(f"the brokers at {settings.bootstrap} did not describe {topic}: {error}; are they up?") from error
    return str(described.topic_id)
