"""Ends of jobs that evaluate versions: each gives its result once, whoever is killed meanwhile; what is no such job gives none."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fakes.journal_fakes import FakeBroker, FakeLog
from tests.support.profiles import examples
from tests.support.registry_requests import OF_MODEL, VALIDATION, Registry, content_of, evaluated
from trainhouse.events import (
    Event,
    EventId,
    JobRejected,
    JobState,
    JobStatus,
    ModelDescribed,
    ModelEvaluated,
    ModelEvaluationEnded,
    ModelEvaluationRecorded,
    ModelEvaluationStarted,
    ModelGate,
    ModelGateApplied,
    decode,
    envelope_of,
)
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.envelope import Envelope
from trainhouse.events.wire.topics import JOBS, MODEL_REQUESTS, REGISTRY
from trainhouse.scheduler.core.errors import LogUnavailableError
from trainhouse.scheduler.core.intake.directory_effects import refusal
from trainhouse.scheduler.core.protocol.machine import Input
from trainhouse.scheduler.core.registry.evaluation_jobs import EvaluatedJob
from trainhouse.scheduler.stream.interfaces import Entry
from trainhouse.scheduler.stream.model_interfaces import ContentRefusedError
from trainhouse.scheduler.stream.registry.evaluation_ends import EvaluationEnds
from trainhouse.scheduler.stream.registry.job_end_watch import done_by_all
from trainhouse.scheduler.stream.registry.status_requests import MOST_WAITING, Waiting, in_turns

EVALUATION = {
    "suite": "accuracy",
    "kind": "classification",
    "dataset": VALIDATION,
    "split": "validation",
    "program": "digits",
}
GATE = ModelGate.model_validate({"approvals": 0, "evaluate": [EVALUATION]})


@dataclass
class Store:
    """A store that is away for a time, and has a result of each job."""

    is_away: bool = False
    is_empty: bool = False
    asked: list[EvaluatedJob] = field(default_factory=list)

    def evaluated(self, job: EvaluatedJob) -> ModelEvaluated:
        if self.is_away:
            raise ConnectionError("no answer")
        if self.is_empty:
            raise ContentRefusedError("it stored no artifact")
        self.asked.append(job)
        number = next(each for each in range(1, 9) if content_of(each) == job.content)
        return evaluated(number, 0.8, job_id=job.job_id, user=job.user, evaluated_at_ms=job.ended_at_ms)


@dataclass
class Ends:
    """Senders over one broker, and the registry as far as they have folded it."""

    broker: FakeBroker = field(default_factory=FakeBroker)
    store: Store = field(default_factory=Store)
    now_s: float = 0.0
    registry: Registry = field(default_factory=Registry)
    read: int = 0
    behind: int = 0

    def start(self) -> EvaluationEnds:
        clock: Any = SimpleNamespace(steady_s=lambda: self.now_s)
        store: Any = self.store
        return EvaluationEnds(FakeLog(self.broker), clock, store, lambda: self.registry.state, folded_to=lambda: self.journal - self.behind)

    @property
    def journal(self) -> int:
        """End of the registry's journal."""
        return len(self.broker.logs[REGISTRY, 0])

    def appended(self) -> None:
        """A record in the registry's journal that the senders have not folded."""
        asyncio.run(FakeLog(self.broker).append(REGISTRY, 0, b"record"))
        self.behind += 1

    def jobs(self, versions: int) -> list[ModelEvaluationStarted]:
        """Registers versions; returns their jobs."""
        self.registry.ask(ModelDescribed(**OF_MODEL, create=True))
        self.registry.ask(ModelGateApplied(**OF_MODEL, gate=GATE))
        for number in range(1, versions + 1):
            self.registry.register(number)
        return [each for each in self.registry.decisions if isinstance(each, ModelEvaluationStarted)]

    def requests(self) -> list[Envelope]:
        found = [stored.entry for (topic, _), log in self.broker.logs.items() if topic == MODEL_REQUESTS for stored in log]
        return [decode(each.value or b"", each.headers) for each in found]

    def answer(self) -> None:
        """The registry reads what it was asked."""
        for request in self.requests()[self.read :]:
            self.registry.record([Input(1000 + self.read, request)])
            self.read += 1

    def of(self, kind: type[Event]) -> list[Any]:
        return [each for each in self.registry.decisions if isinstance(each, kind)]


