"""Cutting spools and logs: any pieces give the same whole."""

import math
from dataclasses import replace

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.profiles import examples
from trainhouse.events import CheckpointCompleted, Epoch, JobId, NodeId
from trainhouse.events.model.ids import AttemptNumber
from trainhouse.events.wire.topics import CHECKPOINTS
from trainhouse.workers.agent.core import loglines
from trainhouse.workers.agent.core.loglines import GOES_ON, cut_log
from trainhouse.workers.agent.core.spool import MAX_CELLS, MAX_LINE_BYTES, MAX_POINTS, SpoolEvent, cut_spool
from trainhouse.workers.agent.core.telemetry import RankIdentity

WHO = RankIdentity(JobId("j"), AttemptNumber(0), Epoch(0), NodeId("n"), "p", 0)
names = st.sampled_from(["loss", "lr", "acc"])
values = st.one_of(st.floats(-1e6, 1e6), st.integers(-5, 5), st.none(), st.sampled_from(["NaN", "Infinity", "-Infinity"]))
points = st.tuples(st.integers(0, 10**9), st.integers(0, 2**50), st.dictionaries(names, values, min_size=1)).map(lambda p: ["m", *p])
others = st.sampled_from([["p", {"step": 3}], ["e", "CheckpointStarted", {"step": 1}, None], "junk{", [], ["?"], 7, ["m", "x", 1, {}]])


def as_line(value: object) -> bytes:
    return (value.encode() if isinstance(value, str) else orjson.dumps(value)) + b"\n"


def flat(cuts: list) -> list[tuple]:  # type: ignore[type-arg]
    found = []
    for cut in cuts:
        for batch in cut.batches:
            for i, offset in enumerate(batch.offsets):
                row = {n: c[i] for n, c in batch.metrics.items() if c[i] is not None}
                assert batch.start <= offset < batch.end
                found.append((offset, batch.steps[i], batch.times_ms[i], repr(sorted(row.items()))))
    return found


def cut_all(data: bytes, sizes: list[int]) -> list:  # type: ignore[type-arg]
    cuts, position, turn = [], 0, 0
    while position < len(data):
        piece = data[position : position + sizes[turn % len(sizes)]]
        cut = cut_spool(piece, position, final=False)
        if cut.end == position:  # not a whole line yet: more of the file must be there
            cut = cut_spool(data[position:], position)
        cuts.append(cut)
        position, turn = cut.end, turn + 1
    return cuts


@settings(max_examples=examples(200))
@given(st.lists(st.one_of(points, others), min_size=1, max_size=30), st.lists(st.integers(1, 400), min_size=1, max_size=5))
def test_a_spool_cut_anywhere_gives_the_same_points(lines: list[object], sizes: list[int]) -> None:
    data = b"".join(map(as_line, lines))
    cuts = cut_all(data, sizes)
    assert flat(cuts) == flat([cut_spool(data, 0)])
    assert [c.start for c in cuts] == [0, *[c.end for c in cuts[:-1]]] and cuts[-1].end == len(data)
    offsets = [o for o, _, _, _ in flat(cuts)]
    assert [data[o : o + 4] for o in offsets] == [b'["m"'] * len(offsets)
    assert [e.offset for c in cuts for e in c.events] == [e.offset for e in cut_spool(data, 0).events]
    assert sum(c.unreadable for c in cuts) == cut_spool(data, 0).unreadable


@settings(max_examples=examples(100))
@given(st.lists(points, min_size=2, max_size=30), st.lists(st.integers(60, 300), min_size=1, max_size=3), st.integers(0, 20))
def test_overlaps_of_another_cut_are_trimmed_by_offset(lines: list[object], sizes: list[int], back: int) -> None:
    """A restarted agent cuts again from an older position: a reader with a high-water mark of bytes has every point once."""
    data = b"".join(map(as_line, lines))
    first, whole = cut_all(data, sizes), flat([cut_spool(data, 0)])
    restart_at = ([0] + [c.end for c in first])[min(back, len(first))]
    second = cut_spool(data[restart_at:], restart_at)
    seen, mark = [], 0
    for batch in [b for c in (*first, second) for b in c.batches]:
        seen += [o for o in batch.offsets if o >= mark]
        mark = max(mark, batch.end)
    assert seen == [o for o, _, _, _ in whole]


def test_values_that_json_has_not() -> None:
    cut = cut_spool(as_line(["m", 1, 2, {"a": "NaN", "b": "-Infinity", "c": None, "d": 3}]), 0)
    row = {n: c[0] for n, c in cut.batches[0].metrics.items()}
    assert math.isnan(row["a"] or 0.0) and row["b"] == -math.inf and row["c"] is None and row["d"] == 3.0


def test_a_torn_last_line_waits_and_is_taken_at_the_end() -> None:
    data = as_line(["m", 1, 2, {"a": 1.0}]) + b'["m", 2, 3, {"a"'
    assert cut_spool(data, 0).end == data.index(b"\n") + 1
    final = cut_spool(data, 0, final=True)
    assert final.end == len(data) and final.unreadable == 1 and final.batches[0].steps == [1]


def test_an_endless_line_is_passed_over() -> None:
    assert cut_spool(b"x" * (MAX_LINE_BYTES - 1), 0).end == 0
    assert cut_spool(b"x" * MAX_LINE_BYTES, 0).end == MAX_LINE_BYTES


