"""A model in service, as its servers report it: references, hourly windows with histograms and labels; measured as alerts measure them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.support.tables.alert_tables import HOUR_MS, Tables
from trainhouse.events import Event, PredictionsObserved, ReferenceRecorded, envelope_of
from trainhouse.events.model.dataset_profile import FieldProfile, ValueCounts
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.envelope import Envelope
from trainhouse.projections.alerts.model_watch import ModelWatch
from trainhouse.projections.record import Record
from trainhouse.workers.evaluation.drift import sketch_of
from trainhouse.workers.evaluation.observed_drift import observed_drift

OFFSETS = itertools.count(10_000)


@dataclass
class ServiceStory:
    """Observations of one model, up to a moment. `put` brings them into the tables, and measures them."""

    tables: Tables
    project: str
    name: str
    now_ms: int
    events: list[Event] = field(default_factory=list)
    measured: int = 0

    def reference(self, version: int, source: str, inputs: Mapping[str, FieldProfile], outputs: Mapping[str, FieldProfile]) -> None:
        count = max(each.samples for each in (*inputs.values(), *outputs.values()))
        about = {"count": count, "source": source, "inputs": inputs, "outputs": outputs}
        self.events.append(ReferenceRecorded.model_validate(self._of(version) | about))

    def window(self, version: int, hours_ago: int, **fields: Any) -> None:
        """An hour that ended so many hours ago."""
        end_ms = self.now_ms - self.now_ms % HOUR_MS - hours_ago * HOUR_MS
        about = {"count": 0, "window_start_ms": end_ms - HOUR_MS, "window_end_ms": end_ms}
        self.events.append(PredictionsObserved.model_validate(self._of(version) | about | fields))

    def put(self) -> None:
        """All of it since the last time."""
        if self.events:
            self.tables.put_records([self._record(event, next(OFFSETS)) for event in self.events])
        self.events = []
        watch, before = ModelWatch(self.tables.ask, self._publish, observed_drift, ()), -1
        while before != self.measured:  # each turn measures one window at least
            before = self.measured
            watch.turn(self.now_ms, [])

    def _publish(self, topic: str, envelopes: Sequence[Envelope]) -> None:
        self.tables.put(topic, [each.event for each in envelopes])
        self.measured += len(envelopes)

    def _record(self, event: Event, offset: int) -> Record:
        value = encode(envelope_of(event, id=f"observed-{offset}", source="tests", now_ms=self.now_ms))
        return Record(topics.OBSERVATIONS, 0, offset, self.now_ms, b"", value)

    def _of(self, version: int) -> dict[str, Any]:
        return {"project": self.project, "name": self.name, "version": version, "user": "server-1"}


def numbers(rng: np.random.Generator, mean: float, spread: float, count: int) -> FieldProfile:
    """Histogram of normal numbers."""
    return FieldProfile(samples=count, numbers=sketch_of(rng.normal(mean, spread, count)))


def texts(counts: Mapping[str, int]) -> FieldProfile:
    """Counts of texts."""
    return FieldProfile(samples=sum(counts.values()), values=ValueCounts(distinct=len(counts), top=dict(counts)))


def labels(prefix: str, values: Iterable[float]) -> dict[str, float]:
    """Outcomes by prediction id."""
    return {f"{prefix}-{n}": float(value) for n, value in enumerate(values)}
