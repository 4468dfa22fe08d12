"""Registrations that specs ask for: one request for each job that succeeds, whenever its sender is killed; what fails keeps up no other."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fakes.journal_fakes import FakeBroker, FakeLog
from tests.support.profiles import examples
from tests.support.registry_requests import NAME, PROJECT, VALIDATION, Registry, content_of, facts_of, observed
from trainhouse.events import (
    AskedVia,
    Event,
    JobSpec,
    JobState,
    JobStatus,
    JobSubmitted,
    ModelRegistered,
    ModelRequestRefused,
    ModelVersionRegistered,
    decode,
    envelope_of,
)
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.envelope import Envelope
from trainhouse.events.wire.topics import JOBS, MODEL_REQUESTS
from trainhouse.scheduler.core.protocol.machine import Input
from trainhouse.scheduler.core.registry.job_registrations import RegisteredCheckpoint, asks_for_version, checkpoint_of, registration
from trainhouse.scheduler.core.registry.registry_state import HELD_FOR_MS, MAX_HELD, PROJECT_SHARE
from trainhouse.scheduler.core.registry.room import JOBS_SHARE
from trainhouse.scheduler.stream.interfaces import Entry
from trainhouse.scheduler.stream.model_interfaces import ContentRefusedError
from trainhouse.scheduler.stream.registry import job_end_watch, status_requests
from trainhouse.scheduler.stream.registry.job_end_watch import JobRegistrations

CODE = "d" * 64
SPEC = JobSpec.model_validate(
    {
        "runtime": {"command": ["train"]},
        "project": PROJECT,
        "user": "ada",
        "register": NAME,
        "data": {"dataset": VALIDATION, "split": "train"},
        "code": {"uri": "s3://b/c", "sha256": CODE},
    }
)


def status(number: int, state: JobState = JobState.SUCCEEDED, **changes: Any) -> JobStatus:
    """Status of job train-N, whose commit is N."""
    fields: dict[str, Any] = {
        "job_id": f"train-{number}",
        "status_seq": 9,
        "state": state,
        "project": PROJECT,
        "user": "ada",
        "spec_sha256": SPEC.sha256(),
        "registers": NAME,
        "last_checkpoint": {"commit": number, "step": 10, "uri": "s3://b", "completed_at_ms": 5},
        "finished_at_ms": 1_795_000_000_000,
    }
    return JobStatus.model_validate(fields | changes)


def entry(event: Event, offset: int, partition: int = 0) -> Entry:
    """An event as it lies on the status topic."""
    return Entry(partition, offset, 1, b"job", encode(envelope_of(event, id=f"{partition}-{offset}", source="tests", now_ms=1)))


@dataclass
class Store:
    """A store that is away for some jobs, and has checkpoints of others that no version can be made of."""

    away: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    prepared: list[RegisteredCheckpoint] = field(default_factory=list)

    def prepare(self, checkpoint: RegisteredCheckpoint) -> str:
        if checkpoint.job_id in self.away:
            raise ConnectionError("no answer")
        if checkpoint.job_id in self.refused:
            raise ContentRefusedError("it is damaged")
        self.prepared.append(checkpoint)
        return content_of(checkpoint.commit)

    def facts(self, registered: ModelRegistered) -> Any:
        raise NotImplementedError

    def append(self, change: Any) -> None:
        raise NotImplementedError


@dataclass
class Sender:
    """Senders over one broker, one after the other, and the store; the registry, as far as it has read."""

    broker: FakeBroker = field(default_factory=FakeBroker)
    store: Store = field(default_factory=Store)
    now_s: float = 0.0
    registry: Registry = field(default_factory=Registry)

    def start(self) -> JobRegistrations:
        """A process that has just begun."""
        clock: Any = SimpleNamespace(steady_s=lambda: self.now_s)
        return JobRegistrations(FakeLog(self.broker), clock, self.store, lambda: self.registry.state)

    def read(self) -> None:
        """The registry reads what it was asked."""
        for request in self.requests()[self.registry.asked :]:
            self.registry.record([Input(self.registry.asked, request)])
            self.registry.asked += 1

    def answer(self) -> None:
        """The store's answers come for all that is held."""
        for held in list(self.registry.state.held.values()):
            commit = held.registered.commit
            about = {"project": held.registered.project, "name": held.registered.name, "digest": held.digest}
            facts = None if commit is None else facts_of(commit, project=held.registered.project)
            refusal = {"refusal": "it has no checkpoint"} if facts is None else {}
            answer = observed(str(held.request_id), facts, **about, **refusal)
            self.registry.record([Input(None, envelope_of(answer, id="answer", source="tests", now_ms=1))])

    def versions(self) -> list[str]:
        """Jobs of the versions that there are."""
        return sorted(str(each.facts.job_id) for each in self.registry.decisions if isinstance(each, ModelVersionRegistered))

    def requests(self) -> list[Envelope]:
        """All that the registry was asked."""
        found = [stored.entry for (topic, _), log in self.broker.logs.items() if topic == MODEL_REQUESTS for stored in log]
        return [decode(each.value or b"", each.headers) for each in found]


