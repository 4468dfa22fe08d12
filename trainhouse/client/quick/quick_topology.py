"""Partition counts of the topics, recorded and on the brokers, read without models."""

from trainhouse.client.quick.quick_topics import QuickTopics
from trainhouse.events.wire.partition_counts import Topology
from trainhouse.events.wire.project_topics import rows_of
from trainhouse.events.wire.topics import TOPICS, TOPOLOGY

RECORDED = "trainhouse.topic.recorded.v1"


def quick_topology(topics: QuickTopics) -> tuple[Topology, dict[str, int], int | None]:
    """Recorded counts, the brokers' counts of our topics, and that of the settings, if set. Blocks. Raises NotQuickError."""
    listed = topics.counts()
    ours = {row.name for row in (*TOPICS, *rows_of(listed))}
    found = {name: count for name, count in listed.items() if name in ours}
    recorded = topics.read(TOPOLOGY, RECORDED) if TOPOLOGY in found else []
    return Topology({event.topic: event.partitions for _, event in recorded if event is not None}), found, topics.partitions
