"""Intake's first stage: what an outsider's bytes become."""

import asyncio

import orjson
import pytest
from structlog.testing import capture_logs

from tests.support.fakes.journal_fakes import FakeBroker, FakeLog, Faults
from trainhouse.events import (
    DeadLetter,
    Envelope,
    JobState,
    JobStatus,
    NodeId,
    NodeSuspected,
    PoolCreated,
    PoolName,
    decode,
    encode,
    envelope_of,
)
from trainhouse.events.runtime.clock import SystemClock
from trainhouse.events.wire.topics import ADMISSION, DEAD_LETTERS, JOBS, MAX_INPUT_BYTES, STATUS
from trainhouse.scheduler.core.intake import screening
from trainhouse.scheduler.core.intake.screening import Arrived, Screened, screen
from trainhouse.scheduler.stream.interfaces import Entry
from trainhouse.scheduler.stream.screening.screening_agent import ScreeningAgent

LINE = {
    "specversion": "1.0",
    "id": "sub-1",
    "source": "me",
    "type": "trainhouse.job.submitted.v1",
    "data": {"job_id": "job-1", "spec": {"runtime": {"command": ["python", "train.py"]}}},
}


def screened(value: bytes | None) -> Screened:
    return screen(Arrived(2, 7, 1_000, value), 4, 5_000)


def test_a_line_written_by_hand_is_admitted_under_its_job() -> None:
    (out,) = screened(orjson.dumps(LINE)).outgoing
    assert (out.topic, out.key, out.partition) == (ADMISSION, b"job-1", None)
    assert decode(out.value).time_ms == 1_000, "without a time, the log's is taken"


def test_an_outsiders_order_is_not_believed() -> None:
    (out,) = screened(orjson.dumps(LINE | {"order": "0.9999.0"})).outgoing
    assert decode(out.value).order is None


def test_a_pool_reaches_every_partition() -> None:
    event = PoolCreated(pool=PoolName("p"), partition=1)
    out = screened(encode(envelope_of(event, id="p1", source="me", now_ms=1))).outgoing
    assert [o.partition for o in out] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"type": "trainhouse.job.submitted.v9"}, "version is not known"),
        ({"type": "trainhouse.nonsense.happened.v1"}, "not an event type"),
        ({"data": {"job_id": "job-1", "spec": {"runtme": {}}}}, "runtme"),
        ({"specversion": "0.3"}, "specversion"),
    ],
)
def test_a_bad_event_is_kept_and_its_producer_told(change: dict[str, object], told: str) -> None:
    value = orjson.dumps(LINE | change)
    letter, status = screened(value).outgoing
    assert letter.topic == DEAD_LETTERS and letter.value == value
    assert told in DeadLetter.of_headers(list(letter.headers)).reason
    assert (status.topic, status.key) == (STATUS, b"sub-1")
    event = decode(status.value).event
    assert isinstance(event, JobStatus) and event.state is JobState.REJECTED and told in event.reason


@pytest.mark.parametrize(
    "junk", [b"", b"{", b"\xff" * 100, b"[1]", None, b"x" * (MAX_INPUT_BYTES + 1), b'{"type":[]}', b'{"type":{"a":1}}', b'{"type":1}']
)
def test_junk_is_kept_with_its_place(junk: bytes | None) -> None:
    (letter,) = screened(junk).outgoing
    found = DeadLetter.of_headers(list(letter.headers))
    assert (found.topic, found.partition, found.offset, letter.value) == (JOBS, 2, 7, junk or b"")


def test_an_event_of_ours_does_not_belong_there() -> None:
    event = NodeSuspected(node_id=NodeId("n"), boot_id="b", pool=PoolName("p"), silent_s=1, suspicion=1, at_ms=1)
    (letter,) = screened(encode(envelope_of(event, id="e", source="me", now_ms=1))).outgoing
    assert "does not belong" in DeadLetter.of_headers(list(letter.headers)).reason


def test_our_own_failure_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("our bug")

    monkeypatch.setattr(screening, "decode", broken)
    found = screened(orjson.dumps(LINE))
    assert found.own_failure and found.outgoing[0].topic == DEAD_LETTERS


def test_what_our_own_code_fails_on_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than 200 failures once stopped intake for everybody, and again after each restart."""

    def broken(envelope: Envelope, project: str | None) -> Envelope:
        if envelope.id.startswith("bad"):
            raise ZeroDivisionError("our bug")
        return envelope

    monkeypatch.setattr(screening, "vouched", broken)
    broker = FakeBroker()
    lines = [orjson.dumps(LINE | {"id": f"{'bad' if n % 4 else 'good'}-{n}"}) for n in range(400)]

    async def taken() -> None:
        agent = ScreeningAgent(FakeLog(broker, Faults(delay_s=0)), SystemClock())
        for first in range(0, 400, 50):
            await agent.take({0: [Entry(0, first + n, 1, None, line) for n, line in enumerate(lines[first : first + 50])]})

    with capture_logs() as said:
        asyncio.run(taken())
    count = {topic: len(broker.committed(topic, 0)) for topic in (ADMISSION, DEAD_LETTERS, STATUS)}
    assert count == {ADMISSION: 100, DEAD_LETTERS: 300, STATUS: 300}, "each is answered"
    faults = [line["error"] for line in said if line["log_level"] == "critical"]
    assert len(faults) == 1 and faults[0].startswith("ZeroDivisionError in broken")
