"""Unreadable records to `dead_letters`: intake's dead-letter topic, and the projector's own.

Holds: (topic, partition, offset) of the bytes names one; intake's report wins over the projector's own.
"""

from trainhouse.events.model.dead_letter import MAX_REASON_CHARS, DeadLetter
from trainhouse.events.security.sensitive import masked_head
from trainhouse.projections.record import Record, Row, clamp_ms

HEAD_BYTES = 4096


def letter_row(record: Record) -> Row:
    """The row of a record of the dead-letter topic. Raises KeyError or ValueError when its headers are not a dead letter's."""
    letter = DeadLetter.of_headers([(k, v) for k, v in record.headers if v is not None])
    return _row(letter.topic, letter.partition, letter.offset, letter.reason, record, "intake", 1, letter.job_id, letter.event_id)


def unreadable_row(record: Record, reason: str, job_id: str = "", event_id: str = "") -> Row:
    """The row of a record that a projection could not read."""
    return _row(record.topic, record.partition, record.offset, reason, record, "projector", 0, job_id, event_id)


def _row(
    topic: str, partition: int, offset: int, reason: str, record: Record, seen_by: str, version: int, job_id: str, event_id: str
) -> Row:
    value = record.value or b""
    return Row(
        "dead_letters_rows",
        {
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "version": version,
            "seen_by": seen_by,
            "reason": reason[:MAX_REASON_CHARS],
            "job_id": job_id,
            "event_id": event_id,
            "size_bytes": len(value),
            "head": masked_head(value[:HEAD_BYTES].decode("utf-8", "replace")),
            "time": clamp_ms(record.timestamp_ms),
        },
    )
