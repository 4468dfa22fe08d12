"""What the tuner's process sends of trials' jobs: values at rungs at once, the newest now and then, the end after all that was logged."""

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata

from tests.support.fakes.group_fakes import Member
from tests.support.fakes.journal_fakes import FakeBroker, FakeLog
from tests.support.study_requests import Tuner, job_of
from trainhouse.events import (
    Event,
    EventId,
    JobState,
    JobStatus,
    NodeId,
    StepMetrics,
    TrialJobObserved,
    TrialState,
    TrialValueObserved,
    decode,
    envelope_of,
)
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.points import Point, records_of
from trainhouse.events.wire.topics import METRICS, STATUS, STUDY_REQUESTS, TRACKED_METRICS, TUNING
from trainhouse.scheduler.core.protocol.machine import Input
from trainhouse.scheduler.stream.studies.trial_watch import EVERY_S, OneMember, TrialWatch

ASHA = {"name": "asha", "min_step": 10, "max_step": 90, "reduction": 3}


@dataclass
class World:
    """A tuner, its watch, and the topics between them."""

    tuner: Tuner = field(default_factory=Tuner)
    broker: FakeBroker = field(default_factory=FakeBroker)
    now_s: float = 100.0
    read: int = 0

    def __post_init__(self) -> None:
        self.member = Member(self.broker)
        self.watch = self.started()

    def started(self) -> TrialWatch:
        clock: Any = SimpleNamespace(steady_s=lambda: self.now_s)
        return TrialWatch(FakeLog(self.broker), clock, lambda: self.tuner.state, lambda: 10**9)

    def restart(self) -> None:
        self.member = Member(self.broker, committed=self.member.committed)
        self.watch = self.started()

    def put(self, topic: str, event: Event) -> None:
        envelope = envelope_of(event, id=EventId("x"), source="tests", now_ms=1)
        asyncio.run(FakeLog(self.broker).append(topic, 0, encode(envelope)))

    def log(self, trial: int, points: list[tuple[str, int, float]], rank: int = 0, topic: str = METRICS) -> None:
        for record in records_of(job_of(trial), [Point(key, value, step, 1) for key, step, value in points], "metrics"):
            self.put(topic, record.model_copy(update={"rank": rank, "node_id": NodeId("n")}))

    def status(self, trial: int, state: JobState, **changes: Any) -> None:
        sha = self.tuner.study.trials[trial].spec_sha256
        fields: dict[str, Any] = {"job_id": job_of(trial), "status_seq": 3, "state": state, "reason": "because", "spec_sha256": sha}
        more = {"submission_id": f"{job_of(trial)}:submitted", "world_size": 2, "elapsed_s": 8.0}
        self.put(STATUS, JobStatus.model_validate(fields | more | changes))

    def delete_status(self, trial: int) -> None:
        """A tombstone."""

        async def land() -> None:
            self.broker.land(STATUS, 0, job_of(trial).encode(), None)

        asyncio.run(land())

    def round(self) -> list[Event]:
        """One round of the watch; what it sent goes to the tuner."""
        asyncio.run(self.watch.round(self.member))
        sent = [stored.entry for stored in self._requests()][self.read :]
        envelopes = [decode(each.value or b"", each.headers) for each in sent]
        for envelope in envelopes:
            self.tuner.record([Input(1000 + self.read, envelope)])
            self.read += 1
        return [each.event for each in envelopes]

    def _requests(self) -> list[Any]:
        return [stored for (topic, _), log in self.broker.logs.items() if topic == STUDY_REQUESTS for stored in log]


def began(**changes: Any) -> World:
    world = World()
    world.tuner.create(**changes)
    world.tuner.price(2.0)
    world.tuner.fill()
    world.round()
    return world


def waiting() -> World:
    """A world in which the end of a trial waits for metrics that are not read yet."""
    world = began()
    world.status(0, JobState.RUNNING)
    world.round()
    world.member.held = {METRICS}
    world.log(0, [("loss", 1, 0.5)])
    world.status(0, JobState.SUCCEEDED)
    assert world.round() == []
    return world


