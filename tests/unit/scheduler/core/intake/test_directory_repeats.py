"""The directory against what comes again: a record that is read again, and a request that its producer sends again, count once.

Each shows what the 65,536 newest ids alone let through: intake's group offsets expire after 7 days of downtime, and it reads 90 days again.
"""

from typing import Any

import pytest

from tests.support.core_world import spec
from trainhouse.events import (
    CancelJob,
    ChangeJob,
    ChangeProject,
    DrainNode,
    Envelope,
    Event,
    EventId,
    JobStatus,
    JobSubmitted,
    PolicyChanged,
    PoolCreated,
    ReviewJob,
    SecretDeclared,
)
from trainhouse.events.model.routing import EventSeen
from trainhouse.events.wire import topics
from trainhouse.events.wire.envelope import Origin
from trainhouse.scheduler.core.intake import directory_state, origins, request_ids
from trainhouse.scheduler.core.intake.directory import DirectoryMachine
from trainhouse.scheduler.core.intake.origins import PAGE, Origins
from trainhouse.scheduler.core.intake.request_ids import AskedIds
from trainhouse.scheduler.core.protocol.machine import Effect, Input

POLICY = PolicyChanged.model_validate({"pool": "default", "policy": {"name": "old"}, "user": "ada"})
DRAIN = DrainNode.model_validate({"pool": "default", "node_id": "n1", "user": "ada"})


class Directory:
    """One directory; `feed` gives what it makes public."""

    def __init__(self) -> None:
        self.machine = DirectoryMachine(control_partitions=4)
        self.state = self.machine.initial(0)
        self.now_ms = 1_000_000
        self.count = 0
        self.feed(PoolCreated.model_validate({"pool": "default", "partition": 2}))

    def feed(self, event: Event, event_id: str = "", at: Origin | None = None, made_at_ms: int | None = None, **more: Any) -> list[Effect]:
        self.count += 1
        self.now_ms += 1
        named = EventId(event_id or f"e{self.count}")
        made_at_ms = self.now_ms if made_at_ms is None else made_at_ms
        inputs = [Input(self.count, Envelope(named, "test", event, time_ms=made_at_ms, origin=at, **more))]
        before = self.machine.dump(self.state)
        decisions = self.machine.decide(self.state, self.now_ms, inputs)
        assert self.machine.dump(self.state) == before, "decide changed the state"
        self.state = self.machine.fold(self.state, self.now_ms, inputs, decisions)
        self.state = self.machine.load(self.machine.dump(self.state))
        return self.machine.effects(self.count, self.now_ms, inputs, decisions)


def at(offset: int, topic_id: str = "AAAA", partition: int = 0) -> Origin:
    return Origin(topic_id, partition, offset)


def kinds(effects: list[Effect]) -> list[str]:
    return [e.topic for e in effects]


def reason(effects: list[Effect]) -> str:
    (effect,) = effects
    assert isinstance(effect.event, JobStatus)
    return effect.event.reason