def sent_by(sender: Sender, registrations: JobRegistrations, entries: list[Entry]) -> list[Envelope]:
    """The requests after one round, all of which were answered."""
    sent = asked_by(sender, registrations, entries)
    sender.read()
    sender.answer()
    asyncio.run(registrations.send_due())
    return sent


def asked_by(sender: Sender, registrations: JobRegistrations, entries: list[Entry]) -> list[Envelope]:
    """The requests after one round."""

    async def run() -> None:
        registrations.take(entries)
        await registrations.send_due()

    asyncio.run(run())
    return sender.requests()


def test_a_job_that_succeeds_asks_once_for_its_last_commit_with_code_data_and_submitter() -> None:
    sender = Sender()
    submission = encode(envelope_of(JobSubmitted.model_validate({"job_id": "train-3", "spec": SPEC}), id="s", source="tests", now_ms=1))
    asyncio.run(FakeLog(sender.broker).send(JOBS, b"x", submission))
    entries = [
        entry(status(3, JobState.RUNNING), 0),
        entry(status(4, JobState.FAILED), 1),
        entry(status(5, registers=None), 2),
        entry(status(3), 3),
    ]
    [request] = sent_by(sender, registrations := sender.start(), entries)
    assert (request.id, request.time_ms) == ("train-3:registered", 1_795_000_000_000)
    asked = request.event
    assert isinstance(asked, ModelRegistered) and asked.requested_by is not None
    assert (asked.project, asked.name, asked.content, asked.job_id, asked.commit) == (PROJECT, NAME, content_of(3), "train-3", 3)
    assert (asked.user, asked.requested_by.name, asked.requested_by.via) == ("ada", "ada", AskedVia.OPERATOR)
    assert asked.splits == (f"{VALIDATION}/train",)
    assert sender.store.prepared == [RegisteredCheckpoint(PROJECT, "train-3", 3, CODE, (VALIDATION,), (f"{VALIDATION}/train",))]
    assert registrations.positions() == {0: 4}


def test_a_project_vouches_for_the_submitters_of_its_own_topic_alone() -> None:
    def by(**changes: Any) -> Any:
        asked = registration(status(3, **changes), None, None).event
        assert isinstance(asked, ModelRegistered)
        return asked.requested_by

    own = by(job_id=f"{PROJECT}.t", user=f"{PROJECT}/ada")
    assert (own.name, own.via, own.project) == (f"{PROJECT}/ada", AskedVia.PROJECT, PROJECT)
    assert by(user=f"{PROJECT}/ada").via is AskedVia.OPERATOR
    assert by(job_id=f"{PROJECT}.t").via is AskedVia.OPERATOR
    assert by(user="").name == "unknown"