def test_batches_are_bounded_in_points_and_cells() -> None:
    data = b"".join(as_line(["m", i, i, {"a": 1.0}]) for i in range(MAX_POINTS + 10))
    assert [len(b.steps) for b in cut_spool(data, 0).batches] == [MAX_POINTS, 10]
    wide = b"".join(as_line(["m", i, i, {f"name{i}": 1.0}]) for i in range(1000))
    assert all(len(b.steps) * len(b.metrics) <= MAX_CELLS for b in cut_spool(wide, 0).batches)
    assert sum(len(b.steps) for b in cut_spool(wide, 0).batches) == 1000


def test_a_hundred_thousand_points_in_pieces_as_the_agent_reads_them() -> None:
    data = b"".join(as_line(["m", i, i, {"loss": 1.5}]) for i in range(100_000))
    assert sum(len(b.steps) for c in cut_all(data, [256 * 1024]) for b in c.batches) == 100_000


@settings(max_examples=examples(200))
@given(st.lists(st.binary(max_size=40), max_size=20), st.lists(st.integers(1, 60), min_size=1, max_size=4))
def test_logs_cut_anywhere_give_the_same_lines(lines: list[bytes], sizes: list[int]) -> None:
    data = b"\n".join(line.replace(b"\n", b"") for line in lines)
    whole, got, position, turn = cut_log(data, 0, final=True), [], 0, 0
    while position < len(data):
        end = min(len(data), position + sizes[turn % len(sizes)])
        cut = cut_log(data[position:end], position, final=end == len(data))
        if cut.end == position:
            cut = cut_log(data[position:], position, final=True)
        got += list(zip(cut.offsets, cut.lines, strict=True))
        position, turn = cut.end, turn + 1
    assert got == list(zip(whole.offsets, whole.lines, strict=True))


def test_over_long_lines_come_in_pieces_that_say_so() -> None:
    data = ("é" * 20_000).encode() + b"\nnext\n"
    cut = cut_log(data, 0)
    assert cut.lines[0].endswith(GOES_ON) and "�" not in "".join(cut.lines) and cut.lines[-1] == "next"
    assert "".join(line.removesuffix(GOES_ON) for line in cut.lines[:-1]) == "é" * 20_000


@pytest.mark.parametrize("shape", ['{"x":%s}', "%s", '{"x":{"y":%s}}'])
def test_an_event_that_is_nested_deeply_is_passed_over(shape: str) -> None:
    """What walks through it, or shows it as text, would end for want of stack, at each start of the agent again."""
    deep = shape % ("[" * 1000 + "1" + "]" * 1000)
    data = f'["e",{deep},{{}}]\n["e","CheckpointStarted",{deep}]\n["e","CheckpointStarted",{{"step":1,"x":{{"y":[{{}}]}}}}]\n'.encode()
    cut = cut_spool(data, 0)
    assert cut.unreadable == 2 and cut.end == len(data)
    assert [(event.name, event.fields) for event in cut.events] == [("CheckpointStarted", {"step": 1, "x": {"y": [{}]}})]


def test_a_redrawn_line_shows_its_last_drawing_and_lines_are_bounded() -> None:
    assert cut_log(b" 1%\r 50%\r100%\r\n", 0).lines == ["100%"]
    cut = cut_log(b"\n" * 10_000, 0)
    assert len(cut.lines) == loglines.MAX_LINES == cut.end


@pytest.mark.parametrize("own", [None, "", "x" * 600, "a\nb", 7])
def test_checkpoint_events_get_an_id_of_their_place_unless_they_bring_a_usable_one(own: object) -> None:
    fields = {"commit": 1, "step": 2, "uri": "s3://b/k", "bytes_total": 1, "bytes_new": 1, "job_id": "not mine", "more": 1}
    told = WHO.record_of(SpoolEvent(9, "CheckpointCompleted", fields, own), 5)  # type: ignore[arg-type]
    assert told is not None and isinstance(told[1], CheckpointCompleted)
    assert told[0] == CHECKPOINTS and told[1].job_id == "j" and told[1].at_ms == 5 and told[2] == "j:0:0:spool:9"
    assert WHO.record_of(SpoolEvent(9, "CheckpointCompleted", fields, "j:commit:1"), 5) == (CHECKPOINTS, told[1], "j:commit:1")
    assert WHO.record_of(SpoolEvent(9, "JobStatus", {}, None), 5) is None
    assert WHO.record_of(SpoolEvent(9, "CheckpointCompleted", {}, None), 5) is None
    assert WHO.progress({"step": "x"}) is None


def test_a_commit_told_again_keeps_the_numbers_of_the_attempt_that_made_it() -> None:
    who = replace(WHO, attempt=AttemptNumber(2), epoch=Epoch(3))
    fields = {"commit": 1, "step": 5, "uri": "u", "bytes_total": 1, "bytes_new": 1, "attempt": 1, "epoch": 2, "at_ms": 3}
    told = who.record_of(SpoolEvent(9, "CheckpointCompleted", fields, "j:commit:1"), 5)
    assert told is not None and isinstance(told[1], CheckpointCompleted)
    assert (told[1].attempt, told[1].epoch, told[1].at_ms) == (1, 2, 3)
    invented = who.record_of(SpoolEvent(9, "CheckpointCompleted", fields | {"epoch": 4}, "j:commit:1"), 5)
    assert invented is not None and isinstance(invented[1], CheckpointCompleted)
    assert (invented[1].attempt, invented[1].epoch) == (2, 3)
