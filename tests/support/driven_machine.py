"""A machine with its state that is fed record by record, as its process would feed it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from trainhouse.events import Event, EventId, envelope_of
from trainhouse.events.wire.journal import ClockTicked
from trainhouse.scheduler.core.protocol.machine import Input, Machine

S = TypeVar("S")


@dataclass
class DrivenMachine(Generic[S]):
    """A machine, its state, and all that it decided. `records`: by time, inputs and decisions."""

    machine: Machine[S]
    now_ms: int = 1_795_000_000_000
    asked: int = 0
    decisions: list[Event] = field(default_factory=list)
    records: list[tuple[int, list[Input], list[Event]]] = field(default_factory=list)
    state: S = field(init=False)

    def __post_init__(self) -> None:
        self.state = self.machine.initial(0)

    def ask(self, event: Event, event_id: str = "", time_ms: int | None = None) -> list[Event]:
        """One record with one input; returns its decisions, EventSeen left out."""
        self.asked += 1
        made_at_ms = self.now_ms if time_ms is None else time_ms
        envelope = envelope_of(event, id=EventId(event_id or f"request-{self.asked}"), source="tests", now_ms=made_at_ms)
        return self.record([Input(self.asked, envelope)])

    def record(self, inputs: list[Input]) -> list[Event]:
        """One record; deciding leaves the state as it was."""
        before = self.machine.dump(self.state)
        decisions = self.machine.decide(self.state, self.now_ms, inputs)
        assert self.machine.dump(self.state) == before, "deciding changes nothing"
        self.state = self.machine.fold(self.state, self.now_ms, inputs, decisions)
        self.decisions += decisions
        self.records.append((self.now_ms, inputs, decisions))
        return [each for each in decisions if each.event_type != "trainhouse.directory.event-seen.v1"]

    def tick(self, after_s: float = 0.0) -> list[Event]:
        """A tick."""
        self.now_ms += round(after_s * 1000)
        return self.record([Input(None, envelope_of(ClockTicked(), id=EventId("tick"), source="trainhouse/owner", now_ms=self.now_ms))])