def test_only_a_success_asks_and_without_a_checkpoint_the_registry_gets_no_content() -> None:
    assert [state for state in JobState if asks_for_version(status(1, state))] == [JobState.SUCCEEDED]
    none = status(1, last_checkpoint=None)
    assert checkpoint_of(none, SPEC) is None
    asked = registration(none, None, None).event
    assert isinstance(asked, ModelRegistered) and (asked.content, asked.commit, asked.job_id) == (None, None, "train-1")
    checkpoint = checkpoint_of(status(7), None)
    assert checkpoint == RegisteredCheckpoint(PROJECT, "train-7", 7), "a spec that is on no topic any more gives neither code nor data"


def test_what_fails_for_one_job_keeps_up_no_other_and_its_status_is_read_again() -> None:
    sender = Sender()
    sender.store.away, sender.store.refused = {"train-1"}, {"train-2"}
    registrations = sender.start()
    requests = sent_by(sender, registrations, [entry(status(n), n) for n in (1, 2, 3)])
    contents = {str(each.id): each.event.content for each in requests if isinstance(each.event, ModelRegistered)}
    assert contents == {"train-2:registered": None, "train-3:registered": content_of(3)}
    assert registrations.positions() == {0: 1}, "what waits is before all that may be committed"
    sender.store.away = set()
    assert len(sent_by(sender, registrations, [])) == 2, "it is tried again, but not at once"
    sender.now_s = 2.0
    assert len(sent_by(sender, registrations, [])) == 3
    assert registrations.positions() == {0: 4}


@pytest.mark.parametrize("commits", [True, False])
def test_a_spec_is_read_once_and_the_content_prepared_each_time(monkeypatch: pytest.MonkeyPatch, commits: bool) -> None:
    sender, reads = Sender(), []
    read_spec = job_end_watch.read_spec

    async def counted(*args: Any) -> JobSpec | None:
        reads.append(args)
        return await read_spec(*args)

    monkeypatch.setattr(job_end_watch, "read_spec", counted)
    registrations, ended = sender.start(), status(1) if commits else status(1, last_checkpoint=None)
    for number in range(3):  # the registry does not read, as while it is away
        sender.now_s += 100.0
        assert len(asked_by(sender, registrations, [] if number else [entry(ended, 0)])) == number + 1
    assert (len(reads), len(sender.store.prepared)) == ((1, 3) if commits else (0, 0)), "without a commit its spec says nothing"


def test_no_more_than_a_bound_wait_and_those_of_other_members_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_requests, "MOST_WAITING", 2)
    sender = Sender()
    sender.store.away = {"train-1", "train-2"}
    registrations = sender.start()
    full = []
    for number in (1, 2):
        sent_by(sender, registrations, [entry(status(number), 5 + 2 * number, partition=number - 1)])
        full.append(registrations.is_full)
    registrations.keep({1})
    assert [*full, registrations.is_full] == [False, True, False]
    assert registrations.positions() == {1: 9}


def test_a_round_ends_before_the_group_would_give_its_partitions_to_others() -> None:
    sender = Sender()
    registrations = sender.start()
    prepare = sender.store.prepare

    def slow(checkpoint: RegisteredCheckpoint) -> str:
        sender.now_s += 6.0
        return prepare(checkpoint)

    sender.store.prepare = slow  # type: ignore[method-assign]
    assert len(asked_by(sender, registrations, [entry(status(n), n) for n in (1, 2, 3)])) == 2
    sender.read()
    sender.answer()
    assert len(sent_by(sender, registrations, [])) == 3
    assert registrations.positions() == {0: 4}


