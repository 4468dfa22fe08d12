"""Whose event is it: what somebody tries who may write to one project's topic alone."""

import asyncio
from collections import Counter

import orjson
import pytest

from tests.support.counting_machine import CountingMachine
from tests.support.fakes.journal_fakes import FakeBroker, FakeLog, LoopClock, run_virtually
from trainhouse.events import (
    AskedVia,
    CancelJob,
    ChangeJob,
    CordonNode,
    DeadLetter,
    Envelope,
    Event,
    EventId,
    JobId,
    JobState,
    JobStatus,
    JobSubmitted,
    PolicyChanged,
    PoolCreated,
    RequestedBy,
    ReviewJob,
    decode,
    encode,
    envelope_of,
)
from trainhouse.events.wire import topics
from trainhouse.events.wire.journal import NO_HASH, ClockTicked, JournalRecord
from trainhouse.events.wire.project_topics import jobs_topic, may_have_topics, project_of, status_topic, topics_of
from trainhouse.scheduler.core.intake.directory import DirectoryMachine
from trainhouse.scheduler.core.intake.directory_state import HELD_FOR_MS
from trainhouse.scheduler.core.intake.screening import Arrived, Screened, screen
from trainhouse.scheduler.core.protocol.machine import Effect, Input
from trainhouse.scheduler.core.protocol.publication import Outgoing, outgoing
from trainhouse.scheduler.stream.journal.project_statuses import AGAIN_S, ProjectStatuses

OWN, OTHER = "vision", "speech"
SPEC = {"runtime": {"command": ["python", "t.py"]}}


def submission(job_id: str, **spec: object) -> JobSubmitted:
    return JobSubmitted.model_validate({"job_id": job_id, "spec": SPEC | spec})


def screened(event: Event, by: str | None = OWN, event_id: str = "e1", **attributes: object) -> Screened:
    value = encode(envelope_of(event, id=event_id, source="me", now_ms=1))
    line = orjson.loads(value) | attributes
    topic = topics.JOBS if by is None else jobs_topic(by)
    return screen(Arrived(0, 7, 1_000, orjson.dumps(line), topic=topic), 4, 5_000)


def admitted(event: Event, by: str | None = OWN, event_id: str = "e1", **attributes: object) -> Envelope:
    out, *more = screened(event, by, event_id, **attributes).outgoing
    assert {o.topic for o in (out, *more)} == {topics.ADMISSION}
    return decode(out.value)


def refused(event: Event, project: str = OWN, event_id: str = "e1") -> JobStatus:
    letter, everywhere, own = screened(event, project, event_id).outgoing
    assert letter.topic == topics.DEAD_LETTERS and DeadLetter.of_headers(list(letter.headers)).topic == jobs_topic(project)
    assert (everywhere.topic, own.topic) == (topics.STATUS, status_topic(project)) and everywhere.value == own.value
    status = decode(own.value).event
    assert isinstance(status, JobStatus) and status.state is JobState.REJECTED and status.project == project
    return status


class Directory:
    """A directory behind intake's first stage: what it is given came by a topic."""

    def __init__(self) -> None:
        self.machine = DirectoryMachine(control_partitions=4)
        self.state = self.machine.initial(0)
        self.now_ms = 1_000
        self.count = 0
        self.send(PoolCreated.model_validate({"pool": "default", "partition": 2}), None)

    def send(self, event: Event, project: str | None) -> list[Effect]:
        self.count += 1
        return self.take(admitted(event, project, f"e{self.count}"))

    def take(self, envelope: Envelope) -> list[Effect]:
        inputs = [Input(self.count, envelope)]
        decisions = self.machine.decide(self.state, self.now_ms, inputs)
        self.state = self.machine.fold(self.state, self.now_ms, inputs, decisions)
        dumped = self.machine.dump(self.state)
        assert self.machine.dump(self.machine.load(dumped)) == dumped
        return self.machine.effects(1, self.now_ms, inputs, decisions)

    def later(self) -> list[Effect]:
        self.now_ms += HELD_FOR_MS
        return self.take(Envelope(EventId("tick"), "owner", ClockTicked()))