def values(events: list[Event]) -> list[tuple[int, dict[str, float]]]:
    return [(each.step, each.values) for each in events if isinstance(each, TrialValueObserved)]


def test_the_newest_values_are_sent_now_and_then_and_each_rung_at_once() -> None:
    world = began(early_stopping=ASHA)
    world.log(0, [("loss", 1, 0.9), ("loss", 2, 0.8), ("other", 2, 1.0)])
    assert values(world.round()) == [(2, {"loss": 0.8})], "the first ones"
    world.log(0, [("loss", 3, 0.7)])
    assert world.round() == []
    world.log(0, [("loss", 9, 0.6), ("loss", 11, 0.5), ("loss", 12, 0.45), ("loss", 31, 0.4)])
    assert values(world.round()) == [(11, {"loss": 0.5}), (31, {"loss": 0.4})]
    world.log(0, [("loss", 32, 0.3)])
    assert world.round() == []
    world.now_s += EVERY_S
    assert values(world.round()) == [(32, {"loss": 0.3})]


def test_an_end_waits_for_what_was_logged_before_it() -> None:
    world = began()
    world.status(0, JobState.RUNNING)
    assert [each.state for each in world.round() if isinstance(each, TrialJobObserved)] == [JobState.RUNNING]
    assert world.tuner.study.trials[0].state is TrialState.RUNNING
    world.member.held = {METRICS}
    world.log(0, [("loss", 1, 0.5)])
    world.log(0, [("loss", 2, 0.25)])
    world.status(0, JobState.SUCCEEDED)
    assert world.round() == []
    world.now_s += EVERY_S
    assert world.round() == []
    world.restart()
    world.member.held = {METRICS}
    assert world.round() == [], "the end was not committed, and is read again"
    world.member.held = set()
    sent = world.round()
    assert values(sent) == [(2, {"loss": 0.25})] and isinstance(sent[-1], TrialJobObserved) and sent[-1].device_s == 16.0
    trial = world.tuner.study.trials[0]
    assert (trial.state, trial.logged["loss"].value) == (TrialState.COMPLETE, 0.25)


def test_an_end_whose_metrics_another_member_reads_is_that_ones_to_send() -> None:
    world = waiting()
    committed = dict(world.member.committed)
    world.member.at = {}
    for _ in range(3):
        world.now_s += EVERY_S
        assert world.round() == []
    assert world.member.committed == committed, "it reads them again"
    world.member = Member(world.broker, committed=world.member.committed)
    sent = [each for _ in range(2) for each in world.round()]
    assert [each.state for each in sent if isinstance(each, TrialJobObserved)][-1] is JobState.SUCCEEDED
    assert world.tuner.study.trials[0].state is TrialState.COMPLETE


@pytest.mark.parametrize("away", [METRICS, TRACKED_METRICS])
def test_an_end_waits_for_metrics_that_are_not_this_members_to_read(away: str) -> None:
    world = began()
    world.status(0, JobState.RUNNING)
    world.round()
    at = world.member.at.pop(TopicPartition(away, 0))
    world.log(0, [("loss", 1, 0.5)], topic=away)
    world.status(0, JobState.SUCCEEDED)
    for _ in range(2):
        world.now_s += EVERY_S
        assert world.round() == []
    world.member.at[TopicPartition(away, 0)] = at
    while world.round():
        world.now_s += EVERY_S
    assert world.tuner.study.trials[0].state is TrialState.COMPLETE


@pytest.mark.parametrize("state", ["none", "old"])
def test_what_waits_stays_while_the_tuners_state_is_not_known(state: str) -> None:
    world = waiting()
    asyncio.run(FakeLog(world.broker).append(TUNING, 0, b"a record"))
    known, unknown = world.watch.state, {"none": None, "old": Tuner().state}[state]
    committed, looks = dict(world.member.committed), list[bool]()

    def looked() -> Any:
        assert world.member.committed == committed, "nothing is committed meanwhile"
        looks.append(0 < len(looks) < 4)
        return unknown if looks[-1] else known()

    world.watch.state, world.watch.folded_to = looked, lambda: 0 if looks[-1] else 1
    world.now_s += EVERY_S
    asyncio.run(world.watch.round(world.member))
    world.watch.state, world.watch.folded_to = known, lambda: 1
    world.member.held = set()
    while world.round():
        world.now_s += EVERY_S
    assert world.tuner.study.trials[0].state is TrialState.COMPLETE
    assert len(looks) > 4, "the state was unknown for a while"


