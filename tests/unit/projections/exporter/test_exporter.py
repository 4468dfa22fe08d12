"""Traces and lineage of jobs from their events: whole, in order, once, under the same ids whatever is told again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from structlog.testing import capture_logs

from trainhouse.events import (
    AttemptStarted,
    CheckpointCompleted,
    CheckpointRestored,
    Envelope,
    Event,
    EventId,
    GangAllocated,
    JobAdmitted,
    JobState,
    JobStatus,
    JobSubmitted,
    NodePlacement,
    ProgressReported,
)
from trainhouse.events.model.bounds import EARLIEST_MS, LATEST_MS
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.model.spec import CodeArchive, DataReference, JobSpec, Runtime
from trainhouse.events.settings import KafkaSettings
from trainhouse.projections.exporter import followed_topics, job_state, reorder_buffer
from trainhouse.projections.exporter.followed_topics import ExporterBus
from trainhouse.projections.exporter.job_state import LINGER_MS, Kept, Seen
from trainhouse.projections.exporter.openlineage_runs import LineageDataset, as_event, dataset_of, run_id_of
from trainhouse.projections.exporter.reorder_buffer import Settling
from trainhouse.projections.exporter.senders import as_readable
from trainhouse.projections.exporter.spans import parent_of, trace_id_of
from trainhouse.projections.exporter.translate import Exported, export_event

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SPEC = JobSpec(
    name="gpt",
    project="nlp",
    user="ada",
    runtime=Runtime(command=("python", "t.py")),
    data=DataReference(uri="s3://corpus/wiki", sha256="a" * 64),
    code=CodeArchive(uri="s3://trainhouse/code/x.tar", sha256="b" * 64),
)


def seen(at_ms: int, event: Event, *, traceparent: str | None = None, time_ms: int | None = None, id: str = "sub-1") -> Seen:
    return Seen(Envelope(EventId(id), "t", event, time_ms=at_ms if time_ms is None else time_ms, traceparent=traceparent), at_ms)


def of_attempt(n: int, **more: Any) -> dict[str, Any]:
    return {"job_id": "j", "attempt": max(n - 1, 0), "epoch": n, **more}


def allocated(at_ms: int, n: int = 1) -> Seen:
    nodes = tuple(NodePlacement(node_id=f"n{i}", boot_id="b", address="a", first_rank=i, devices=(f"n{i}:0",)) for i in range(2))  # type: ignore[arg-type]
    event = GangAllocated.model_validate(
        of_attempt(n, pool="p", spec=SPEC, spec_sha256="c", placements=nodes, master_address="a", master_port=1)
    )
    return seen(at_ms + 20, event, time_ms=at_ms)


def status(at_ms: int, state: JobState, n: int = 1, **more: Any) -> Seen:
    fields = of_attempt(n, status_seq=at_ms, state=state, submission_id="sub-1", updated_at_ms=at_ms, **more)
    return seen(at_ms + 5, JobStatus.model_validate(fields))


def beginning(traceparent: str | None = None) -> list[Seen]:
    admitted = {"job_id": "j", "spec": SPEC, "spec_sha256": "c", "submission_id": "sub-1", "submitted_at_ms": 1_000}
    return [
        seen(1_000, JobSubmitted(job_id="j", spec=SPEC), traceparent=traceparent),  # type: ignore[arg-type]
        seen(1_010, JobAdmitted.model_validate(admitted), id="adm"),
        status(1_020, JobState.PENDING, 0),
    ]


def attempt(at_ms: int, n: int = 1, step: int = 1) -> list[Seen]:
    return [
        allocated(at_ms, n),
        status(at_ms + 1, JobState.SCHEDULED, n),
        seen(at_ms + 110, AttemptStarted.model_validate(of_attempt(n, node_id="n0", pool="p", started_at_ms=at_ms + 100, warm=True))),
        seen(at_ms + 130, AttemptStarted.model_validate(of_attempt(n, node_id="n1", pool="p", started_at_ms=at_ms + 120, warm=False))),
        status(at_ms + 200, JobState.RUNNING, n, running_at_ms=at_ms + 199),
        seen(at_ms + 300, ProgressReported.model_validate(of_attempt(n, node_id="n0", pool="p", rank=0, step=step, at_ms=at_ms + 290))),
    ]


def told_of(events: list[Seen], kept: Kept | None = None) -> Exported:
    told, kept = Exported(), kept or Kept()
    for each in events:
        export_event(kept, each, told)
    return told


def test_a_trace_goes_from_the_submission_through_admission_decision_and_launch_to_the_first_step() -> None:
    told = told_of([*beginning(PARENT), *attempt(2_000)])
    by_name = {(s.name, s.attributes.get("trainhouse.node_id")): s for s in told.spans}
    start = by_name["job start", None]
    assert {s.trace_id for s in told.spans} == {"0af7651916cd43dd8448eb211c80319c"}
    assert start.parent_id == "b7ad6b7169203331" and (start.start_ms, start.end_ms, start.error) == (1_000, 2_290, "")
    assert {s.parent_id for s in told.spans if s is not start} == {start.span_id}
    times = {name: (s.start_ms, s.end_ms) for name, s in by_name.items()}
    assert times == {
        ("intake", None): (1_000, 1_010),
        ("wait for devices", None): (1_010, 2_000),
        ("decision", None): (2_000, 2_020),
        ("launch", "n0"): (2_020, 2_100),
        ("launch", "n1"): (2_020, 2_120),
        ("first step", None): (2_120, 2_290),
        ("job start", None): (1_000, 2_290),
    }
    assert len({s.span_id for s in told.spans}) == len(told.spans)


def test_without_a_parent_the_trace_follows_from_the_submission_and_an_unsampled_one_is_not_told() -> None:
    told = told_of([*beginning(), *attempt(2_000)])
    assert {s.trace_id for s in told.spans} == {trace_id_of("sub-1")}
    assert next(s for s in told.spans if s.name == "job start").parent_id == ""
    unsampled = told_of([*beginning(PARENT[:-2] + "00"), *attempt(2_000)])
    assert not unsampled.spans and unsampled.runs


NO_SPAN = PARENT.replace("b7ad6b7169203331", "0" * 16)  # pragma: allowlist secret


@pytest.mark.parametrize("wrong", [None, "", "x", "ff" + PARENT[2:], NO_SPAN, PARENT.upper()])
def test_what_is_no_traceparent_is_none(wrong: str | None) -> None:
    assert parent_of(wrong) is None


def test_a_restart_is_a_part_of_the_same_trace_and_waits_from_the_failure_on() -> None:
    restored = CheckpointRestored.model_validate(of_attempt(2, at_ms=3_250, commit=1, step=40, uri="s3://b/j/commits/1", restore_s=0.1))
    second = attempt(3_000, 2, step=40)  # a report of the restored step is no step made
    later = ProgressReported.model_validate(of_attempt(2, node_id="n0", pool="p", rank=0, step=41, at_ms=3_500))
    events = [*beginning(), *attempt(2_000), status(2_900, JobState.PENDING, 1, reason="rank 0 died"), *second[:4], seen(3_255, restored)]
    told = told_of([*events, *second[4:], seen(3_510, later)])
    root = next(s for s in told.spans if s.name == "job start")
    again = next(s for s in told.spans if s.name == "job restart")
    assert again.parent_id == root.span_id and (again.start_ms, again.end_ms) == (2_900, 3_500)
    assert {s.name for s in told.spans if s.parent_id == again.span_id} == {
        "wait for devices",
        "decision",
        "launch",
        "restore",
        "first step",
    }
    assert [(r.verb, r.epoch) for r in told.runs] == [
        ("START", 1),
        ("RUNNING", 1),
        ("FAIL", 1),
        ("START", 2),
        ("RUNNING", 2),
        ("RUNNING", 2),
    ]
    assert told.runs[2].reason == "rank 0 died" and told.runs[4].inputs == (dataset_of("s3://b/j/commits/1"),)


@pytest.mark.parametrize(
    ("state", "verb", "error"),
    [
        (JobState.SUCCEEDED, "COMPLETE", ""),
        (JobState.FAILED, "FAIL", "why"),
        (JobState.CANCELLED, "ABORT", "why"),
        (JobState.PREEMPTED, "ABORT", "why"),
    ],
)
def test_an_end_without_a_step_ends_the_start(state: JobState, verb: str, error: str) -> None:
    events = [*beginning(), *attempt(2_000)[:5], status(5_000, state, 1, reason="why", finished_at_ms=4_990 if state.final else None)]
    told = told_of(events)
    start = next(s for s in told.spans if s.name == "job start")
    assert start.error == error and told.runs[-1].verb == verb and told.runs[-1].reason == error
    assert start.end_ms == (2_199 if state is JobState.SUCCEEDED else 4_990 if state.final else 5_000)


def test_lineage_names_data_code_and_checkpoints_and_is_what_the_library_takes() -> None:
    saved = CheckpointCompleted.model_validate(
        of_attempt(1, at_ms=2_400, commit=0, step=9, uri="s3://b/j/commits/0", bytes_total=1, bytes_new=1)
    )
    told = told_of([*beginning(), *attempt(2_000), seen(2_401, saved), status(5_000, JobState.SUCCEEDED, 1, finished_at_ms=4_990)])
    first, *_, save, end = told.runs
    assert [(d.namespace, d.name) for d in first.inputs] == [("s3://corpus", "wiki"), ("s3://trainhouse", "code/x.tar")]
    assert save.outputs == (dataset_of("s3://b/j/commits/0"),) and end.verb == "COMPLETE"
    events = [as_event(run, "trainhouse") for run in told.runs]
    assert {e.run.runId for e in events} == {run_id_of("j", 1)} and {e.job.name for e in events} == {"nlp.gpt"}
    assert [str(e.eventType.value) for e in events if e.eventType] == ["START", "RUNNING", "RUNNING", "COMPLETE"]
    assert (dataset_of("/data/x").namespace, dataset_of("file:///data/x").name) == ("file", "/data/x")


@pytest.mark.parametrize(("signers", "told_of_it"), [(None, True), ({"n0"}, True), ({"thief"}, False), (set(), False)])
def test_what_an_attempt_began_from_is_believed_of_its_own_nodes_alone(signers: set[str] | None, told_of_it: bool) -> None:
    about = of_attempt(1, at_ms=2_300, commit=0, step=9, uri="s3://b/j/commits/0", restore_s=0.1)
    began = replace(seen(2_301, CheckpointRestored.model_validate(about)), signers=None if signers is None else frozenset(signers))
    first, *others = attempt(2_000)
    told = told_of([*beginning(), first, began, *others])
    assert (dataset_of("s3://b/j/commits/0") in [d for run in told.runs for d in run.inputs]) is told_of_it
    assert ("restore" in [s.name for s in told.spans]) is told_of_it


def test_a_version_of_a_dataset_is_an_input_by_its_name_and_hash() -> None:
    spec = SPEC.model_copy(update={"data": DataReference(dataset=f"speech@sha256:{'a' * 64}", split="train")})
    first, *others = attempt(2_000)
    gang = first.envelope.event.model_copy(update={"spec": spec})
    run = told_of([*beginning(), seen(2_020, gang, time_ms=2_000), *others]).runs[0]
    assert LineageDataset("trainhouse", "speech", "a" * 64) in run.inputs


@pytest.mark.parametrize("uri", ["s3://[corpus/wiki", "https://a]b/", "s3://b\u2100/x"])
def test_a_uri_that_is_none_is_told_as_it_was_written(uri: str) -> None:
    spec = SPEC.model_copy(update={"data": DataReference(uri=uri, sha256="a" * 64)})
    first, *others = attempt(2_000)
    gang = first.envelope.event.model_copy(update={"spec": spec})
    told = told_of([*beginning(), seen(2_020, gang, time_ms=2_000), *others])
    assert as_event(told.runs[0], "trainhouse").inputs[0].name == uri and told.spans


@pytest.mark.parametrize("took", ["NaN", "Infinity", "-Infinity"])
def test_a_restore_that_took_no_time_that_is_one_is_told_as_an_instant(took: str) -> None:
    restored = CheckpointRestored.model_validate(of_attempt(1, at_ms=2_250, commit=1, step=0, uri="s3://b/1", restore_s=took))
    told = told_of([*beginning(), *attempt(2_000)[:4], seen(2_255, restored)])
    assert [(s.start_ms, s.end_ms) for s in told.spans if s.name == "restore"] == [(2_250, 2_250)]


WHOLE = [*beginning(PARENT), *attempt(2_000), status(2_900, JobState.PENDING, 1), *attempt(3_000, 2), status(9_000, JobState.SUCCEEDED, 2)]


@given(st.lists(st.integers(0, len(WHOLE)), max_size=3))
def test_a_crash_tells_the_same_again_and_nothing_else(cuts: list[int]) -> None:
    """At a cut the process dies after it told, before or after it remembered: events from an earlier place come again."""
    once = told_of(WHOLE)
    kept, all_told, at = Kept(), Exported(), 0
    for cut in [*cuts, len(WHOLE)]:
        start = min(at, cut)
        part = told_of(WHOLE[start : max(cut, start)], kept)
        all_told.spans += part.spans
        all_told.runs += part.runs
        at = max(cut, start)
        kept = Kept(list(kept.jobs.values()))
    assert {(s.span_id, s.name, s.start_ms, s.end_ms) for s in all_told.spans} == {
        (s.span_id, s.name, s.start_ms, s.end_ms) for s in once.spans
    }
    assert {(r.verb, r.epoch, r.at_ms) for r in all_told.runs} == {(r.verb, r.epoch, r.at_ms) for r in once.runs}


def test_what_came_twice_is_told_once() -> None:
    kept = Kept()
    told = told_of([e for e in WHOLE[:9] for _ in range(2)], kept)
    names = [s.span_id for s in told.spans]
    assert len(set(names)) == len(names)


def test_jobs_are_bounded_and_forgotten_after_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept()
    told_of(WHOLE, kept)
    kept.take_changed()
    kept.forget_ended(9_000 + LINGER_MS)
    assert "j" in kept.jobs
    kept.forget_ended(9_100 + LINGER_MS)
    assert not kept.jobs and kept.take_changed() == {"j": None}
    monkeypatch.setattr(job_state, "MAX_JOBS", 5)
    for n in range(9):
        export_event(kept, seen(n, JobSubmitted(job_id=f"j{n}", spec=SPEC), id=f"s{n}"), Exported())  # type: ignore[arg-type]
    assert list(kept.jobs) == [f"j{n}" for n in range(4, 9)]


def test_events_of_several_partitions_come_in_the_order_of_time_and_offsets_wait_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = Settling(1_000, {("quiet", 0): 4})
    assert waiting.done() == {("quiet", 0): 4}  # what was not read from yet must be committed too
    late, early, middle = (seen(at, JobSubmitted(job_id="j", spec=SPEC)) for at in (5_000, 4_000, 4_500))  # type: ignore[arg-type]
    waiting.add(("a", 0), 7, [late])
    waiting.add(("a", 0), 8, [early])
    waiting.add(("b", 1), 3, [middle])
    waiting.add(("b", 1), 4, [])
    assert waiting.take(5_600) == [early, middle]
    assert waiting.done() == {("quiet", 0): 4, ("a", 0): 7, ("b", 1): 5}
    assert waiting.take(6_000) == [late] and waiting.done() == {("quiet", 0): 4, ("a", 0): 9, ("b", 1): 5}
    monkeypatch.setattr(reorder_buffer, "MAX_WAITING", 2)
    for offset in range(4):
        waiting.add(("c", 0), offset, [seen(9_000 + offset, JobSubmitted(job_id="j", spec=SPEC))])  # type: ignore[arg-type]
    assert [s.at_ms for s in waiting.take(0)] == [9_000, 9_001] and len(waiting) == 2


def test_what_a_node_says_of_an_attempt_that_it_was_not_given_is_in_no_trace() -> None:
    """A node's own key, of a name that was free, told launches and first steps of anybody's job."""
    forged = [
        seen(2_010, AttemptStarted.model_validate(of_attempt(1, node_id="zz", pool="p", started_at_ms=1, warm=True))),
        seen(2_020, ProgressReported.model_validate(of_attempt(1, node_id="zz", pool="p", rank=0, step=9, at_ms=2))),
    ]
    first = attempt(2_000)
    told, true = told_of([*beginning(), *first[:2], *forged, *first[2:]]), told_of([*beginning(), *first])
    assert [(s.name, s.attributes, s.start_ms, s.end_ms) for s in told.spans] == [
        (s.name, s.attributes, s.start_ms, s.end_ms) for s in true.spans
    ]


@pytest.mark.parametrize("wrong_ms", [-315_619_200_000, EARLIEST_MS, LATEST_MS])
def test_a_time_that_is_none_stops_neither_traces_nor_lineage(wrong_ms: int) -> None:
    """Anybody's submission says when it was: a time before 1970, or after all calendars, is told as near as a peer can take it."""
    submitted = seen(1_000, JobSubmitted(job_id="j", spec=SPEC), time_ms=wrong_ms)  # type: ignore[arg-type]
    started = AttemptStarted.model_validate(of_attempt(1, node_id="n1", pool="p", started_at_ms=wrong_ms, warm=True))
    end = status(5_000, JobState.FAILED, 1, finished_at_ms=wrong_ms)
    first = attempt(2_000)
    told = told_of([submitted, *beginning()[1:], *first[:3], seen(2_130, started), *first[4:], end])
    assert wrong_ms in {ms for span in told.spans for ms in (span.start_ms, span.end_ms)}
    sent = encode_spans([as_readable(span, Resource({})) for span in told.spans])
    assert len(sent.resource_spans[0].scope_spans[0].spans) == len(told.spans) > 0
    assert told.runs[-1].at_ms == wrong_ms
    assert [as_event(run, "trainhouse").eventTime for run in told.runs][-1] in ("1970-01-01T00:00:00.000Z", "2096-10-02T07:06:40.000Z")


