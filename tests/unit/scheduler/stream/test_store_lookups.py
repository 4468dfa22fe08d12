"""Lookups in the store for the registry: what fails keeps up nothing of other models, and what is not known is not looked for again at
once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.registry_requests import PROJECT, Registry, content_of, facts_of, observed
from trainhouse.checkpointing.errors import (
    ChainConflictError,
    NoCheckpointError,
    ObjectStoreRefusedError,
    ObjectStoreUnavailableError,
    UnknownFormatError,
)
from trainhouse.client.models.model_store import ObjectModelStore
from trainhouse.events import Event, ModelContentObserved, ModelRegistered, ModelRequestRefused, ModelStageStored, VersionFacts, decode
from trainhouse.events.wire.topics import STATUS
from trainhouse.scheduler.core.registry.job_registrations import RegisteredCheckpoint
from trainhouse.scheduler.core.registry.registry_state import MAX_STAGES_OF_MODEL, StageChange
from trainhouse.scheduler.stream.model_interfaces import ContentRefusedError, KnownJob
from trainhouse.scheduler.stream.registry import store_lookups
from trainhouse.scheduler.stream.registry.store_lookups import MOST_AT_ONCE, UNKNOWN_S, StoreLookups


@dataclass
class Store:
    """A store in which chains of some models are broken, and some contents cannot be looked at."""

    broken: tuple[str, ...] = ()
    tried: list[str] = field(default_factory=list)

    def facts(self, registered: ModelRegistered) -> VersionFacts:
        if registered.name in self.broken:
            raise ObjectStoreUnavailableError("no answer")
        return facts_of(2)

    def append(self, change: StageChange) -> None:
        self.tried.append(change.id)
        if change.name in self.broken:
            raise ChainConflictError("two registries write to one store")


@dataclass
class Topics:
    """Brokers whose topics are empty. `scans`: how often the statuses were read."""

    sent: list[Event] = field(default_factory=list)
    scans: int = 0

    async def send(self, topic: str, key: bytes, value: bytes) -> None:
        self.sent.append(decode(value, ()).event)

    async def partitions(self, topic: str) -> list[int]:
        self.scans += topic == STATUS
        return []


class Looks:
    """Lookups for a registry, look by look."""

    def __init__(self, registry: Registry, *broken: str) -> None:
        self.registry, self.store, self.topics, self.now_s = registry, Store(broken), Topics(), 0.0
        clock: Any = SimpleNamespace(steady_s=lambda: self.now_s, now_ms=lambda: registry.now_ms)
        log: Any = self.topics
        self.lookups = StoreLookups(log, clock, self.store)

    def look(self) -> list[Event]:
        """What one look answers."""
        follower: Any = SimpleNamespace(folded=SimpleNamespace(state=self.registry.state))
        before = len(self.topics.sent)

        async def run() -> None:
            await self.lookups.after_record(follower)
            if self.lookups._looking is not None:
                await self.lookups._looking

        asyncio.run(run())
        self.now_s += 2
        return self.topics.sent[before:]


def register(registry: Registry, name: str, number: int, is_found: bool) -> None:
    """Asks for a registration; `is_found`: its content is found, so that its stage record waits."""
    request_id = f"{name}-{number}"
    registry.ask(ModelRegistered(project=PROJECT, name=name, content=content_of(number), user="ada"), request_id)
    if is_found:
        registry.ask(observed(request_id, facts_of(number), name=name))


def test_a_broken_chain_keeps_up_only_its_own_model() -> None:
    registry = Registry()
    for number in range(1, MOST_AT_ONCE + 2):
        register(registry, "broken", number, is_found=True)
    register(registry, "sound", 1, is_found=True)
    register(registry, "fine", 2, is_found=False)
    looks = Looks(registry, "broken")
    answers = [each for _ in range(3) for each in looks.look()]
    stored = [each.name for each in answers if isinstance(each, ModelStageStored)]
    found = [each.name for each in answers if isinstance(each, ModelContentObserved)]
    assert (stored, found) == (["sound"], ["fine"])
    assert {each.rpartition("@")[2] for each in looks.store.tried if "broken" in each} == {"1"}, (
        "later records of its chain wait for the first"
    )


def test_a_model_whose_records_wait_for_too_long_refuses_its_own_requests_alone() -> None:
    registry = Registry()
    for number in range(MAX_STAGES_OF_MODEL):
        register(registry, "broken", number, is_found=True)
    for name, is_refused in (("broken", True), ("fine", False)):
        asked = ModelRegistered(project=PROJECT, name=name, content=content_of(9999), user="ada")
        assert isinstance(registry.ask(asked)[0], ModelRequestRefused) is is_refused, name


def test_a_registration_that_fails_keeps_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry()
    monkeypatch.setattr(store_lookups, "MOST_AT_ONCE", 10)
    for number in range(10):
        register(registry, "broken", number + 10, is_found=False)
    register(registry, "fine", 2, is_found=False)
    looks = Looks(registry, "broken")
    assert [each.name for _ in range(2) for each in looks.look()] == ["fine"]


def test_a_job_that_is_not_known_is_not_looked_for_again_at_once() -> None:
    registry = Registry()
    for number in (2, 3):
        register(registry, "fine", number, is_found=False)
    looks = Looks(registry)
    assert len(looks.look()) == 2 and looks.topics.scans == 1
    looks.now_s += UNKNOWN_S / 2
    assert len(looks.look()) == 2 and looks.topics.scans == 1
    looks.now_s += UNKNOWN_S / 2
    assert len(looks.look()) == 2 and looks.topics.scans == 2
    for answer in looks.topics.sent:
        assert isinstance(answer, ModelContentObserved) and answer.facts is not None and "job" in answer.facts.missing


def test_a_job_whose_spec_is_on_no_topic_any_more_is_said_to_have_unknown_data(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry()
    facts = facts_of(2, data=(), splits=(), missing=("data",))
    answers = []
    for has_spec in (True, False):

        async def known(*_: object, has_spec: bool = has_spec) -> KnownJob:
            return KnownJob(PROJECT, "ada", has_spec=has_spec)

        monkeypatch.setattr(store_lookups, "read_job", known)
        register(registry, f"fine-{has_spec}".lower(), 2, is_found=False)
        looks = Looks(registry)
        monkeypatch.setattr(looks.store, "facts", lambda _: facts)
        answers.append(looks.look()[-1])
    found = [each.facts.missing for each in answers if isinstance(each, ModelContentObserved) and each.facts is not None]
    assert found == [("data",), ("data", "spec")]


def test_a_bad_content_is_refused_and_a_store_that_is_away_or_refuses_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    registered = ModelRegistered(project=PROJECT, name="resnet", content=content_of(1))
    store = ObjectModelStore(objects=SimpleNamespace())  # type: ignore[arg-type]  # not reached
    for error, raised in (
        (UnknownFormatError("format 9"), ContentRefusedError),
        (ObjectStoreUnavailableError("away"), ObjectStoreUnavailableError),
        (ObjectStoreRefusedError("403 AccessDenied"), ObjectStoreRefusedError),
        (NoCheckpointError("none"), ContentRefusedError),
    ):

        def check(*args: object, error: Exception = error, **named: object) -> None:
            raise error

        monkeypatch.setattr("trainhouse.checkpointing.models.version_content.check_version", check)
        monkeypatch.setattr("trainhouse.checkpointing.models.version_content.prepare_version", check)
        with pytest.raises(raised):
            store.facts(registered)
        with pytest.raises(raised):
            store.prepare(RegisteredCheckpoint(PROJECT, "train-1", 3))
