"""Envelope and codec: both CloudEvents modes, lenient reading, strict writing, and sentences for bad input."""

import math
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_structured, to_binary, to_structured
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from trainhouse.events import InvalidEvent, JobSpec, JobStatus, JobSubmitted, Order, UnknownEventType, envelope_of
from trainhouse.events.wire import schemas
from trainhouse.events.wire.codec import HEADERS, decode, encode
from trainhouse.events.wire.upcast import Upcasters
from trainhouse.events.wire.validation_messages import explain_validation

SAMPLES = sorted((Path(schemas.__file__).parents[1] / "contract" / "samples").glob("*.json"))
DATA = {"job_id": "hello", "spec": {"gang": 2, "runtime": {"command": ["python", "train.py"]}}}
BY_HAND = (
    b'{"specversion":"1.0","id":"1","source":"me","type":"trainhouse.job.submitted.v1",'
    b'"data":{"job_id":"hello","spec":{"gang":2,"runtime":{"command":["python","train.py"]}}}}'
)


def test_one_line_by_hand_is_a_submission() -> None:
    envelope = decode(BY_HAND)
    assert isinstance(envelope.event, JobSubmitted)
    assert (envelope.event.spec.gang.ranks, envelope.subject, envelope.event.spec.pool) == (2, "hello", "default")


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.stem)
def test_the_cloudevents_sdk_reads_what_we_write(path: Path) -> None:
    envelope = decode(path.read_bytes())
    read = from_structured(KafkaMessage(headers=dict(HEADERS), key=None, value=encode(envelope)), JSONFormat(), CloudEvent)
    assert (read.get_id(), read.get_source(), read.get_type()) == (envelope.id, envelope.source, envelope.type)
    assert (read.get_subject() or "") == envelope.subject
    assert read.get_data() == orjson.loads(envelope.event.model_dump_json())


@pytest.mark.parametrize("mode", [to_structured, to_binary], ids=["structured", "binary"])
def test_we_read_what_the_cloudevents_sdk_writes(mode: object) -> None:
    event = CloudEvent({"id": "x-1", "source": "sdk", "type": "trainhouse.job.submitted.v1", "datacontenttype": "application/json"}, DATA)
    message = mode(event, JSONFormat())  # type: ignore[operator]
    envelope = decode(message.value, list(message.headers.items()))
    assert (envelope.id, envelope.source, envelope.event.job_id) == ("x-1", "sdk", "hello")  # type: ignore[attr-defined]
    assert envelope.time_ms is not None


def test_order_and_time_travel() -> None:
    envelope = envelope_of(JobSubmitted.model_validate(DATA), id="a", source="s", now_ms=1_700_000_000_123, order=Order(3, 9, 1))
    assert decode(encode(envelope)) == envelope
    assert Order(3, 9, 1) < Order(3, 10, 0)


def test_nan_survives() -> None:
    status = JobStatus.model_validate({"job_id": "j", "status_seq": 1, "state": "RUNNING", "loss": math.nan})
    read = decode(encode(envelope_of(status, id="a", source="s", now_ms=0))).event
    assert isinstance(read, JobStatus)
    assert read.loss is not None
    assert math.isnan(read.loss)


def test_readers_skip_unknown_fields_but_writers_and_public_input_do_not() -> None:
    status = encode(
        envelope_of(JobStatus.model_validate({"job_id": "j", "status_seq": 1, "state": "RUNNING"}), id="a", source="s", now_ms=0)
    )
    assert isinstance(decode(status.replace(b'"status_seq"', b'"later":{"x":[1]},"status_seq"')).event, JobStatus)
    with pytest.raises(InvalidEvent, match=r"spec\.priorty: no such field; did you mean 'priority'"):
        decode(BY_HAND.replace(b'"gang":2', b'"gang":2,"priorty":1'))
    with pytest.raises(ValueError, match="statusseq"):
        JobStatus.model_validate({"job_id": "j", "status_seq": 1, "state": "RUNNING", "statusseq": 2})


def test_what_is_wrong_with_several_fields_together_is_said_without_a_path() -> None:
    with pytest.raises(ValidationError) as caught:
        JobSpec.model_validate({"gang": 2, "parallelism": {"tp": 4}, "runtime": {"command": ["x"]}})
    assert explain_validation(caught.value, JobSpec).startswith("parallelism: dp × fsdp × tp × pp = 1 × 1 × 4 × 1 = 4, but the gang has")
    with pytest.raises(InvalidEvent, match=r"submitted\.v1: spec\.gang: min_ranks = 3 is more than ranks = 2"):
        decode(BY_HAND.replace(b'"gang":2', b'"gang":{"ranks":2,"min_ranks":3}'))


