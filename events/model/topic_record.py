"""The record of a topic: how many partitions it was made with, or grew to."""

from typing import Final

from pydantic import Field

from trainhouse.events.model.base import Event
from trainhouse.events.model.bounds import SmallCount, TimestampMs

MOST_PARTITIONS: Final = 1024


class TopicRecorded(Event, type="trainhouse.topic.recorded.v1"):
    """Number of partitions of a topic, from its making or its last grow on. `was`: before that grow; 0 for one that never grew."""

    topic: str = Field(min_length=1, max_length=249, description="name of the topic")
    partitions: int = Field(ge=1, le=MOST_PARTITIONS, description="partitions from here on")
    was: SmallCount = Field(0, description="partitions before; 0: none were recorded")
    at_ms: TimestampMs

    def subject(self) -> str:
        return self.topic