@pytest.fixture(autouse=True)
def few_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few that a test is through them soon."""
    monkeypatch.setattr(directory_state, "MAX_SEEN", 3)
    monkeypatch.setattr(request_ids, "MOST_OF_OPERATORS", 3)
    monkeypatch.setattr(request_ids, "MOST_OF_PROJECT", 2)


@pytest.mark.parametrize("request_", [POLICY, DRAIN])
def test_an_old_request_that_is_read_again_after_many_others_does_not_apply_again(request_: Event) -> None:
    d = Directory()
    assert kinds(d.feed(request_, "old", at(0))) == [topics.CONTROL]
    for n in range(20):
        d.feed(CancelJob.model_validate({"job_id": f"j{n}"}), at=at(n + 1))
        assert kinds(d.feed(POLICY, at=at(n, partition=1))) == [topics.CONTROL]
    assert d.feed(request_, "old", at(0), made_at_ms=d.now_ms) == []


def test_a_record_that_comes_after_later_ones_for_the_first_time_counts() -> None:
    d = Directory()
    for offset in (9, 3, 7, 3, 9, 0, 7):
        d.feed(DRAIN, f"at-{offset}", at(offset), made_at_ms=5)
    assert [d.state.origins.has(at(n)) for n in range(10)] == [n in (0, 3, 7, 9) for n in range(10)]


def test_a_topic_that_was_made_anew_begins_with_fresh_offsets() -> None:
    d = Directory()
    d.feed(DRAIN, "one", at(0))
    assert kinds(d.feed(DRAIN, "two", at(0, "BBBB"))) == [topics.CONTROL]
    assert kinds(d.feed(DRAIN, "three", at(0, partition=1))) == [topics.CONTROL]


def test_a_repeat_under_its_id_is_noted_so_that_its_record_does_not_count_later() -> None:
    d = Directory()
    d.feed(DRAIN, "old", at(0))
    assert d.feed(DRAIN, "old", at(1)) == []
    for n in range(10):
        d.feed(POLICY, at=at(n, partition=1))
    assert d.feed(DRAIN, "old", at(1)) == []


@pytest.mark.parametrize(
    "request_",
    [
        POLICY,
        DRAIN,
        ChangeJob.model_validate({"job_id": "j", "priority": 3}),
        ReviewJob.model_validate({"job_id": "j", "action": "send"}),
        ChangeProject.model_validate({"project": {"name": "p"}, "admission_partitions": 1}),
        SecretDeclared.model_validate({"project": "p", "name": "s", "grants": []}),
    ],
)
def test_a_request_that_is_sent_again_when_its_id_is_forgotten_is_refused_with_what_to_do(request_: Event) -> None:
    d = Directory()
    d.feed(JobSubmitted.model_validate({"job_id": "j", "spec": spec()}))
    d.feed(request_, "old", at(0), made_at_ms=10)
    for n in range(10):
        assert kinds(d.feed(DRAIN, at=at(n + 1))) == [topics.CONTROL]
    why = reason(d.feed(request_, "old", at(11), made_at_ms=10))
    assert "made at 1970-01-01T00:00:00.010Z" in why and "send it again under a new id" in why
    assert d.feed(request_, "old", at(11), made_at_ms=10) == [], "that record was answered"
    assert d.feed(request_, "old", at(12), made_at_ms=10) == [], "and this id"


def test_submissions_and_cancellations_never_push_out_the_id_of_a_request() -> None:
    d = Directory()
    d.feed(DRAIN, "old", made_at_ms=10)
    for n in range(10):
        d.feed(JobSubmitted.model_validate({"job_id": f"j{n}", "spec": spec()}))
        d.feed(CancelJob.model_validate({"job_id": f"j{n}"}))
    assert d.feed(DRAIN, "old", made_at_ms=10) == []


def test_a_project_pushes_out_its_own_ids_alone() -> None:
    d = Directory()
    change = ChangeJob.model_validate({"job_id": "j", "priority": 3})
    d.feed(change, "a", made_at_ms=10, project="a")
    for n in range(10):
        d.feed(change, f"b{n}", project="b")
    assert d.feed(change, "a", made_at_ms=10, project="a") == [], "known"
    assert not d.state.asked.too_old("a", 5) and d.state.asked.too_old("b", 5)
    assert not d.state.asked.too_old(None, 5)


def test_a_clock_that_is_ahead_makes_no_later_request_too_old() -> None:
    d = Directory()
    d.feed(DRAIN, "far", made_at_ms=10**13)
    for n in range(10):
        assert kinds(d.feed(DRAIN, f"n{n}")) == [topics.CONTROL], n
    assert d.feed(DRAIN, "far", made_at_ms=10**13) == []


def test_ids_of_projects_are_bounded_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_ids, "MOST_OF_PROJECT", 100)
    monkeypatch.setattr(request_ids, "MOST_OF_PROJECTS", 12)
    ids = AskedIds()
    for n in range(50):
        ids.note("much", n, b"m%d" % n)
    ids.note("little", 1, b"l")
    forked = ids.fork()
    forked.note("much", 60, b"m60")
    assert ids.knows("little", b"l") and not ids.knows("much", b"m60") and forked.knows("much", b"m60")
    assert sum(len(of) for _, _, of in ids.dump()) == 12
    assert AskedIds.load(ids.dump()).dump() == ids.dump()


def test_pages_are_bounded_and_what_lies_before_counts_as_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origins, "MOST_PAGES", 2)
    monkeypatch.setattr(origins, "MOST_SOURCES", 2)
    handled = Origins()
    for page in range(4):
        handled.note(at(page * PAGE))
    assert handled.has(at(1)) and handled.has(at(PAGE + 1)) and not handled.has(at(2 * PAGE + 1))
    handled.note(at(1))
    assert [[page for page, _ in pages] for _, _, pages in handled.dump()] == [[2, 3]]
    for partition in (1, 2):
        handled.note(at(0, partition=partition))
    assert [source for source, _, _ in handled.dump()] == ["AAAA.1", "AAAA.2"]


def test_a_journal_of_before_folds_as_it_did() -> None:
    d = Directory()
    old = d.machine.initial(0)
    d.machine.fold(old, 1, [], [EventSeen(digest="00" * 8)])
    assert list(old.seen) == [bytes(8)]
    assert b"origins" not in d.machine.dump(old) and b"asked" not in d.machine.dump(old)
    assert EventSeen(digest="00" * 8).model_dump_json() == '{"digest":"0000000000000000"}'


def test_until_an_update_is_finished_what_was_handled_is_remembered_as_the_version_before_does() -> None:
    directory = Directory()
    directory.machine = before = DirectoryMachine(control_partitions=4).at(3)
    directory.state = before.initial(0)
    directory.feed(PoolCreated.model_validate({"pool": "default", "partition": 2}))
    directory.feed(DRAIN, "drain", Origin("topic", 0, 7))
    assert directory.feed(DRAIN, "drain", Origin("topic", 0, 7)) == []
    seen = before.decide(
        directory.state, 5_000, [Input(9, Envelope(EventId("x"), "test", DRAIN, time_ms=1, origin=Origin("topic", 0, 8)))]
    )[0]
    assert isinstance(seen, EventSeen) and seen == EventSeen(digest=seen.digest)
    assert directory.state.origins.dump() == [] and directory.state.asked.dump() == []


def test_a_captured_directory_holds_what_was_handled_until_then() -> None:
    directory = Directory()
    directory.feed(DRAIN, "drain", Origin("topic", 0, 7))
    dumped, later = directory.machine.dump(directory.state), directory.machine.capture(directory.state)
    for offset in (8, 9, 10):
        event = Envelope(EventId(f"d{offset}"), "test", DRAIN, time_ms=offset, origin=Origin("topic", 0, offset))
        inputs = [Input(offset, event)]
        decisions = directory.machine.decide(directory.state, 5_000 + offset, inputs)
        directory.state = directory.machine.fold(directory.state, 5_000 + offset, inputs, decisions)
    assert later() == dumped != directory.machine.dump(directory.state)


def test_a_request_from_the_future_is_refused_and_keeps_no_other_one_out() -> None:
    directory = Directory()
    [refused] = directory.feed(DRAIN, "ahead", made_at_ms=directory.now_ms + 3 * 86_400_000)
    assert isinstance(refused.event, JobStatus) and "ahead of now" in refused.event.reason
    assert directory.feed(DRAIN, "a-day-ahead", made_at_ms=directory.now_ms + 86_400_000)
    assert directory.feed(DRAIN, "now")
