"""Whatever anybody sends: nothing stops, nothing loops, and all of it is answered.

Each input is an event made from its JSON Schema, with values at and beyond every edge (tests/support/extremes.py), among ordinary ones.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from structlog.testing import capture_logs

from tests.support.core_world import admitted, registered
from tests.support.extremes import fields_of, records
from tests.support.tables.columns import columns
from trainhouse.events import (
    AttemptNumber,
    ChangeProject,
    Epoch,
    JobId,
    NodeHeartbeat,
    NodeId,
    ProgressReported,
    decode,
    encode,
    envelope_of,
)
from trainhouse.events.model.dead_letter import MAX_KEPT_BYTES
from trainhouse.events.model.errors import InvalidEvent
from trainhouse.events.model.trace_state import JobTraced
from trainhouse.events.wire.codec import HEADERS
from trainhouse.events.wire.journal import InputRefused, JournalRecord, PlacementFrozen
from trainhouse.events.wire.topic_types import TOPIC_EVENTS
from trainhouse.events.wire.topics import (
    ADMISSION,
    ALLOCATIONS,
    CHECKPOINTS,
    CONTROL,
    DEAD_LETTERS,
    DIRECTORY,
    JOBS,
    PROJECTS,
    STATUS,
    TRACKING,
)
from trainhouse.projections.exporter.job_state import Kept, Seen
from trainhouse.projections.exporter.openlineage_runs import as_event
from trainhouse.projections.exporter.senders import as_readable
from trainhouse.projections.exporter.translate import Exported, export_event
from trainhouse.projections.ingest.builders.event_builder import FactsBuilder
from trainhouse.projections.ingest.lanes import BEATS, DECISIONS, FACTS, OF_RANKS, REPORTS
from trainhouse.projections.record import Record
from trainhouse.projections.store.tables import DEAD_LETTERS_TABLE
from trainhouse.scheduler.core.detector.detector_machine import DetectorMachine
from trainhouse.scheduler.core.intake.directory import DirectoryMachine
from trainhouse.scheduler.core.intake.screening import Arrived, screen
from trainhouse.scheduler.core.protocol.batch import Limits, Proposer, pending
from trainhouse.scheduler.core.protocol.journal import Folded, begin, fold_bytes
from trainhouse.scheduler.core.protocol.publication import outgoing
from trainhouse.scheduler.core.schedule import ScheduleMachine
from trainhouse.workers.agent.core.spool import cut_spool
from trainhouse.workers.agent.core.telemetry import RANK_EVENTS, RankIdentity

LIMITS = Limits()
EXAMPLES = int(os.environ.get("TRAINHOUSE_TEST_EXTREMES", "60"))
# A run of many examples takes its time: about 4 s each on a machine that does other things too.
pytestmark = pytest.mark.timeout(max(300, 4 * EXAMPLES))
LANES_OF_EVENTS = (FACTS, OF_RANKS, REPORTS, BEATS, DECISIONS)
TABLES_OF_EVENTS = columns()
EXPORTED = (JOBS, CONTROL, ALLOCATIONS, STATUS, CHECKPOINTS, TRACKING)
FEW = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize="TRAINHOUSE_TEST_EXTREMES" not in os.environ
)


class Partition:
    """One partition of a machine, fed and folded as its owner does."""

    def __init__(self, machine: Any, input_topic: str) -> None:
        self.machine, self.topic = machine, input_topic
        self.folded: Folded[Any] = begin(machine, 0)
        self.now_ms = 1_000_000
        self.records: list[JournalRecord] = []

    def take(self, values: list[bytes], tick: bool = True) -> list[str]:
        """Everything of these is in the journal afterwards; why some were refused."""
        first = self.folded.cursor + 1
        waiting = [pending(first + n, value, (), LIMITS) for n, value in enumerate(values)]
        last, rounds, told = first + len(values) - 1, 0, list[str]()
        while self.folded.cursor < last or not rounds:
            rounds += 1
            assert rounds < 4 * len(values) + 4, "it does not come to an end"
            self.now_ms += 1_000
            made = Proposer(self.machine, "o", LIMITS, self.topic).propose(self.folded, self.now_ms, waiting, 0, tick=tick)
            if made is None:
                continue
            self.folded, counted = fold_bytes(self.machine, self.folded, made.value)
            assert counted is not None
            self.records.append(counted)
            frozen = [d.reason for d in counted.decisions if isinstance(d, PlacementFrozen)]
            assert not frozen, frozen
            told += [d.reason for d in counted.decisions if isinstance(d, InputRefused)]
            for out in outgoing(self.machine, self.topic, 0, counted):
                if out.headers and out.headers[0][0] == "content-type":
                    decode(out.value, out.headers)
        state = self.machine.dump(self.folded.state)
        assert self.machine.dump(self.machine.load(state)) == state
        return told


@FEW
@given(st.lists(records(TOPIC_EVENTS[JOBS]), min_size=1, max_size=6))
def test_intake_answers_everything_and_its_directory_goes_on(values: list[bytes]) -> None:
    directory = Partition(DirectoryMachine(control_partitions=4), ADMISSION)
    control = Partition(ScheduleMachine(), CONTROL)
    control.take([encode(envelope_of(registered("n1"), id="r1", source="s", now_ms=1))])
    for n, value in enumerate(values):
        screened = screen(Arrived(0, n, 1_000, value), 1, 2_000)
        assert screened.outgoing and not screened.own_failure, screened.own_failure
        refused = directory.take([out.value for out in screened.outgoing if out.topic == ADMISSION])
        assert not refused, refused
    passed = [o.value for r in directory.records for o in outgoing(directory.machine, ADMISSION, 0, r) if o.topic == CONTROL]
    if passed:
        refused = control.take(passed)
        assert not refused, refused
    for _ in range(4):
        control.now_ms += 20_000
        control.take([])


@pytest.mark.parametrize("name", ["lm", "team a", "\u2028", "деревья", "森" * 128, "x\x7f"])
def test_a_project_may_be_named_in_any_script(name: str) -> None:
    """Event ids are ASCII, and a project's name is part of some: such a project was a dead letter, its operator never answered."""
    directory, control = Partition(DirectoryMachine(control_partitions=4), ADMISSION), Partition(ScheduleMachine(), CONTROL)
    change = ChangeProject.model_validate({"project": {"name": name, "limits": {"running": 1}}})
    screened = screen(Arrived(0, 0, 1_000, encode(envelope_of(change, id="e", source="s", now_ms=1))), 1, 2_000)
    waits = [out.value for out in screened.outgoing if out.topic == ADMISSION]
    assert len(waits) == 1 and not directory.take(waits)
    made = [out for r in directory.records for out in outgoing(directory.machine, ADMISSION, 0, r)]
    assert not directory.take([out.value for out in made if out.topic == ADMISSION]), "told to every partition"
    made += outgoing(directory.machine, ADMISSION, 0, directory.records[-1])
    assert sum(out.topic == PROJECTS and out.key == name.encode() for out in made) == 1
    limits = [out.value for out in made if out.topic == CONTROL]
    assert limits and not control.take(limits)


