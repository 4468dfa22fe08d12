"""The directory: one id is one job in one pool; repeats do nothing; early requests wait; refusals say what to change."""

from typing import Any

import pytest

from tests.support.core_world import spec
from trainhouse.events import (
    CancelJob,
    ChangeJob,
    Envelope,
    Event,
    EventId,
    Interactive,
    JobAdmitted,
    JobSpec,
    JobState,
    JobStatus,
    JobSubmitted,
    NodeHeartbeat,
    Placement,
    PoolCreated,
    ReviewJob,
)
from trainhouse.events.wire import topics
from trainhouse.events.wire.journal import ClockTicked
from trainhouse.scheduler.core.errors import UnexpectedInput
from trainhouse.scheduler.core.intake import directory_state
from trainhouse.scheduler.core.intake.directory import DirectoryMachine
from trainhouse.scheduler.core.intake.fingerprint import differing_fields, fingerprint
from trainhouse.scheduler.core.protocol.machine import Effect, Input


class Directory:
    """One directory with its journal."""

    def __init__(self) -> None:
        self.machine = DirectoryMachine(control_partitions=4)
        self.state = self.machine.initial(0)
        self.now_ms = 1_000
        self.seq = 0
        self.count = 0

    def feed(self, event: Event, event_id: str = "") -> list[Effect]:
        """Handles one event under a fresh id, or the given one; returns its effects."""
        self.count += 1
        inputs = [Input(self.count, Envelope(EventId(event_id or f"e{self.count}"), "test", event, time_ms=5))]
        before = self.machine.dump(self.state)
        decisions = self.machine.decide(self.state, self.now_ms, inputs)
        assert self.machine.dump(self.state) == before, "decide changed the state"
        self.seq += 1
        self.state = self.machine.fold(self.state, self.now_ms, inputs, decisions)
        dumped = self.machine.dump(self.state)
        assert self.machine.dump(self.machine.load(dumped)) == dumped
        return self.machine.effects(self.seq, self.now_ms, inputs, decisions)

    def with_pools(self) -> "Directory":
        self.feed(PoolCreated.model_validate({"pool": "default", "partition": 2}))
        self.feed(PoolCreated.model_validate({"pool": "big", "partition": 1}))
        return self


def submit(job_id: str, **fields: Any) -> JobSubmitted:
    return JobSubmitted.model_validate({"job_id": job_id, "spec": spec(**fields)})


def cancel(job_id: str) -> CancelJob:
    return CancelJob.model_validate({"job_id": job_id})


def refused(effects: list[Effect]) -> str:
    """The reason of the one refusal among effects."""
    [effect] = effects
    assert effect.topic == topics.STATUS and isinstance(effect.event, JobStatus)
    assert effect.event.state is JobState.REJECTED and effect.event.submission_id == effect.key
    return effect.event.reason


def test_a_submission_is_admitted_to_the_partition_of_its_pool() -> None:
    [effect] = Directory().with_pools().feed(submit("j", pool="big"))
    assert (effect.topic, effect.partition) == (topics.CONTROL, 1)
    assert isinstance(effect.event, JobAdmitted) and effect.event.submitted_at_ms == 5
    assert effect.event.spec_sha256 == effect.event.spec.sha256()


def test_the_same_job_with_the_same_spec_is_one_job() -> None:
    d = Directory().with_pools()
    d.feed(submit("j"))
    assert d.feed(submit("j")) == []
    assert d.feed(submit("j", priority=50)) == [], "a default that is written out is the same spec"


def test_the_same_job_with_another_spec_is_refused_by_the_names_of_its_fields() -> None:
    d = Directory().with_pools()
    d.feed(submit("j", seed=1))
    reason = refused(d.feed(submit("j", seed=2, env={"A": "b"})))
    assert "env, seed" in reason and "new id" in reason


def test_one_id_sent_to_two_pools_is_refused_the_second_time() -> None:
    d = Directory().with_pools()
    d.feed(submit("j", pool="big"))
    assert "belongs to pool big" in refused(d.feed(submit("j", pool="default")))


def test_a_repeated_event_does_nothing() -> None:
    d = Directory().with_pools()
    change = ChangeJob.model_validate({"job_id": "j", "priority": 1})
    d.feed(submit("j"), "s1")
    assert d.feed(submit("j", seed=9), "s1") == []
    assert len(d.feed(change, "c1")) == 1
    assert d.feed(change, "c1") == []


def test_an_unknown_pool_is_refused_with_the_known_ones_and_the_way_to_create_it() -> None:
    reason = refused(Directory().with_pools().feed(submit("j", pool="gpus")))
    assert "big, default" in reason and "PoolCreated" in reason


def test_a_refused_job_may_be_submitted_again() -> None:
    d = Directory().with_pools()
    refused(d.feed(submit("j", pool="gpus")))
    assert len(d.feed(submit("j", pool="big"))) == 1