def _bad() -> Iterator[tuple[bytes, str]]:
    yield b"", "no JSON"
    yield b"\xff\xfe", "no JSON"
    yield b"[1]", "JSON list"
    yield b"{}", 'send "specversion": "1.0"'
    yield BY_HAND.replace(b'"id":"1",', b""), '"id" is missing'
    yield BY_HAND.replace(b'"gang":2', b'"gang":0'), "spec.gang.ranks: Input should be greater than or equal to 1"
    yield BY_HAND.replace(b'"job_id":"hello"', b'"job_id":"../../etc"'), "is no valid id"
    yield BY_HAND.replace(b'"runtime":{"command":["python","train.py"]}', b'"name":"x"'), "spec.runtime: required, but missing"
    yield BY_HAND.replace(b'"gang":2', b'"env":{"RANK":"1"}'), "set by the launcher"
    yield BY_HAND.replace(b'"source":"me"', b'"source":"me","order":"junk"'), "attributes of the CloudEvent"
    yield BY_HAND.replace(b'"source":"me"', b'"source":"me","time":"yesterday"'), "attributes of the CloudEvent"


@pytest.mark.parametrize(("value", "reason"), list(_bad()))
def test_bad_input_gets_a_reason(value: bytes, reason: str) -> None:
    with pytest.raises(InvalidEvent) as caught:
        decode(value)
    assert reason in str(caught.value)


def test_unknown_types_and_versions_say_what_is_known() -> None:
    with pytest.raises(UnknownEventType, match=r"known: trainhouse\.job\.submitted\.v1") as caught:
        decode(BY_HAND.replace(b"submitted.v1", b"submitted.v7"))
    assert (caught.value.job_id, caught.value.event_id) == ("hello", "1")
    with pytest.raises(UnknownEventType, match="trainhouse schemas"):
        decode(BY_HAND.replace(b"job.submitted", b"job.exploded"))


@given(st.binary(max_size=400))
def test_junk_never_raises_anything_else(junk: bytes) -> None:
    try:
        decode(junk, [("ce_id", junk), ("ce_specversion", b"1.0")])
    except InvalidEvent:
        pass


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda c: st.lists(c) | st.dictionaries(st.text(), c), max_leaves=20
    )
)
def test_junk_data_never_raises_anything_else(data: object) -> None:
    try:
        value = orjson.dumps({"specversion": "1.0", "id": "1", "source": "s", "type": "trainhouse.job.submitted.v1", "data": data})
    except (TypeError, orjson.JSONEncodeError):
        return
    with pytest.raises(InvalidEvent):
        decode(value)


def test_equal_specs_have_equal_hashes() -> None:
    one, two = (JobSubmitted.model_validate(DATA).spec for _ in range(2))
    assert one.sha256() == two.sha256() == one.model_validate_json(one.canonical_json()).sha256()
    assert one.sha256() != one.model_copy(update={"seed": 1}).sha256()


class TestUpcasters:
    def test_steps_are_taken_one_by_one_and_leave_the_input_alone(self) -> None:
        steps = Upcasters()
        steps.add("trainhouse.a.b.v1", "trainhouse.a.b.v2", lambda d: d | {"unit": "s"})
        steps.add("trainhouse.a.b.v2", "trainhouse.a.b.v3", lambda d: {"time_s": d["time"]})
        data = {"time": 3}
        assert steps.lift("trainhouse.a.b.v1", data) == ("trainhouse.a.b.v3", {"time_s": 3})
        assert data == {"time": 3}

    def test_only_the_next_version_of_the_same_event(self) -> None:
        for new in ("trainhouse.a.b.v3", "trainhouse.a.c.v2"):
            with pytest.raises(ValueError, match="next version of the same event"):
                Upcasters().add("trainhouse.a.b.v1", new, dict)

    def test_a_step_that_fails_is_invalid_input(self) -> None:
        steps = Upcasters()
        steps.add("trainhouse.a.b.v1", "trainhouse.a.b.v2", lambda d: {"x": d["gone"]})
        with pytest.raises(InvalidEvent, match=r"cannot be read as trainhouse\.a\.b\.v2"):
            steps.lift("trainhouse.a.b.v1", {})