def test_a_restart_sends_again_what_was_not_committed_and_it_counts_once() -> None:
    world = began(early_stopping=ASHA)
    world.now_s += EVERY_S
    world.log(0, [("loss", 10, 0.5)])
    world.round()
    world.now_s += EVERY_S / 2
    world.log(0, [("loss", 30, 0.4)])
    assert values(world.round()) == [(30, {"loss": 0.4})]
    number = world.tuner.study.number
    world.restart()
    assert values(world.round()), "sent again"
    assert world.tuner.study.number == number, "counts once"


def test_metrics_that_were_logged_are_named_where_the_studys_is_not_among_them() -> None:
    world = began(max_failed=0)
    world.log(0, [("accuracy", 1, 0.5), ("time", 1, 0.5)], topic=TRACKED_METRICS)
    world.status(0, JobState.SUCCEEDED)
    sent = [each for _ in range(2) for each in world.round()]
    assert [each.logged for each in sent if isinstance(each, TrialJobObserved)] == [("accuracy", "time")]
    assert "logged: accuracy, time" in str(world.tuner.decisions)


def test_what_is_not_of_the_trial_itself_counts_for_nothing() -> None:
    world = began()
    world.status(0, JobState.SUCCEEDED, spec_sha256="")
    world.status(0, JobState.REJECTED, submission_id="another request")
    world.put(STATUS, JobStatus(job_id=None, status_seq=1, state=JobState.REJECTED, reason=f"no job study-x; {job_of(0)}"))
    asyncio.run(FakeLog(world.broker).append(METRICS, 0, b"study- no JSON"))
    world.log(5, [("loss", 1, 0.5)])
    assert world.round() == [] and world.round() == []
    world.status(0, JobState.REJECTED)
    assert [each.state for _ in range(2) for each in world.round() if isinstance(each, TrialJobObserved)] == [JobState.REJECTED]


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.RUNNING, JobState.SUCCEEDED])
def test_a_trial_whose_job_id_another_submission_took_fails_with_that_reason(state: JobState) -> None:
    world = began()
    world.status(0, state, spec_sha256="another")
    [observed] = [each for _ in range(2) for each in world.round() if isinstance(each, TrialJobObserved)]
    assert (observed.state, observed.device_s) == (JobState.REJECTED, 0.0) and "another spec" in observed.reason
    trial = world.tuner.study.trials[0]
    assert trial.state is TrialState.FAILED and not trial.logged and "is taken" in str(world.tuner.decisions)
    assert job_of(0) not in world.tuner.cancelled(), "it is another's job"


def test_a_trial_whose_last_status_was_deleted_is_open_no_more_and_has_not_failed() -> None:
    world = began(max_failed=0)
    world.status(0, JobState.RUNNING)
    world.round()
    world.delete_status(0)
    [observed] = [each for _ in range(2) for each in world.round() if isinstance(each, TrialJobObserved)]
    assert "deleted" in observed.reason
    assert world.tuner.study.trials[0].state is TrialState.CANCELLED and world.tuner.study.trials[1].state is TrialState.WAITING


def test_an_end_that_was_read_counts_though_it_was_deleted_then() -> None:
    world = began()
    world.log(0, [("loss", 1, 0.5)])
    world.status(0, JobState.SUCCEEDED)
    world.delete_status(0)
    for _ in range(2):
        world.round()
    assert world.tuner.study.trials[0].state is TrialState.COMPLETE