@FEW
@given(st.lists(records(TOPIC_EVENTS[CONTROL]), min_size=1, max_size=8))
def test_the_scheduler_goes_on_whatever_agents_and_the_detector_say(values: list[bytes]) -> None:
    control = Partition(ScheduleMachine(), CONTROL)
    ordinary = [registered("n1"), registered("n2", slots=1), admitted("j", ranks=2), admitted("waits", ranks=2, limits={"run_time_s": 60})]
    control.take([encode(envelope_of(e, id=f"o{n}", source="s", now_ms=1)) for n, e in enumerate(ordinary)])
    control.take(values, tick=False)
    for _ in range(4):
        control.now_ms += 20_000
        control.take([])
    # A pool of its own: "default" may have been moved to another partition.
    again = encode(envelope_of(registered("n3", pool="later"), id="later", source="s", now_ms=1))
    assert not control.take([again]) and "n3" in control.folded.state.nodes


@pytest.mark.parametrize("size_bytes", [MAX_KEPT_BYTES, 2 * 2**20, 5 * 2**20, 20 * 2**20])
def test_records_that_are_small_only_while_compressed_stop_nobody(size_bytes: int) -> None:
    """Brokers measure what is compressed: one record of 2 MB, which no dead letter had room for, stopped its partition for good."""
    large = [b"\xff" * size_bytes, b'{"specversion": "1.0", "id": "e", "x": "' + b"y" * size_bytes + b'"}']
    control = Partition(ScheduleMachine(), CONTROL)
    refused = control.take([*large, encode(envelope_of(registered("n1"), id="r", source="s", now_ms=1))])
    assert len(refused) == 2 and str(len(large[0])) in refused[0] and "n1" in control.folded.state.nodes
    for n, value in enumerate(large):
        (letter, *_) = screen(Arrived(0, n, 1_000, value), 1, 2_000).outgoing
        assert letter.topic == DEAD_LETTERS and letter.value == value[:MAX_KEPT_BYTES]


