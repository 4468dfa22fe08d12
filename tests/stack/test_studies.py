"""A study on the shared stack, created over Kafka: its trials are jobs, the tuner is killed in the midst of them, and the best is right."""

from __future__ import annotations

import os
import secrets
import signal
import time
from typing import Any

import pytest

from tests.support.decoded import decoded
from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import PATIENCE_S, until
from trainhouse.events import (
    Envelope,
    Event,
    EventId,
    JobSubmitted,
    StudyBegun,
    StudyChanged,
    StudyCreated,
    StudyState,
    StudyStatus,
    TrialEnded,
    TrialStarted,
    TrialState,
    TrialValueRecorded,
    envelope_of,
)
from trainhouse.events.bus.kafka import EventProducer, consumer, partitions_of, read_to_end
from trainhouse.events.model.study import StudyEvent
from trainhouse.events.wire.topics import JOBS, STUDIES, STUDY_HISTORY, STUDY_REQUESTS

pytestmark = pytest.mark.stack
TRIALS = 6
SCRIPT = """
import sys, time
from trainhouse.workers import Session
session = Session.start()
x = float(session.hyperparameters["x"])
assert float(sys.argv[1]) == x
for step in session.steps(4):
    session.log(val_loss=(x - 2.0) ** 2 + 1.0 / (step + 1), other=1.0)
    time.sleep(0.2)
"""


def send(stack: LiveStack, event: StudyEvent, event_id: str) -> None:
    """A request, twice: it counts once."""
    producer = EventProducer(stack.client_kafka())
    envelope = envelope_of(event, id=EventId(event_id), source="tests", now_ms=time.time_ns() // 1_000_000)
    for _ in range(2):
        producer.send(STUDY_REQUESTS, envelope)
    producer.flush(30)


def envelopes(stack: LiveStack, topic: str) -> list[Envelope]:
    """All that is on a topic, in the order of its partitions."""
    reader = consumer(stack.client_kafka(), log_level=0, **{"enable.partition.eof": True})
    try:
        return list(decoded(each for each in read_to_end(reader, topic, partitions_of(reader, topic)) if each.value()))
    finally:
        reader.close()


def events(stack: LiveStack, topic: str, study: str) -> list[StudyEvent]:
    """Events of one study on a topic."""
    found = [each.event for each in envelopes(stack, topic)]
    return [each for each in found if isinstance(each, StudyEvent) and each.study == study]


def study_of(name: str, **changes: Any) -> StudyCreated:
    job = {"runtime": {"command": ["python", "-c", SCRIPT, "{x}"]}, "resources": {"device_type": "cpu"}}
    spec = {
        "space": {"x": {"low": 0.0, "high": 4.0}},
        "metrics": {"name": "val_loss"},
        "parallel": 2,
        "budget": {"trials": TRIALS},
        "enqueue": [{"x": 2.0}],
        "job": job,
    }
    return StudyCreated.model_validate({"study": name, "user": "ada", "spec": spec | changes})


@pytest.mark.timeout(900, func_only=True)
def test_a_study_whose_tuner_is_killed_ends_with_the_best_of_its_trials(stack: LiveStack) -> None:
    name = f"killed-{secrets.token_hex(3)}"

    def history(kind: type[Event]) -> list[Any]:
        return [each for each in events(stack, STUDY_HISTORY, name) if isinstance(each, kind)]

    send(stack, study_of(name), name)
    until(lambda: history(TrialEnded), "the first trial", timeout_s=PATIENCE_S)
    first = stack.part("tuner").pid
    assert first
    os.kill(first, signal.SIGKILL)
    until(lambda: stack.part("tuner").pid not in (first, 0, None), "another tuner")
    ended = until(
        lambda: [each for each in history(StudyChanged) if each.state is StudyState.ENDED],
        lambda: str(history(TrialEnded)),
        timeout_s=PATIENCE_S,
    )
    assert len(ended) == 1 and len(history(StudyBegun)) == 1

    started, trials = history(TrialStarted), {each.trial: each for each in history(TrialEnded)}
    assert [each.trial for each in started] == list(range(TRIALS)) and set(trials) == set(range(TRIALS))
    assert {each.state for each in trials.values()} == {TrialState.COMPLETE}, {n: each.reason for n, each in trials.items()}
    losses = {number: each.values["val_loss"] for number, each in trials.items()}
    expected = {each.trial: (each.values["x"] - 2.0) ** 2 + 0.25 for each in started}
    assert losses == pytest.approx(expected), "the newest value of each trial counts"
    assert losses == pytest.approx({each.trial: each.values["val_loss"] for each in history(TrialValueRecorded)})
    [status] = [each for each in events(stack, STUDIES, name) if isinstance(each, StudyStatus)][-1:]
    assert (status.state, [each.trial for each in status.best]) == (StudyState.ENDED, [0]), "x = 2 was enqueued"
    assert status.trials == {TrialState.COMPLETE: TRIALS} and status.device_s > 0

    jobs = [str(each.event.job_id) for each in envelopes(stack, JOBS) if isinstance(each.event, JobSubmitted)]
    ours = sorted(job for job in jobs if job.startswith(f"study-{name}"))
    assert ours == sorted(str(each.job_id) for each in started), "no trial was submitted twice"
    ran = stack.rows(f"SELECT count() AS n, uniqExact(job_id) AS jobs FROM jobs WHERE job_id LIKE 'study-{name}%' AND state = 'SUCCEEDED'")
    assert ran == [{"n": TRIALS, "jobs": TRIALS}]
    verified = {row["topic"]: row for row in stack.run("replay", "--verify", "--json").objects()}["trainhouse.tuning"]
    assert verified["same"] and verified["recomputed"]


@pytest.mark.timeout(900, func_only=True)
def test_a_study_whose_metric_nobody_logs_ends_with_the_reason(stack: LiveStack) -> None:
    name = f"unlogged-{secrets.token_hex(3)}"
    send(stack, study_of(name, metrics={"name": "accuracy", "mode": "max"}, max_failed=0), name)

    def ended() -> list[Any]:
        found = events(stack, STUDY_HISTORY, name)
        over = [each for each in found if isinstance(each, StudyChanged) and each.state is StudyState.ENDED]
        return [*over, *(each for each in found if isinstance(each, TrialEnded))] if over else []

    over, *trials = until(ended, "the end of the study", timeout_s=PATIENCE_S)
    assert "more than max_failed = 0" in over.reason
    reasons = [each.reason for each in trials if each.state is TrialState.FAILED]
    assert any(reason.startswith('metric "accuracy" was never logged') and "val_loss" in reason for reason in reasons), reasons
