"""What the tuner's process sends of prices: of each open study what the policy of its pool names, once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from tests.support.fakes.journal_fakes import FakeBroker, FakeLog
from tests.support.study_requests import OF_STUDY, Tuner
from trainhouse.events import EventId, StudyPriceObserved, StudyState, StudyStopRequested, decode, envelope_of
from trainhouse.events.model.pool import PolicyApplied
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.topics import POLICIES, STUDY_REQUESTS
from trainhouse.scheduler.core.protocol.machine import Input
from trainhouse.scheduler.stream.studies.price_sender import LOOK_S, PriceSender


@dataclass
class World:
    """A tuner, its sender of prices, and the topics between them."""

    tuner: Tuner = field(default_factory=Tuner)
    broker: FakeBroker = field(default_factory=FakeBroker)
    now_s: float = 100.0
    read: int = 0

    def __post_init__(self) -> None:
        clock: Any = SimpleNamespace(steady_s=lambda: self.now_s, now_ms=lambda: self.tuner.now_ms)
        self.sender = PriceSender(FakeLog(self.broker), clock, lambda: self.tuner.state)

    def policy(self, version: int, pool: str = "default", currency: str = "USD", **devices: float) -> None:
        prices = {"currency": currency, "devices": {name: {"reserved": price} for name, price in devices.items()}}
        policy = {"prices": prices} if devices else {}
        applied = PolicyApplied.model_validate({"pool": pool, "policy": policy, "version": version, "applied_at_ms": 1})
        self.put(encode(envelope_of(applied, id=EventId("p"), source="tests", now_ms=1)))

    def put(self, value: bytes) -> None:
        asyncio.run(FakeLog(self.broker).append(POLICIES, 0, value))

    def look(self, counts: bool = True) -> list[tuple[float | None, int, str]]:
        """What is sent now, which the tuner gets."""
        asyncio.run(self.sender.send_news())
        entries = [entry for (topic, _), log in self.broker.logs.items() if topic == STUDY_REQUESTS for entry in log][self.read :]
        self.read += len(entries)
        envelopes = [decode(each.entry.value or b"", each.entry.headers) for each in entries]
        if counts:
            for at, envelope in enumerate(envelopes):
                self.tuner.record([Input(1000 + self.read + at, envelope)])
        return [(e.event.price, e.event.policy_version, e.event.currency) for e in envelopes if isinstance(e.event, StudyPriceObserved)]


def test_a_new_study_gets_the_price_of_its_pool_and_each_new_one_once() -> None:
    world = World()
    world.policy(1, cpu=2.0)
    world.policy(7, pool="other", cpu=9.0)
    assert world.look() == [] and world.sender._read_to == -1, "nothing is read while there is no study"
    world.tuner.create(budget={"cost": 10.0})
    assert world.look() == [(2.0, 1, "USD")]
    assert world.look() == [] and world.tuner.study.price is not None
    world.policy(2, cpu=2.0)
    assert world.look() == [], "the same price"
    world.policy(3, cpu=4.0)
    assert world.look() == [(4.0, 3, "USD")] and world.tuner.study.price.per_hour == 4.0
    world.policy(4)
    assert world.look() == [], "the last one that a policy named counts"
    world.policy(5, currency="EUR", cpu=4.0)
    assert world.look() == [(4.0, 5, "EUR")] and world.tuner.has_ended() and world.look() == []


def test_what_does_not_count_yet_is_sent_again_after_a_while() -> None:
    world = World()
    world.policy(1, cpu=2.0)
    world.tuner.create()
    assert world.look(counts=False) == [(2.0, 1, "USD")] and world.look() == []
    world.now_s += LOOK_S
    assert world.look() == [(2.0, 1, "USD")]


def test_a_study_in_money_without_a_price_is_ended_and_another_one_is_left_alone() -> None:
    world = World()
    world.tuner.create(budget={"cost": 10.0})
    assert world.look() == [(None, 0, "")] and world.tuner.has_ended()
    other = World()
    other.policy(1, gpu=3.0)
    other.tuner.create()
    assert other.look() == []
    other.policy(2, any=1.0)
    assert other.look() == [(1.0, 2, "USD")]
    other.policy(3, currency="EUR", any=1.0)
    assert other.look() == [], "its costs stay in one currency"


def test_a_study_that_drains_needs_no_price_and_counts_a_new_one() -> None:
    world = World()
    world.tuner.create()
    world.tuner.fill()
    world.tuner.ask(StudyStopRequested.model_validate(OF_STUDY))
    assert world.tuner.study.state is StudyState.DRAINING
    assert world.look() == [], "it ends already, so the lack of a price cannot end it"
    world.policy(1, cpu=2.0)
    assert world.look() == [(2.0, 1, "USD")], "for what its trials have still to run"


def test_a_price_that_changes_while_the_last_trials_run_counts() -> None:
    world = World()
    world.policy(1, cpu=2.0)
    world.tuner.create(budget={"trials": 2, "cost": 10.0}, parallel=2)
    assert world.look() == [(2.0, 1, "USD")]
    world.tuner.fill()
    assert world.tuner.study.state is StudyState.DRAINING
    world.policy(2, cpu=20.0)
    assert world.look() == [(20.0, 2, "USD")]


def test_a_record_that_cannot_be_read_is_passed_over() -> None:
    world = World()
    world.policy(1, cpu=2.0)
    world.put(b"{")
    world.tuner.create()
    assert world.look() == [(2.0, 1, "USD")]


def test_a_study_that_begins_is_looked_at_at_once() -> None:
    world = World()
    world.tuner.create()
    asyncio.run(world.sender.after_record(None))  # type: ignore[arg-type]
    assert world.sender._changed.is_set()
    world.look()
    world.sender._changed.clear()
    asyncio.run(world.sender.after_record(None))  # type: ignore[arg-type]
    assert not world.sender._changed.is_set()
