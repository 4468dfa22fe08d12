"""Member of a consumer group over a broker in memory."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from aiokafka import TopicPartition

from tests.support.fakes.journal_fakes import FakeBroker
from trainhouse.events.wire.topics import METRICS, STATUS, TRACKED_METRICS


@dataclass
class Member:
    """A consumer over the fake broker's topics, which may be given less than there is."""

    broker: FakeBroker
    at: dict[TopicPartition, int] = field(default_factory=dict)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    resting: set[TopicPartition] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.at = {
            TopicPartition(topic, 0): self.committed.get(TopicPartition(topic, 0), 0) for topic in (STATUS, METRICS, TRACKED_METRICS)
        }

    def assignment(self) -> set[TopicPartition]:
        return set(self.at)

    def pause(self, *places: TopicPartition) -> None:
        self.resting |= set(places)

    def paused(self) -> set[TopicPartition]:
        return set(self.resting)

    def resume(self, *places: TopicPartition) -> None:
        self.resting -= set(places)

    def seek(self, place: TopicPartition, offset: int) -> None:
        self.at[place] = offset

    async def getmany(self, **_: Any) -> dict[TopicPartition, list[Any]]:
        found = {}
        for place, offset in self.at.items():
            entries = [] if place.topic in self.held or place in self.resting else self.broker.committed(place.topic, 0)[offset:]
            found[place] = [
                SimpleNamespace(partition=0, offset=each.offset, timestamp=0, key=each.key, value=each.value, headers=each.headers)
                for each in entries
            ]
            self.at[place] += len(entries)
        return found

    async def position(self, place: TopicPartition) -> int:
        return self.at[place]

    async def commit(self, positions: dict[TopicPartition, int]) -> None:
        self.committed |= positions
