"""Builds rows of heartbeats that their nodes signed; what others sent in a node's name makes none.

Agents write to the topic of heartbeats, so a record there may be anybody's word. The detector sets aside what is not the named node's, says
so, and makes the dead letter; here it only makes no row.
Holds: rows depend on the nodes' keys too, so a replay may give others than the batch that was cut: its tables collapse repeats by their
key, and none of them is counted after a replay (registry.APPENDED).
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from threading import Event

import pyarrow as pa
import structlog

from trainhouse.events.model.errors import InvalidEvent
from trainhouse.events.model.node import AttemptHeartbeat, NodeHeartbeat
from trainhouse.events.wire.envelope import Envelope
from trainhouse.projections.ingest.builders.event_builder import FactsBuilder
from trainhouse.projections.ingest.builders.row_batch import Built
from trainhouse.projections.ingest.node_keys import NodeKeys
from trainhouse.projections.ingest.placements import Attempt
from trainhouse.projections.ingest.senders import Senders
from trainhouse.projections.record import Record, RowsFunction

_NAMED = 5
log = structlog.get_logger(__name__)


class HeartbeatsBuilder(FactsBuilder):
    """FactsBuilder that asks of each heartbeat whose it is."""

    def __init__(
        self, functions: Mapping[str, Sequence[RowsFunction]], schemas: Mapping[str, pa.Schema], keys: NodeKeys, senders: Senders
    ) -> None:
        super().__init__(functions, schemas)
        self._keys = keys
        self._senders = senders
        self._read: dict[int, list[Envelope]] = {}
        self._refused: Counter[str] = Counter()

    def ready(self, records: Sequence[Record], stop: Event) -> bool:
        """Waits until it is known which nodes the attempts were given; False where `stop` was set before. Blocks."""
        if not self._senders.required:
            return True
        self._read = {}
        for record in records:
            with contextlib.suppress(InvalidEvent):
                self._read[id(record)] = list(super().envelopes(record))
        beats = (e.event for found in self._read.values() for e in found)
        attempts = {_attempt(a) for beat in beats if isinstance(beat, NodeHeartbeat) for a in beat.attempts}
        return self._senders.known_attempts(attempts, stop)

    def build(self, records: Sequence[Record], marks: dict[str, int]) -> Built:
        """The rows of the batch, by the keys as they are known after it was read. Blocks on the brokers; raises BusUnavailableError."""
        self._keys.follow()
        self._refused.clear()
        built = super().build(records, marks)
        self._read = {}
        if self._refused:
            names = [node_id for node_id, _ in self._refused.most_common(_NAMED)]
            log.warning("heartbeats that are not their nodes' make no row", count=self._refused.total(), nodes=names)
        return built

    def envelopes(self, record: Record) -> Iterable[Envelope]:
        """The heartbeat of one record, without attempts that the node was not given; none where it is not its node's.

        Raises InvalidEvent.
        """
        found = self._read.pop(id(record), None)
        own = [e for e in (super().envelopes(record) if found is None else found) if not self._is_anothers(e, record)]
        return [self._of_given(e) for e in own] if self._senders.required else own

    def _of_given(self, envelope: Envelope) -> Envelope:
        beat = envelope.event
        if not isinstance(beat, NodeHeartbeat):
            return envelope
        given = tuple(a for a in beat.attempts if self._senders.has(_attempt(a), beat.node_id))
        return envelope if len(given) == len(beat.attempts) else replace(envelope, event=beat.model_copy(update={"attempts": given}))

    def _is_anothers(self, envelope: Envelope, record: Record) -> bool:
        beat = envelope.event
        if not isinstance(beat, NodeHeartbeat) or not self._keys.why_not_theirs(beat, record):
            return False
        self._refused[beat.node_id] += 1
        return True


def _attempt(beat: AttemptHeartbeat) -> Attempt:
    return Attempt(str(beat.job_id), int(beat.epoch), int(beat.attempt))