@pytest.mark.parametrize("step", ["submitted", "admitted"])
def test_a_trial_whose_submission_was_set_aside_has_no_job_and_fails(step: str) -> None:
    world = began()
    reviewed = {"spec_sha256": "", "status_seq": 0}
    world.status(0, JobState.NEEDS_REVIEW)
    world.status(0, JobState.NEEDS_REVIEW, submission_id="another event about it", **reviewed)
    assert [*world.round(), *world.round()] == []
    world.status(0, JobState.NEEDS_REVIEW, submission_id=f"{job_of(0)}:{step}", reason="it was set aside", **reviewed)
    assert [each.state for _ in range(2) for each in world.round() if isinstance(each, TrialJobObserved)] == [JobState.REJECTED]
    assert world.tuner.study.trials[0].state is TrialState.FAILED and "it was set aside" in str(world.tuner.decisions)


def test_a_metric_is_that_of_the_least_rank_which_logs_it() -> None:
    world = began()
    world.log(0, [("loss", 1, 0.9)], rank=3)
    world.log(0, [("loss", 1, 0.5)], rank=0)
    world.log(0, [("loss", 2, 0.8)], rank=3)
    assert values(world.round()) == [(1, {"loss": 0.5})]


@pytest.mark.parametrize("bound", ["device_s", "cost"])
def test_device_seconds_of_a_running_trial_come_again_where_the_budget_bounds_them(bound: str) -> None:
    world = began(budget={bound: 1000.0})
    for elapsed_s, sent in ((1.0, 1), (2.0, 0)):
        world.status(0, JobState.RUNNING, elapsed_s=elapsed_s)
        assert len(world.round()) == sent
    world.now_s += EVERY_S
    [observed] = world.round()
    assert isinstance(observed, TrialJobObserved) and observed.device_s == 4.0
    assert world.tuner.study.spent_device_s == 4.0


def test_one_member_of_the_group_reads_everything() -> None:
    cluster = SimpleNamespace(partitions_for_topic=lambda topic: {0, 1} if topic == STATUS else {0})
    metadata = OneMember.metadata([STATUS, METRICS])
    assert isinstance(metadata, ConsumerProtocolMemberMetadata)
    given = OneMember.assign(cluster, {"b": metadata, "a": metadata})
    assert given["a"].assignment == [(METRICS, [0]), (STATUS, [0, 1])] and given["b"].assignment == []
    assert StepMetrics.event_type == "trainhouse.metrics.step.v1"


def test_nothing_is_read_while_no_trial_is_open_and_nothing_of_the_next_one_is_missed() -> None:
    world = World()
    world.put(STATUS, JobStatus.model_validate({"job_id": "study-x-0-1", "status_seq": 1, "state": JobState.RUNNING, "spec_sha256": "a"}))
    for step in range(5):
        world.log(0, [("loss", step, 0.1)])
    assert world.round() == [] and len(world.member.resting) == 3
    assert {place.topic: at for place, at in world.member.committed.items()} == {STATUS: 1, METRICS: 5, TRACKED_METRICS: 0}
    world.log(0, [("loss", 9, 0.9)])
    assert world.round() == [] and world.member.committed[TopicPartition(METRICS, 0)] == 5, "not due yet"
    world.tuner.create()
    world.tuner.fill()
    world.status(0, JobState.RUNNING)
    world.log(0, [("loss", 1, 0.5)])
    world.now_s += EVERY_S
    assert {type(each) for each in world.round()} == {TrialJobObserved, TrialValueObserved} and not world.member.resting
    assert world.tuner.study.trials[0].logged["loss"].value in (0.5, 0.9) and world.tuner.study.trials[0].state is TrialState.RUNNING


def test_a_trial_that_begins_while_positions_are_looked_up_is_not_passed_over() -> None:
    world = World()
    state, begun = world.tuner.state.copy(), []

    def later() -> Any:
        # The first look finds no study; by the second one, a trial runs and has logged.
        if begun:
            return world.tuner.state
        begun.append(True)
        world.tuner.create()
        world.tuner.fill()
        [record] = records_of(job_of(0), [Point("loss", 0.5, 1, 1)], "metrics")
        world.broker.land(METRICS, 0, None, encode(envelope_of(record, id=EventId("x"), source="tests", now_ms=1)))
        return state

    world.watch.state = later
    assert world.round() == [] and world.member.committed == {}
    assert values(world.round()) == [(1, {"loss": 0.5})]