@FEW
@given(st.lists(records([NodeHeartbeat]), min_size=1, max_size=8))
def test_the_detector_judges_or_passes_over_any_heartbeat(values: list[bytes]) -> None:
    machine = DetectorMachine()
    state, now_ms, said = machine.begin({}), 1_800_000_000_000, []
    for value in values:
        try:
            beat = decode(value).event
        except InvalidEvent:
            continue
        assert isinstance(beat, NodeHeartbeat)
        said += machine.on_heartbeat(state, beat, now_ms)
        now_ms += 1_000
        said += machine.tick(state, now_ms, True)
    for _ in range(30):
        now_ms += 1_000
        said += machine.tick(state, now_ms, True)
    for one in said:
        value = encode(envelope_of(one.event, id=one.name, source="s", now_ms=now_ms))
        assert decode(value).event == one.event or b"null" in value
        # What is said of it goes to the scheduler.
        control = Partition(ScheduleMachine(), DIRECTORY)
        control.take([encode(envelope_of(registered("n1"), id="r", source="s", now_ms=1)), value])


@FEW
@given(st.data())
def test_the_projector_makes_rows_or_a_dead_letter_of_anything(data: st.DataObject) -> None:
    topic, functions = data.draw(st.sampled_from([(topic, made) for lane in LANES_OF_EVENTS for topic, made in lane.items() if made]))
    values = data.draw(st.lists(records(TOPIC_EVENTS[topic]), min_size=1, max_size=4))
    sent = [Record(topic, 0, n, 2**62 if n else 1_000, b"k", value, HEADERS) for n, value in enumerate(values)]
    with capture_logs() as said:
        built = FactsBuilder({topic: functions}, TABLES_OF_EVENTS).build(sent, {})
    assert not [line for line in said if line["log_level"] == "critical"], said
    letters = built.tables[DEAD_LETTERS_TABLE].num_rows if DEAD_LETTERS_TABLE in built.tables else 0
    assert letters == built.unreadable
    unread = 0
    for value in values:
        try:
            decode(value)
        except InvalidEvent as invalid:
            assert str(invalid)
            unread += 1
    assert letters == unread, "what decodes makes its rows"


def test_what_is_no_dead_letter_among_dead_letters_is_one_itself() -> None:
    """It counted as a fault of the program."""
    sent = [Record(DEAD_LETTERS, 0, n, 1_000, b"k", b"junk", headers) for n, headers in enumerate((HEADERS, ()))]
    with capture_logs() as said:
        built = FactsBuilder({DEAD_LETTERS: ()}, TABLES_OF_EVENTS).build(sent, {})
    assert built.unreadable == 2 and not [line for line in said if line["log_level"] == "critical"], said


@FEW
@given(st.data())
def test_an_agent_passes_on_or_passes_over_whatever_a_rank_writes(data: st.DataObject) -> None:
    who = RankIdentity(JobId("j"), AttemptNumber(0), Epoch(1), NodeId("n1"), "default", 0)
    kinds = [kind for told in RANK_EVENTS.values() for kind in told]
    lines = []
    for _ in range(4):
        kind = data.draw(st.sampled_from([*kinds, ProgressReported]))
        fields = data.draw(fields_of(kind))
        lines.append(b'["p", %b]' % fields if kind is ProgressReported else b'["e", "%b", %b]' % (kind.__name__.encode(), fields))
    for cut in [cut_spool(b"\n".join(lines) + b"\n", 0), *(cut_spool(line + b"\n", 0) for line in lines)]:
        assert cut.end > 0 and cut.unreadable + len(cut.events) + (cut.progress is not None) > 0
        events = [told[1] for found in cut.events if (told := who.record_of(found, 1)) is not None]
        reported = who.progress(cut.progress) if cut.progress is not None else None
        for event in [*events, *([reported] if reported is not None else [])]:
            value = encode(envelope_of(event, id="e", source="s", now_ms=1))
            assert encode(decode(value)) == value


@FEW
@given(st.lists(records([*dict.fromkeys(event for topic in EXPORTED for event in TOPIC_EVENTS[topic])]), min_size=1, max_size=8))
def test_the_exporter_tells_others_of_anything_or_passes_over_it(values: list[bytes]) -> None:
    kept, told = Kept(), Exported()
    events = []
    for value in (encode(envelope_of(admitted("j"), id="sub-1", source="s", now_ms=1)), *values):
        with suppress(InvalidEvent):
            events.append(decode(value))
    for n, envelope in enumerate(events):
        export_event(kept, Seen(envelope, 1_000 + n), told)
    sent = encode_spans([as_readable(span, Resource({})) for span in told.spans])
    assert sum(len(scope.spans) for resource in sent.resource_spans for scope in resource.scope_spans) == len(told.spans)
    assert all(as_event(run, "trainhouse") for run in told.runs)
    for job in kept.jobs.values():
        again = decode(encode(envelope_of(job, id="t", source="s", now_ms=1))).event
        assert isinstance(again, JobTraced) and again.job_id == job.job_id
