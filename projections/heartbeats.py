"""Builds rows of heartbeats that their nodes signed; what others sent in a node's name makes none.

Agents write to the topic of heartbeats, so a record there may be anybody's word. The detector sets aside what is not the named node's, says
so, and makes the dead letter; here it only makes no row.
Holds: rows depend on the nodes' keys too, so a replay may give others than the batch that was cut: its tables collapse repeats by their
key, and none of them is counted after a replay (registry.APPENDED).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import structlog

from trainhouse.events.envelope import Envelope
from trainhouse.events.node import NodeHeartbeat
from trainhouse.projections.built import Built
from trainhouse.projections.facts import FactsBuilder
from trainhouse.projections.node_keys import NodeKeys
from trainhouse.projections.record import Record, RowsFunction

_NAMED = 5
log = structlog.get_logger(__name__)


class HeartbeatsBuilder(FactsBuilder):
    """FactsBuilder that asks of each heartbeat whose it is."""

    def __init__(self, functions: Mapping[str, Sequence[RowsFunction]], schemas: Mapping[str, pa.Schema], keys: NodeKeys) -> None:
        super().__init__(functions, schemas)
        self._keys = keys
        self._refused: Counter[str] = Counter()

    def build(self, records: Sequence[Record], marks: dict[str, int]) -> Built:
        """The rows of the batch, by the keys as they are known after it was read. Blocks on the brokers; raises BusUnavailable."""
        self._keys.follow()
        self._refused.clear()
        built = super().build(records, marks)
        if self._refused:
            names = [node_id for node_id, _ in self._refused.most_common(_NAMED)]
            log.warning("heartbeats that are not their nodes' make no row", count=self._refused.total(), nodes=names)
        return built

    def envelopes(self, record: Record) -> Iterable[Envelope]:
        """The heartbeat of one record; none where it is not its node's. Raises InvalidEvent."""
        return [envelope for envelope in super().envelopes(record) if not self._is_anothers(envelope, record)]

    def _is_anothers(self, envelope: Envelope, record: Record) -> bool:
        beat = envelope.event
        if not isinstance(beat, NodeHeartbeat) or not self._keys.why_not_theirs(beat, record):
            return False
        self._refused[beat.node_id] += 1
        return True