def test_the_topic_says_whose_a_job_is() -> None:
    taken = admitted(submission(f"{OWN}.a", user="alice"))
    assert isinstance(taken.event, JobSubmitted)
    assert (taken.project, taken.event.spec.project, taken.event.spec.user) == (OWN, OWN, f"{OWN}/alice")
    assert admitted(submission(f"{OWN}.a")).event.spec.user == f"{OWN}/unknown"  # type: ignore[attr-defined]


def test_a_spec_that_names_another_project_is_rejected_with_what_to_write() -> None:
    status = refused(submission(f"{OWN}.a", project=OTHER))
    assert "spec.project" in status.reason and OWN in status.reason and OTHER not in status.reason.replace(OWN, "")


def test_a_refusal_answers_under_the_id_that_was_sent() -> None:
    for event in (
        submission(f"{OWN}.a", env={"DB_PASSWORD": "hunter2"}),  # pragma: allowlist secret
        submission("a"),
        submission(f"{OWN}.a", project=OTHER),
    ):  # pragma: allowlist secret
        assert refused(event, event_id="my-1").submission_id == f"{OWN}/my-1"


@pytest.mark.parametrize("job_id", ["a", f"{OTHER}.a", OWN, f"{OWN}-2.a"])
def test_an_id_that_is_not_the_projects_own_is_rejected(job_id: str) -> None:
    assert f"{OWN}.NAME" in refused(submission(job_id)).reason


def test_an_extension_of_the_event_names_no_project() -> None:
    assert admitted(submission("a"), None, project=OTHER).project is None
    assert admitted(submission(f"{OWN}.a"), project=OTHER).project == OWN


@pytest.mark.parametrize(
    "event",
    [
        PoolCreated.model_validate({"pool": "mine", "partition": 0}),
        CordonNode.model_validate({"pool": "default", "node_id": "n"}),
        PolicyChanged.model_validate({"pool": "default", "policy": {"name": "p"}}),
    ],
)
def test_pools_nodes_and_policies_are_not_a_projects_to_change(event: Event) -> None:
    found = screened(event).outgoing
    assert topics.ADMISSION not in {o.topic for o in found} and found[0].topic == topics.DEAD_LETTERS


def test_an_event_never_takes_the_place_of_anothers() -> None:
    """An id that another event has (the gateway's, say) must not make that one a repeat; nor may a refusal overwrite a job's status."""
    assert admitted(submission(f"{OWN}.a"), event_id="gateway-1").id == f"{OWN}/gateway-1"
    assert refused(submission("a"), event_id="their-job").submission_id == f"{OWN}/their-job"
    assert admitted(submission(f"{OWN}.a"), event_id="x").source.startswith(f"trainhouse/projects/{OWN}/")


def test_a_request_names_who_asked_and_what_that_rests_on() -> None:
    forged = RequestedBy(name="root", via=AskedVia.GATEWAY, role="admin")
    cancel = CancelJob.model_validate({"job_id": f"{OWN}.a", "user": "bob", "requested_by": forged.model_dump()})
    change = ChangeJob.model_validate({"job_id": f"{OWN}.a", "priority": 1, "requested_by": forged.model_dump()})
    for event, name in ((cancel, "bob"), (change, "root")):
        told = admitted(event).event.requested_by  # type: ignore[attr-defined]
        assert told == RequestedBy(name=f"{OWN}/{name}", via=AskedVia.PROJECT, project=OWN)
    assert admitted(cancel, None).event.requested_by == forged, "the gateway's word"  # type: ignore[attr-defined]
    plain = CancelJob.model_validate({"job_id": "a", "user": "carol"})
    assert admitted(plain, None).event.requested_by == RequestedBy(name="carol", via=AskedVia.OPERATOR)  # type: ignore[attr-defined]
    forged = RequestedBy(name="x", via=AskedVia.PROJECT, project=OTHER)
    claimed = admitted(plain.model_copy(update={"requested_by": forged}), None).event
    assert claimed.requested_by == RequestedBy(name="x", via=AskedVia.OPERATOR)  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [CancelJob, ChangeJob])
def test_another_projects_job_is_told_apart_from_a_missing_one_by_nothing(kind: type[Event]) -> None:
    d = Directory()
    d.send(submission(f"{OTHER}.a"), OTHER)
    told = []
    for job_id in (f"{OTHER}.a", f"{OTHER}.b"):
        assert d.send(kind.model_validate({"job_id": job_id}), OWN) == []
        (late,) = d.later()
        assert late.topic == topics.STATUS and isinstance(late.event, JobStatus) and late.event.project == OWN
        told.append(late.event.reason.replace(job_id, "JOB"))
    assert told[0] == told[1]


