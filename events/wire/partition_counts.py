"""Partition counts of the topics: what is recorded when a topic is made, and how the brokers and the settings may differ from it.

Holds: jobs, nodes and pools are bound to partitions by number or by the hash of a key, so a count never changes by itself: `trainhouse
topics grow` alone changes it, for the scheduler's topics, whose records name their partition. The functions are pure.
Never: asks the brokers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from trainhouse.events.wire.project_topics import JOBS_PREFIX
from trainhouse.events.wire.topics import ADMISSION, ALLOCATIONS, CONTROL, DECISIONS, DIRECTORY, JOBS, PROGRESS

SCHEDULING: Final = (CONTROL, DECISIONS, ALLOCATIONS, PROGRESS)
"""Records of these name their partition, that of their pool: these can grow."""
EQUAL: Final = (SCHEDULING, (ADMISSION, DIRECTORY))
"""Topics of which partition n of one belongs to partition n of the other."""
SETTING: Final = "[kafka] partitions (TRAINHOUSE_KAFKA_PARTITIONS)"


@dataclass(frozen=True)
class Topology:
    """The recorded counts, by topic; empty on brokers of before there were records."""

    counts: Mapping[str, int] = field(default_factory=dict)

    def adopting(self, found: Mapping[str, int]) -> "Topology":
        """With the brokers' counts of what is not recorded."""
        return Topology({**found, **self.counts})

    def made_with(self, default: int) -> int:
        """The count with which topics are made: that of the topics which never grow."""
        return self.counts.get(ADMISSION, default)

    def scheduling(self, default: int) -> int:
        """Number of partitions that a pool may be on."""
        return self.counts.get(CONTROL, self.made_with(default))


def topology_of(values: Iterable[bytes | None]) -> Topology:
    """From the values of the topic of records, oldest first. Passes over what it cannot read."""
    # Only here: commands that show the counts load no models.
    from trainhouse.events.model.errors import InvalidEvent
    from trainhouse.events.model.topic_record import TopicRecorded
    from trainhouse.events.wire.codec import HEADERS, decode

    counts: dict[str, int] = {}
    for value in values:
        try:
            event = decode(value, HEADERS).event
        except InvalidEvent:
            continue
        if isinstance(event, TopicRecorded):
            counts[event.topic] = event.partitions
    return Topology(counts)


def may_have_more(topic: str) -> bool:
    """Whether nothing rests on where a topic's records are: requests are read alike from any partition."""
    return topic == JOBS or topic.startswith(JOBS_PREFIX)


def why_refused(topology: Topology, found: Mapping[str, int], setting: int | None = None) -> str:
    """Describes the differences and the way out, in one sentence; empty if there are none. `setting`: the count in the settings, if set.

    `found`: the brokers' counts, of the topics that this process may see. Fewer than recorded in the scheduler's topics is a grow that was
    cut off: what is there can be used.
    """
    return _setting(topology.adopting(found), setting) or _grown(topology, found) or _fixed(topology, found) or _unequal(topology, found)


def _setting(topology: Topology, setting: int | None) -> str:
    if setting is None:
        return ""
    made, scheduling = topology.made_with(setting), topology.scheduling(setting)
    if setting in (made, scheduling):
        return ""
    grow = f", or run `trainhouse topics grow --partitions {setting}`, and then set it" if setting > scheduling else ""
    return f"{SETTING} is {setting}, but the topics have {scheduling} partitions: set it to {scheduling}, or leave it out{grow}" + (
        f" ({made} where records are spread by their key)" if made != scheduling else ""
    )


def _grown(topology: Topology, found: Mapping[str, int]) -> str:
    for topic in SCHEDULING:
        recorded, now = topology.counts.get(topic), found.get(topic)
        if recorded is not None and now is not None and now > recorded:
            return (
                f"topic {topic} has {now} partitions, and {recorded} are recorded: somebody added partitions to it by other means; "
                f"run `trainhouse topics grow --partitions {now}`, which takes them into use"
            )
    return ""


def _fixed(topology: Topology, found: Mapping[str, int]) -> str:
    for topic in sorted(topology.counts.keys() & found.keys()):
        recorded, now = topology.counts[topic], found[topic]
        if recorded == now or topic in SCHEDULING or (may_have_more(topic) and now > recorded):
            continue
        return (
            f"topic {topic} has {now} partitions, and {recorded} are recorded: its records are spread by the hash of their key over "
            f"{recorded}, so with {now} the records of one key would be in two partitions; make it anew with {recorded} from a backup "
            "(Kafka takes no partitions away), and start again"
        )
    return ""


def _unequal(topology: Topology, found: Mapping[str, int]) -> str:
    """On brokers of before there were records, or where a grow was cut off."""
    for names in EQUAL:
        counts = {name: found[name] for name in names if name in found and name not in topology.counts}
        if len(set(counts.values())) > 1:
            counted = ", ".join(f"{name} has {count}" for name, count in counts.items())
            grow = f"; run `trainhouse topics grow --partitions {max(counts.values())}`" if names is SCHEDULING else ""
            return f"these topics must have equally many partitions: {counted}{grow}"
    return ""


@dataclass(frozen=True)
class Grow:
    """Plan of `topics grow`: `counts` is recorded first, then the brokers are asked to add what is missing."""

    partitions: int
    before: Mapping[str, int]

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(topic for topic, count in self.before.items() if count < self.partitions)


def grow_plan(topology: Topology, found: Mapping[str, int], partitions: int) -> Grow:
    """Raises ValueError, with what to do, where the topics cannot be made to have so many partitions."""
    from trainhouse.events.model.topic_record import MOST_PARTITIONS

    absent = [topic for topic in SCHEDULING if topic not in found]
    if absent:
        raise ValueError(f"topic {absent[0]} is not there; make the topics first (`trainhouse up` does)")
    if partitions > MOST_PARTITIONS:
        raise ValueError(f"at most {MOST_PARTITIONS} partitions are allowed")
    least = max(*(found[topic] for topic in SCHEDULING), topology.scheduling(1))
    if partitions < least:
        raise ValueError(f"there are {least} partitions already, and Kafka takes none away: give --partitions {least} or more")
    return Grow(partitions, {topic: found[topic] for topic in SCHEDULING})