@pytest.mark.parametrize(
    "bad", ["", "@3", "job@", "job@x", "no/job", "job@step:", "job@step:x", "job@-1", "job@Best", "job/step/1", "job@1@2"]
)
def test_a_bad_resume_from_is_refused(bad: str) -> None:
    assert "JOB@step:N" in refused(Directory().with_pools().feed(submit("j", resume_from=bad)))


@pytest.mark.parametrize("good", ["other", "other@0", "a:b.c-d@12", "other@step:7", "other@best"])
def test_a_good_resume_from_is_admitted(good: str) -> None:
    [effect] = Directory().with_pools().feed(submit("j", resume_from=good))
    assert isinstance(effect.event, JobAdmitted)


def test_a_cancellation_before_its_submission_waits_for_it() -> None:
    d = Directory().with_pools()
    assert d.feed(cancel("j")) == []
    effects = d.feed(submit("j", pool="big"))
    assert [type(e.event) for e in effects] == [JobAdmitted, CancelJob]
    assert {e.partition for e in effects} == {1}
    assert not d.state.held and not d.state.held_of


def test_an_early_request_is_refused_when_no_submission_comes_in_time() -> None:
    d = Directory().with_pools()
    d.feed(cancel("j"), "early")
    d.now_ms += directory_state.HELD_FOR_MS - 1
    assert d.feed(ClockTicked()) == []
    d.now_ms += 1
    effects = d.feed(ClockTicked())
    assert effects[0].key == "early" and "no such job" in refused(effects)
    assert not d.state.held


def test_early_requests_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainhouse.scheduler.core.intake.directory.MAX_HELD", 3)
    d = Directory().with_pools()
    for i in range(3):
        assert d.feed(cancel(f"j{i}"), f"c{i}") == []
    effects = d.feed(cancel("j3"), "c3")
    assert effects[0].key == "c0" and "oldest" in refused(effects)
    assert len(d.state.held) == 3


def test_seen_events_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_state, "MAX_SEEN", 3)
    d = Directory().with_pools()
    for i in range(10):
        d.feed(cancel(f"j{i}"))
    assert len(d.state.seen) == 3


def test_a_cancellation_of_a_known_job_goes_to_its_pool_under_its_own_id() -> None:
    d = Directory().with_pools()
    d.feed(submit("j"))
    [effect] = d.feed(cancel("j"), "my-cancel")
    assert (effect.topic, effect.partition, effect.event_id) == (topics.CONTROL, 2, "my-cancel")


def test_a_review_goes_to_its_jobs_pool_and_waits_for_no_submission() -> None:
    d = Directory().with_pools()
    asked = ReviewJob.model_validate({"job_id": "j", "action": "send", "user": "ada"})
    [refused] = d.feed(asked, "too-early")
    assert isinstance(refused.event, JobStatus) and (refused.topic, refused.key) == (topics.STATUS, "too-early")
    assert refused.event.state is JobState.REJECTED and "there is no such job" in refused.event.reason and not d.state.held
    d.feed(submit("j"))
    [effect] = d.feed(asked, "my-review")
    assert (effect.topic, effect.partition, effect.event_id, effect.event) == (topics.CONTROL, 2, "my-review", asked)


def test_a_pool_stays_on_its_partition() -> None:
    d = Directory().with_pools()
    assert d.feed(PoolCreated.model_validate({"pool": "big", "partition": 1})) == []
    assert "partition 1" in refused(d.feed(PoolCreated.model_validate({"pool": "big", "partition": 3})))
    assert "use 0 to 3" in refused(d.feed(PoolCreated.model_validate({"pool": "new", "partition": 4})))


def test_what_admission_does_not_carry_is_unexpected() -> None:
    beat = {"node_id": "n", "boot_id": "b", "incarnation": "i", "pool": "p", "sequence": 0, "at_ms": 0, "interval_s": 1}
    with pytest.raises(UnexpectedInput):
        Directory().feed(NodeHeartbeat.model_validate(beat))


def test_a_fingerprint_names_every_field() -> None:
    base, default = fingerprint(spec()), spec()
    for name in JobSpec.model_fields:
        assert differing_fields(base, default.model_copy(update={name: _other(name)})) == [name]


def _other(name: str) -> Any:
    return {
        "name": "x", "project": "x", "purpose": "x", "team": "x", "user": "x", "pool": "x", "priority": 1, "seed": 1, "env": {"A": "b"},
        "env_allow": ("A",), "secrets": ("S",), "outputs": ("x",), "register": "x",
        "hyperparameters": {"lr": 1}, "preemptible": False, "resume_from": "x", "labels": {"a": "b"},
        "placement": Placement(spot=False), "interactive": Interactive(kind="shell"),
    }.get(name, _other_model(name))  # fmt: skip


def _other_model(name: str) -> Any:
    sha = "0" * 64
    full = spec(
        ranks=7, device_type="h100", runtime={"command": ["x"]}, code={"uri": "x", "sha256": sha}, data={"uri": "x", "sha256": sha},
        checkpoint={"keep_last": 9}, limits={"restarts": 9},
        placement={"spot": False}, divergence={"action": "ignore"}, parallelism={"dp": 7}, training={"clip_norm": 1},
    )  # fmt: skip
    return getattr(full, name)