def status(job: ModelEvaluationStarted, state: JobState = JobState.SUCCEEDED, **changes: Any) -> JobStatus:
    fields: dict[str, Any] = {
        "job_id": job.job_id,
        "status_seq": 9,
        "state": state,
        "reason": "because",
        "project": job.project,
        "user": job.spec.user,
        "spec_sha256": job.spec_sha256,
        "submission_id": f"{job.job_id}:submitted",
        "finished_at_ms": 1_795_000_000_000,
    }
    return JobStatus.model_validate(fields | changes)


def entry(event: Event, offset: int) -> Entry:
    return Entry(0, offset, 1, b"job", encode(envelope_of(event, id=f"s-{offset}", source="tests", now_ms=1)))


def round_of(ends: EvaluationEnds, *entries: Entry) -> None:
    async def run() -> None:
        ends.take(list(entries))
        await ends.send_due()

    asyncio.run(run())


def test_a_job_that_succeeds_gives_its_result_to_the_gate_once() -> None:
    world = Ends()
    [job] = world.jobs(1)
    ends = world.start()
    round_of(ends, entry(status(job, JobState.RUNNING), 0), entry(status(job), 1))
    assert ends.positions() == {0: 1}, "the registry has not answered yet"
    world.answer()
    round_of(ends)
    assert ends.positions() == {0: 2}
    [recorded], [end] = world.of(ModelEvaluationRecorded), world.of(ModelEvaluationEnded)
    assert recorded.evaluated.job_id == job.job_id and end.evaluation_id == recorded.evaluated.evaluation_id
    assert world.store.asked == [EvaluatedJob("vision", "resnet", content_of(1), "accuracy", job.job_id, "ada", 1_795_000_000_000)]


def test_a_job_that_fails_or_is_rejected_or_has_another_spec_gives_the_reason() -> None:
    for changes, reason in (
        ({"state": JobState.FAILED}, "it is FAILED: because"),
        ({"state": JobState.REJECTED, "spec_sha256": ""}, "it is REJECTED: because"),
        ({"spec_sha256": "x"}, "another spec"),
    ):
        world = Ends()
        [job] = world.jobs(1)
        round_of(world.start(), entry(status(job, **changes), 0))
        world.answer()
        [end] = world.of(ModelEvaluationEnded)
        assert reason in end.reason and not world.store.asked and not world.of(ModelEvaluationRecorded)


def test_a_refusal_of_another_request_about_the_job_says_nothing_of_the_job() -> None:
    world = Ends()
    [job] = world.jobs(1)
    [submitted] = [each for each in world.registry.machine.effects(1, 0, [], [job]) if each.topic == JOBS]
    refused = JobRejected(job_id=job.job_id, submission_id="a-review", reason="it cannot be reviewed", rejected_at_ms=1, project="other")
    ends = world.start()
    round_of(ends, entry(refusal(refused), 0))
    assert not world.requests() and ends.positions() == {0: 1}
    round_of(ends, entry(refusal(refused.model_copy(update={"submission_id": EventId(submitted.event_id)})), 1))
    world.answer()
    assert [each.reason for each in world.of(ModelEvaluationEnded)] == ["it is REJECTED: it cannot be reviewed"]


def test_a_job_that_stored_nothing_says_so() -> None:
    world = Ends()
    [job] = world.jobs(1)
    world.store.is_empty = True
    round_of(world.start(), entry(status(job), 0))
    world.answer()
    assert world.of(ModelEvaluationEnded)[0].reason == "it stored no artifact"