class Answer:
    """What the brokers say of a record, or of a partition's commit."""

    def __init__(self, code: int | None, partition: int = 0) -> None:
        self.error = (lambda: None) if code is None else (lambda: KafkaError(code))
        self.topic, self.partition = (lambda: "t"), (lambda: partition)


class Brokers:
    """A consumer whose brokers do not say how far it was, and whose second record is an error."""

    def committed(self, asked: list[TopicPartition], timeout: float) -> list[Any]:
        class Unknown:
            error = KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
            offset = -1001

        return [Unknown() for _ in asked]

    def consume(self, count: int, timeout: float) -> list[Answer]:
        return [Answer(None), Answer(KafkaError.TOPIC_AUTHORIZATION_FAILED, 1), Answer(None)]


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> ExporterBus:
    monkeypatch.setattr(followed_topics, "consumer", lambda *_, **__: Brokers())
    monkeypatch.setattr(followed_topics, "Producer", lambda *_: None)
    return ExporterBus(KafkaSettings(bootstrap="nobody:1"))


def test_not_to_know_what_was_told_is_no_first_start(reading: ExporterBus) -> None:
    with pytest.raises(BusUnavailableError, match="t-0 was told is not known"):
        reading._start("t", 0, from_beginning=False)


def test_a_topic_that_cannot_be_read_is_said_and_loses_nothing_of_the_others(reading: ExporterBus) -> None:
    with capture_logs() as logs:
        assert len(reading.poll(0)) == len(reading.poll(0)) == 2
    assert [(entry["log_level"], entry["topic"]) for entry in logs] == [("error", "t")]