def test_a_project_reviews_its_own_jobs_under_its_own_names_and_detects_no_others() -> None:
    d = Directory()
    d.send(submission(f"{OTHER}.a"), OTHER)
    d.send(submission(f"{OWN}.a"), OWN)
    review = {"action": "go_on", "user": "bob", "requested_by": {"name": "root", "via": "gateway", "role": "admin"}}
    told = []
    for job_id in (f"{OTHER}.a", f"{OTHER}.b"):
        (out,) = d.send(ReviewJob.model_validate(review | {"job_id": job_id}), OWN)
        assert isinstance(out.event, JobStatus) and out.event.project == OWN
        told.append(out.event.reason.replace(job_id, "JOB"))
    assert told[0] == told[1]
    (out,) = d.send(ReviewJob.model_validate(review | {"job_id": f"{OWN}.a"}), OWN)
    assert out.topic == topics.CONTROL and isinstance(out.event, ReviewJob)
    assert out.event.user == f"{OWN}/bob"
    assert out.event.requested_by == RequestedBy(name=f"{OWN}/bob", via=AskedVia.PROJECT, project=OWN)


def test_a_project_ends_its_own_jobs_whichever_way_they_came() -> None:
    d = Directory()
    d.send(submission(f"{OWN}.a"), OWN)
    d.send(submission("by-gateway", project=OWN), None)
    for job_id in (f"{OWN}.a", "by-gateway"):
        (out,) = d.send(CancelJob.model_validate({"job_id": job_id}), OWN)
        assert out.topic == topics.CONTROL and isinstance(out.event, CancelJob)


def test_a_request_that_waits_does_not_reach_a_job_that_another_project_submits_later() -> None:
    d = Directory()
    assert d.send(CancelJob.model_validate({"job_id": f"{OTHER}.a"}), OWN) == []
    (admission,) = d.send(submission(f"{OTHER}.a"), OTHER)
    assert admission.topic == topics.CONTROL and not isinstance(admission.event, CancelJob)
    (late,) = d.later()
    assert isinstance(late.event, JobStatus) and "no such job" in late.event.reason
    d.send(CancelJob.model_validate({"job_id": f"{OWN}.b"}), OWN)
    found = d.send(submission(f"{OWN}.b"), OWN)
    assert [type(e.event).__name__ for e in found] == ["JobAdmitted", "CancelJob"]


def test_a_taken_id_tells_nothing_of_the_job_that_has_it() -> None:
    d = Directory()
    d.send(submission(f"{OWN}.a", project=OTHER, name="secret"), None)
    (out,) = d.send(submission(f"{OWN}.a", name="mine"), OWN)
    assert isinstance(out.event, JobStatus) and out.event.reason == f"job id {OWN}.a is taken; submit it under a new id"


@pytest.mark.parametrize("source", ["theirs", "none-of-that-name", "theirs@3"])
def test_a_job_begins_from_its_own_projects_checkpoints_only(source: str) -> None:
    d = Directory()
    d.send(submission("theirs", project=OTHER), None)
    d.send(submission("own", project=OWN), None)
    (out,) = d.send(submission(f"{OWN}.a", resume_from=source), OWN)
    assert isinstance(out.event, JobStatus) and out.event.reason == f"resume_from: project {OWN} has no job {source.partition('@')[0]}"
    (out,) = d.send(submission(f"{OWN}.b", resume_from="own"), OWN)
    assert out.topic == topics.CONTROL


def test_a_project_that_floods_pushes_out_its_own_requests_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainhouse.scheduler.core.intake.directory.MAX_HELD", 3)
    d = Directory()
    for number in range(2):
        assert d.send(CancelJob.model_validate({"job_id": f"{OTHER}.{number}"}), OTHER) == []
    told = [e.event for number in range(5) for e in d.send(CancelJob.model_validate({"job_id": f"{OWN}.{number}"}), OWN)]
    assert {e.project for e in told} == {OWN}  # type: ignore[attr-defined]
    assert sum(h.project == OTHER for h in d.state.held.values()) == 2