def test_a_long_reason_makes_a_short_request() -> None:
    world = Ends()
    [job] = world.jobs(1)
    round_of(world.start(), entry(status(job, JobState.FAILED, reason="\x01" * 60_000), 0))
    [request] = world.requests()
    assert len(encode(request)) < 4_096
    world.answer()
    assert world.of(ModelEvaluationEnded)[0].reason.startswith("it is FAILED: ")


def test_a_store_that_is_away_is_asked_again() -> None:
    world = Ends()
    [job] = world.jobs(1)
    world.store.is_away = True
    ends = world.start()
    round_of(ends, entry(status(job), 0))
    assert not world.requests() and ends.positions() == {0: 0}
    world.store.is_away, world.now_s = False, 5.0
    round_of(ends)
    world.answer()
    assert world.of(ModelEvaluationRecorded)


def test_a_status_that_comes_before_the_start_of_its_job_was_folded_waits_for_it() -> None:
    world = Ends()
    [job] = Ends().jobs(1)
    world.appended()
    ends = world.start()
    round_of(ends, entry(status(job), 0), entry(status(job, job_id="evaluate-of-somebody"), 1), entry(status(job, job_id="other"), 2))
    world.now_s = 1_000.0
    world.appended()
    round_of(ends)
    assert ends.positions() == {0: 0} and not world.requests(), "the journal that there was is not folded yet, however long it takes"
    world.jobs(1)
    world.behind = 1
    round_of(ends)
    world.answer()
    assert world.of(ModelEvaluationRecorded)
    round_of(ends)
    assert ends.positions() == {0: 3}


def test_jobs_of_others_with_such_names_keep_up_nothing() -> None:
    world = Ends()
    [job] = world.jobs(1)
    ends = world.start()
    foreign = [entry(status(job, job_id=f"evaluate-x{number}", project="other"), number) for number in range(MOST_WAITING)]
    round_of(ends, *foreign)
    assert not ends.is_full and ends.positions() == {0: MOST_WAITING}


def test_brokers_that_are_away_drop_no_status() -> None:
    world = Ends()
    [job] = Ends().jobs(1)
    ends = world.start()

    async def away(step: str) -> None:
        raise LogUnavailableError(step)

    log: Any = ends.log
    log.hook = away
    round_of(ends, entry(status(job), 0))
    assert ends.positions() == {0: 0}
    log.hook = None
    round_of(ends)
    assert ends.positions() == {0: 1}


def test_what_is_done_is_done_by_all_kinds_of_requests() -> None:
    assert done_by_all([{0: 5, 1: 7}, {0: 3}]) == {0: 3, 1: 7}


def test_projects_take_turns_and_what_was_not_sent_yet_comes_first() -> None:
    [job] = Ends().jobs(1)
    places = [("a", True), ("a", False), ("a", False), ("b", False), ("a", False)]
    due = [Waiting(status(job, project=project, status_seq=n), is_out=is_out) for n, (project, is_out) in enumerate(places)]
    assert [due.index(each) for each in in_turns(due)] == [1, 3, 2, 4, 0]


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.sampled_from([JobState.SUCCEEDED, JobState.FAILED]), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.booleans()), max_size=6),
)
def test_law_whoever_is_killed_each_job_ends_once(states: list[JobState], kills: list[tuple[int, bool, bool]]) -> None:
    """Each sender begins from the position that was committed last, and sends so many statuses before it is killed."""
    world, committed = Ends(), 0
    jobs = world.jobs(len(states))
    entries = [entry(status(job, state), offset) for offset, (job, state) in enumerate(zip(jobs, states, strict=True))]
    for count, is_read, is_committed in [*kills, (9, True, True), (9, True, True)]:
        ends = world.start()
        round_of(ends, *entries[committed : committed + count])
        if is_read:
            world.answer()
            round_of(ends)
        if is_committed:
            committed = max(committed, ends.positions().get(0, committed))
    world.answer()
    ended = [each.job_id for each in world.of(ModelEvaluationEnded)]
    assert sorted(ended) == sorted(job.job_id for job in jobs) and not world.registry.state.running
    assert len(world.of(ModelEvaluationRecorded)) == states.count(JobState.SUCCEEDED)