def test_a_status_waits_until_the_registry_has_answered_for_good() -> None:
    sender = Sender()
    registrations = sender.start()
    assert len(asked_by(sender, registrations, [entry(status(1), 0)])) == 1
    assert registrations.positions() == {0: 0}
    sender.read()
    sender.now_s = 100.0
    assert len(asked_by(sender, registrations, [])) == 1, "what is held is not sent again"
    sender.registry.now_ms += HELD_FOR_MS
    assert "ask again" in str(sender.registry.tick())
    assert len(asked_by(sender, registrations, [])) == 2
    sender.read()
    sender.answer()
    asyncio.run(registrations.send_due())
    assert (registrations.positions(), sender.versions()) == ({0: 1}, ["train-1"])


def test_a_burst_of_jobs_takes_no_more_room_than_there_is_and_all_become_versions() -> None:
    sender = Sender()
    registrations, most = sender.start(), MAX_HELD // PROJECT_SHARE // JOBS_SHARE
    jobs = [entry(status(n), n) for n in range(1, 151)]
    other = entry(status(200, project="speech"), 200)
    assert len(asked_by(sender, registrations, [*jobs, other])) == most + 1, "another project has its own room"
    for _ in range(4):
        sender.read()
        assert len(sender.registry.state.held) <= most + 1
        sender.answer()
        sender.now_s += 10.0
        asyncio.run(registrations.send_due())
    assert len(sender.versions()) == 151 and registrations.positions() == {0: 201}
    assert not [each for each in sender.registry.decisions if isinstance(each, ModelRequestRefused)]


def test_what_the_registry_says_to_ask_again_is_sent_again_by_whichever_process() -> None:
    sender = Sender()
    for number in range(100, 200):
        sender.registry.ask(ModelRegistered(project=PROJECT, name="other", content=content_of(number)))
    held, sender.registry.state.held = sender.registry.state.held, {}
    sender.registry.asked = 0
    entries = [entry(status(1), 0)]
    assert len(asked_by(sender, sender.start(), entries)) == 1
    sender.registry.state.held = held  # it was full when it read the request
    sender.read()
    assert isinstance(sender.registry.decisions[-1], ModelRequestRefused)
    later = sender.start()
    assert len(asked_by(sender, later, entries)) == 1 and later.positions() == {0: 0}, "there is no room"
    held.clear()
    assert len(sent_by(sender, later, [])) == 2
    assert (later.positions(), sender.versions()) == ({0: 1}, ["train-1"])


@settings(max_examples=examples(60))
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=6),
)
def test_a_sender_that_is_killed_at_any_step_registers_each_job_once(jobs: list[int], kills: list[tuple[int, bool]]) -> None:
    """Each sender begins from the position that was committed last; it is killed after so many steps, perhaps before its commit."""
    sender, committed = Sender(), 0
    entries = [entry(status(number), offset) for offset, number in enumerate(jobs)]
    for steps, is_committed in [*kills, (1_000, True)]:
        registrations = sender.start()
        asyncio.run(_run_for(registrations, entries[committed:], steps))
        if steps >= 1_000:
            sent_by(sender, registrations, [])
        if is_committed:
            committed = registrations.positions().get(0, committed)
        sender.read()
        sender.answer()
    assert committed == len(entries)
    assert sender.versions() == sorted({f"train-{number}" for number in jobs})


async def _run_for(registrations: JobRegistrations, entries: list[Entry], steps: int) -> None:
    """Runs a sender until it is killed."""
    left = steps
    log: Any = registrations.log

    async def hook(_: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            log.dead = True

    log.hook = hook
    registrations.take(entries)
    task = asyncio.ensure_future(registrations.send_due())
    await asyncio.wait([task], timeout=0.05 if steps < 1_000 else None)
    task.cancel()


def test_nothing_is_decoded_of_statuses_that_ask_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("decoded")

    monkeypatch.setattr(status_requests, "decode", refuse)
    sender = Sender()
    others = [entry(status(1, JobState.RUNNING), 0), entry(status(2, registers=None), 1)]
    assert sent_by(sender, sender.start(), [*others, replace(others[0], value=None, offset=2)]) == []