def cancelled(d: Directory, project: str | None, *numbers: int) -> list[JobStatus]:
    """What is told when a project asks to end jobs that nobody submitted."""
    begin = "" if project is None else f"{project}."
    found = [e.event for n in numbers for e in d.send(CancelJob.model_validate({"job_id": f"{begin}{n}"}), project)]
    assert all(isinstance(e, JobStatus) for e in found)
    return found  # type: ignore[return-value]


def test_one_project_may_not_fill_the_room_of_all_requests_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainhouse.scheduler.core.intake.directory.MAX_HELD", 8)
    monkeypatch.setattr("trainhouse.scheduler.core.intake.directory.MAX_HELD_OF_PROJECT", 3)
    d = Directory()
    told = cancelled(d, OWN, *range(20))
    assert sum(h.project == OWN for h in d.state.held.values()) == 3 and len(told) == 17
    assert told[0].job_id == f"{OWN}.0" and told[0].project == OWN and told[0].state is JobState.REJECTED
    assert f"project {OWN} has 3 requests waiting" in told[0].reason and "submit" in told[0].reason
    assert cancelled(d, OTHER, *range(3)) == [], "there is room for others"
    [_, ended] = d.send(submission(f"{OWN}.19"), OWN)
    assert isinstance(ended.event, CancelJob), "the newest ones wait still"


def test_where_the_room_is_full_who_has_most_of_it_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainhouse.scheduler.core.intake.directory.MAX_HELD", 6)
    d = Directory()
    assert cancelled(d, OWN, *range(6)) == []
    for asker, number in ((OTHER, 0), (None, 0), (OTHER, 1), (None, 1)):
        [refusal] = cancelled(d, asker, number)
        assert refusal.project == OWN and "more than 6 requests wait" in refusal.reason
    assert Counter(h.project for h in d.state.held.values()) == {OWN: 2, OTHER: 2, None: 2}
    for asker in (OWN, OTHER, None):
        [refusal] = cancelled(d, asker, 9)
        assert refusal.project == (asker or ""), "of equals, who asks"
    again = d.machine.load(d.machine.dump(d.state))
    assert {p: list(of) for p, of in again.held_by.items()} == {p: list(of) for p, of in d.state.held_by.items()}


def test_a_status_is_for_its_projects_topic_too_under_the_same_token_and_for_no_others() -> None:
    out = outgoing(CountingMachine(), topics.CONTROL, 0, _record(f"{OWN}.a", OWN))
    assert [o.topic for o in out] == [topics.STATUS, status_topic(OWN)]
    assert out[0].value == out[1].value and decode(out[1].value).order is not None
    out = outgoing(CountingMachine(), topics.CONTROL, 0, _record("a", "no topic.name"))
    assert [o.topic for o in out] == [topics.STATUS]


def _record(job_id: str, project: str) -> JournalRecord:
    status = JobStatus(job_id=JobId(job_id), status_seq=1, state=JobState.PENDING, project=project)
    return JournalRecord(1, "o", 1, -1, (), (status,), 0, 1, 1, NO_HASH)


def test_only_topics_that_are_there_are_written_and_soon_after_they_are_made() -> None:
    async def tale() -> None:
        broker, clock = FakeBroker(partitions=1), LoopClock()
        kept = ProjectStatuses(FakeLog(broker), clock)
        batch = [Outgoing(t, b"k", b"v", ()) for t in (topics.STATUS, status_topic(OWN), status_topic(OTHER))]
        assert [o.topic for o in await kept.keep(batch)] == [topics.STATUS]
        broker.made.add(status_topic(OWN))
        await asyncio.sleep(AGAIN_S)
        assert [o.topic for o in await kept.keep(batch)] == [topics.STATUS, status_topic(OWN)]
        broker.made.clear()
        kept.forget()
        assert [o.topic for o in await kept.keep(batch)] == [topics.STATUS]

    run_virtually(tale())


@pytest.mark.parametrize("name", ["", "a.b", "-a", "a b", "ä", "a/b", "x" * 101, "a\n"])
def test_a_name_that_could_be_read_as_anothers_has_no_topics(name: str) -> None:
    assert not may_have_topics(name) and project_of(f"{topics.JOBS}.{name}") is None
    with pytest.raises(ValueError, match="cannot have topics"):
        topics_of(name)
