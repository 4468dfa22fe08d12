"""What leaves compacted topics, and what never does: the rule, and passes over topics in memory that are killed, paused, doubled."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from trainhouse.events import ChangeRefused, Event, JobState, JobStatus, envelope_of
from trainhouse.events.archive.segments import LogRecord
from trainhouse.events.tombstones import one_pass
from trainhouse.events.tombstones.compacted_topics import SupersededPassError
from trainhouse.events.tombstones.one_pass import EVER, Buried, Topics, bury, look
from trainhouse.events.wire.codec import HEADERS, encode
from trainhouse.events.wire.topics import EXPLANATIONS, POLICIES, RESERVATIONS, STATUS, TRACES

DAY = 86_400_000
RETENTION = 90 * DAY
NOW = 1_800_000_000_000
OLD, YOUNG = NOW - 91 * DAY, NOW - 89 * DAY
OF_PROJECT = f"{STATUS}.vision"


@dataclass
class Stored:
    """A record, and the pass whose transaction it belongs to. `visible` None while that is open."""

    record: LogRecord
    visible: bool | None = True


@dataclass
class Brokers:
    """Topics of one partition. `step` is called at each step of a pass."""

    logs: dict[str, list[Stored]] = field(default_factory=dict)
    owner: object = None

    def put(self, topic: str, key: str, event: Event | None, at_ms: int) -> int:
        log = self.logs.setdefault(topic, [])
        value = None if event is None else encode(envelope_of(event, id="x", source="test", now_ms=at_ms))
        log.append(Stored(LogRecord(0, len(log), at_ms, key.encode(), value, HEADERS)))
        return len(log) - 1

    def newest(self, topic: str) -> dict[str, bytes | None]:
        """What compaction leaves in the end, tombstones as None."""
        return {(s.record.key or b"").decode(): s.record.value for s in self.logs.get(topic, []) if s.visible}

    def kept(self, topic: str) -> set[str]:
        return {key for key, value in self.newest(topic).items() if value is not None}


@dataclass
class OnePass:
    """The brokers as one pass sees them."""

    brokers: Brokers
    step: Callable[[str], None] = lambda name: None
    open: list[Stored] = field(default_factory=list)

    def status_topics(self) -> list[str]:
        return [t for t in self.brokers.logs if t.startswith(f"{STATUS}.")]

    def partitions(self, topic: str) -> list[int]:
        return [0]

    def records(self, topic: str, partition: int, start: int = 0) -> Iterator[LogRecord]:
        self.step("read")
        log = self.brokers.logs.get(topic, [])
        until = next((n for n, s in enumerate(log) if s.visible is None), len(log))
        return iter([s.record for s in log[start:until] if s.visible])

    def appended_since(self, topic: str, partition: int, start: int, end: int) -> Iterator[LogRecord]:
        self.step("look")
        return iter([s.record for s in self.brokers.logs.get(topic, [])[start:end]])

    def shut_out_others(self) -> None:
        before = self.brokers.owner
        if isinstance(before, OnePass):
            before.finish(False)
        self.brokers.owner = self

    def begin(self, topic: str, partition: int, keys: Sequence[bytes]) -> Mapping[bytes, int]:
        landed = {}
        for key in keys:
            self.step("write")
            self.check()
            landed[key] = self.brokers.put(topic, key.decode(), None, NOW)
            stored = self.brokers.logs[topic][-1]
            stored.visible = None
            self.open.append(stored)
        return landed

    def commit(self) -> None:
        self.step("commit")
        self.check()
        self.finish(True)

    def abort(self) -> None:
        self.check()
        self.finish(False)

    def finish(self, visible: bool) -> None:
        for stored in self.open:
            stored.visible = visible
        self.open = []

    def check(self) -> None:
        if self.brokers.owner is not self:
            raise SupersededPassError("another pass")


def status(job: str, state: JobState, seq: int = 1) -> JobStatus:
    return JobStatus.model_validate({"job_id": job, "status_seq": seq, "state": state, "reason": "r"})


def everything(topic: str, partition: int) -> int:
    return EVER


def passed(brokers: Brokers, held: Callable[[str, int], int] = everything, topics: Topics | None = None, now_ms: int = NOW) -> list[Buried]:
    topics = topics or OnePass(brokers)
    return bury(topics, look(topics, now_ms, RETENTION, held))


@pytest.fixture
def brokers() -> Brokers:
    """Something was appended just now: by that time, too, the old is old."""
    made = Brokers()
    made.put(STATUS, "fresh", status("fresh", JobState.PENDING), NOW)
    return made


def test_a_job_that_finished_long_ago_leaves_and_all_that_was_kept_by_it(brokers: Brokers) -> None:
    for topic in (STATUS, OF_PROJECT, EXPLANATIONS, RESERVATIONS, TRACES):
        brokers.put(topic, "done", status("done", JobState.SUCCEEDED), OLD)
    rows = {row.topic: row for row in passed(brokers)}
    for topic in (STATUS, OF_PROJECT, EXPLANATIONS, RESERVATIONS, TRACES):
        assert "done" not in brokers.kept(topic)
        assert rows[topic] == Buried(topic, 1, 1, 0)
    assert brokers.kept(STATUS) == {"fresh"}
    assert sum(row.ended for row in passed(brokers)) == 0, "a second pass finds nothing"


@pytest.mark.parametrize("state", [s for s in JobState if not s.final])
def test_a_job_that_is_not_finished_stays_however_old_its_status_is(brokers: Brokers, state: JobState) -> None:
    for topic in (STATUS, OF_PROJECT, EXPLANATIONS, RESERVATIONS, TRACES):
        brokers.put(topic, "job", status("job", state), OLD)
    passed(brokers)
    for topic in (STATUS, OF_PROJECT, EXPLANATIONS, RESERVATIONS, TRACES):
        assert "job" in brokers.kept(topic)


def test_a_job_that_finished_lately_stays(brokers: Brokers) -> None:
    brokers.put(EXPLANATIONS, "job", status("job", JobState.PENDING), OLD)
    brokers.put(STATUS, "job", status("job", JobState.PENDING), OLD)
    brokers.put(STATUS, "job", status("job", JobState.FAILED, 2), YOUNG)
    passed(brokers)
    assert "job" in brokers.kept(STATUS) and "job" in brokers.kept(EXPLANATIONS)


def test_what_was_kept_by_a_job_whose_status_is_gone_leaves_later(brokers: Brokers) -> None:
    brokers.put(RESERVATIONS, "job", status("job", JobState.PENDING), OLD)
    passed(brokers)
    assert "job" not in brokers.kept(RESERVATIONS)


def test_answers_under_an_events_id_leave_with_their_time_whatever_they_say(brokers: Brokers) -> None:
    refused = ChangeRefused.model_validate({"pool": "p", "event_id": "e-1", "reason": "r", "refused_at_ms": 1})
    brokers.put(STATUS, "e-2", status("job", JobState.NEEDS_REVIEW), OLD)
    brokers.put(STATUS, "e-3", status("job", JobState.REJECTED), OLD)
    brokers.put(POLICIES, "e-1", refused, OLD)
    brokers.put(POLICIES, "p", status("p", JobState.PENDING), OLD)
    passed(brokers)
    assert brokers.kept(STATUS) == {"fresh"} and brokers.kept(POLICIES) == {"p"}


def test_what_the_tables_do_not_hold_stays_and_copies_of_it_too(brokers: Brokers) -> None:
    at = brokers.put(STATUS, "done", status("done", JobState.FAILED), OLD)
    brokers.put(OF_PROJECT, "done", status("done", JobState.FAILED), OLD)
    passed(brokers, lambda topic, partition: at)
    assert "done" in brokers.kept(STATUS) and "done" in brokers.kept(OF_PROJECT)
    passed(brokers, lambda topic, partition: at + 1)
    assert "done" not in brokers.kept(STATUS) and "done" not in brokers.kept(OF_PROJECT)


def test_a_clock_that_is_years_ahead_deletes_nothing_that_is_young_by_the_brokers(brokers: Brokers) -> None:
    brokers.put(STATUS, "done", status("done", JobState.FAILED), YOUNG)
    passed(brokers, now_ms=NOW + 1000 * DAY)
    assert "done" in brokers.kept(STATUS)


def test_a_record_of_a_newer_version_is_not_judged(brokers: Brokers) -> None:
    brokers.put(STATUS, "done", status("done", JobState.FAILED), OLD)
    stored = brokers.logs[STATUS][-1]
    stored.record = LogRecord(0, stored.record.offset, OLD, b"done", b'{"specversion":"9"}', HEADERS)
    passed(brokers)
    assert "done" in brokers.kept(STATUS)


def test_a_pass_is_bounded_and_the_next_one_takes_the_rest(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_pass, "MOST_A_PARTITION", 4)
    monkeypatch.setattr(one_pass, "A_TRANSACTION", 3)
    for n in range(10):
        brokers.put(STATUS, f"j{n}", status(f"j{n}", JobState.FAILED), OLD)
    assert [next(r.written for r in passed(brokers) if r.topic == STATUS) for _ in range(4)] == [4, 4, 2, 0]
    assert brokers.kept(STATUS) == {"fresh"}


def test_an_answer_that_comes_while_tombstones_are_written_is_not_overtaken(brokers: Brokers) -> None:
    """Between the reading and the tombstone somebody else is answered under the same id, and one is not."""
    for key in ("e-1", "e-2"):
        brokers.put(STATUS, key, status("job", JobState.REJECTED), OLD)
    came: list[str] = []

    def step(name: str) -> None:
        if name == "write" and not came:
            came.append(name)
            brokers.put(STATUS, "e-1", status("job", JobState.REJECTED), NOW)

    (row,) = [r for r in passed(brokers, topics=OnePass(brokers, step)) if r.topic == STATUS]
    assert row == Buried(STATUS, 2, 1, 1)
    assert "e-1" in brokers.kept(STATUS) and "e-2" not in brokers.kept(STATUS)


class Killed(Exception):
    """Stands for the end of a process."""


@pytest.mark.parametrize("seed", range(60))
def test_passes_that_are_killed_paused_or_doubled_delete_nothing_newer(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_pass, "A_TRANSACTION", 3)
    rng = random.Random(seed)
    brokers = Brokers()
    due = {f"j{n}" for n in range(6)} | {f"e{n}" for n in range(6)}
    for key in sorted(due):
        brokers.put(STATUS, key, status("job" if key[0] == "e" else key, JobState.REJECTED), OLD)
    brokers.put(STATUS, "fresh", status("fresh", JobState.PENDING), NOW)
    again: set[str] = set()
    depth = 0

    def step(name: str) -> None:
        """At any step: an answer under an old id, the end of the process, or a pause in which another pass runs whole."""
        nonlocal depth
        drawn = rng.random()
        if drawn < 0.1:
            key = f"e{rng.randrange(6)}"
            again.add(key)
            brokers.put(STATUS, key, status("job", JobState.REJECTED), NOW)
        elif drawn < 0.15:
            raise Killed
        elif drawn < 0.25 and depth < 2:
            depth += 1
            one()
            depth -= 1

    def one() -> None:
        """One pass; of one that was killed, the brokers abort what is open."""
        topics = OnePass(brokers, step)
        try:
            passed(brokers, topics=topics)
        except (Killed, SupersededPassError):
            topics.finish(False)

    for _ in range(5):
        one()
    assert again | {"fresh"} <= brokers.kept(STATUS), "an answer is hidden"
    passed(brokers)
    assert brokers.kept(STATUS) == again | {"fresh"}
