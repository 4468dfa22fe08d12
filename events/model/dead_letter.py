"""Dead letters: the raw bytes of undecodable input travel as the record's value, this travels in its headers.

Holds: (topic, partition, offset) names a dead letter for ever, so a repeat is recognised. Of very large records the beginning is kept.
"""

from dataclasses import dataclass

PREFIX = "trainhouse-dead-letter-"
MAX_REASON_CHARS = 2048
# What is kept of bytes that do not count. Brokers measure what is compressed, so a record may be larger than its topic's limit by far.
MAX_KEPT_BYTES = 1024 * 1024


@dataclass(frozen=True)
class DeadLetter:
    """Reason that bytes could not be used, and their source."""

    topic: str
    partition: int
    offset: int
    reason: str
    job_id: str = ""
    event_id: str = ""

    @property
    def key(self) -> bytes:
        """The record's key: where the bytes came from."""
        return f"{self.topic}-{self.partition}-{self.offset}".encode()

    def headers(self) -> list[tuple[str, bytes]]:
        """As Kafka headers; the reason is cut to MAX_REASON_CHARS."""
        fields = {
            "topic": self.topic,
            "partition": str(self.partition),
            "offset": str(self.offset),
            "reason": self.reason[:MAX_REASON_CHARS],
            "job-id": self.job_id,
            "event-id": self.event_id,
        }
        return [(PREFIX + name, value.encode("utf-8", "replace")) for name, value in fields.items() if value]

    @classmethod
    def of_headers(cls, headers: list[tuple[str, bytes]]) -> "DeadLetter":
        """Reads it back. Raises KeyError when the headers are not a dead letter's."""
        found = {k.removeprefix(PREFIX): v.decode("utf-8", "replace") for k, v in headers if k.startswith(PREFIX)}
        return cls(
            topic=found["topic"],
            partition=int(found["partition"]),
            offset=int(found["offset"]),
            reason=found["reason"],
            job_id=found.get("job-id", ""),
            event_id=found.get("event-id", ""),
        )
