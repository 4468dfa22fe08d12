"""Builds rows of ranks' events beside points and lines: checkpoints and environments; ignores records that no node of the job signed.

Holds: rows depend on the nodes' keys too; all tables here collapse repeats by their key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from threading import Event
from typing import Any

import pyarrow as pa

from trainhouse.events.model.errors import InvalidEvent
from trainhouse.events.wire.codec import decode
from trainhouse.events.wire.envelope import Envelope
from trainhouse.events.wire.topic_types import TOPIC_EVENTS
from trainhouse.events.wire.topics import CHECKPOINTS
from trainhouse.projections.ingest.builders.event_builder import FactsBuilder
from trainhouse.projections.ingest.builders.row_batch import Built
from trainhouse.projections.ingest.placements import Attempt
from trainhouse.projections.ingest.senders import Claim, Senders
from trainhouse.projections.record import Record, RowsFunction


class OfRanksBuilder(FactsBuilder):
    """FactsBuilder that asks of each record who sent it."""

    def __init__(self, functions: Mapping[str, Sequence[RowsFunction]], schemas: Mapping[str, pa.Schema], senders: Senders) -> None:
        super().__init__(functions, schemas)
        self._senders = senders
        self._refused: dict[int, str] = {}

    def ready(self, records: Sequence[Record], stop: Event) -> bool:
        """Waits until it is known who may have sent the records; False where `stop` was set before. Blocks; raises BusUnavailableError."""
        return self._senders.known(_claims(records), stop)

    def build(self, records: Sequence[Record], marks: dict[str, int]) -> Built:
        """The rows of the batch. Blocks on the brokers; raises BusUnavailableError."""
        claims = _claims(records)
        self._refused = {id(c.record): why for c, why in zip(claims, self._senders.refusals(claims), strict=True) if why}
        return super().build(records, marks)

    def envelopes(self, record: Record) -> Iterable[Envelope]:
        """The event of one record. Raises InvalidEvent, also where it is another's than a node of the job."""
        for envelope in super().envelopes(record):
            job_id = str(getattr(envelope.event, "job_id", ""))
            if not isinstance(envelope.event, TOPIC_EVENTS[record.topic]):
                raise InvalidEvent(f"type {envelope.type} does not belong on this topic", job_id=job_id)
            if why := self._refused.get(id(record)):
                raise InvalidEvent(why, job_id=job_id)
            yield envelope


def _claims(records: Sequence[Record]) -> list[Claim]:
    """Returns the claims of the records; none for those that cannot be read, since they make no row."""
    found = []
    for record in records:
        if record.value is None:
            continue
        try:
            event: Any = decode(record.value, record.headers).event
            attempt = Attempt(str(event.job_id), int(event.epoch), int(event.attempt))
        except (InvalidEvent, AttributeError):
            continue
        # Of a checkpoint no node is named; what else names none is no node's.
        node_id = getattr(event, "node_id", None)
        found.append(Claim(record, attempt, None if record.topic == CHECKPOINTS else str(node_id or "")))
    return found
