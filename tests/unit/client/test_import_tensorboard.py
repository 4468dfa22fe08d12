"""TensorBoard's event files as tracked runs, written by TensorBoard's own writer; a second reading adds nothing."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.tables.senders import senders_of
from trainhouse.client.tensorboard import TensorBoardImport
from trainhouse.events import Event, StepMetrics, envelope_of
from trainhouse.events.model.tracking import ParametersLogged, TrackedRunBegun, TrackedRunChanged
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.topics import TRACKED_METRICS
from trainhouse.projections.ingest.builders.step_metrics import MetricsBuilder
from trainhouse.projections.record import Record

writers = pytest.importorskip("torch.utils.tensorboard")


class Topics:
    """What was sent, and how ingestion takes it: with marks."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.values: list[tuple[str, str, int, float]] = []
        self._marks: dict[str, int] = {}

    def send(self, topic: str, event: Event, event_id: str) -> None:
        self.events.append(event)
        if topic != TRACKED_METRICS:
            return
        value = encode(envelope_of(event, id=event_id, source="test", now_ms=0))
        record = Record(topic, 0, len(self.events), 0, b"k", value)
        builder = MetricsBuilder(pa.schema([]), senders_of())
        before = {stream: self._marks.get(stream, 0) for stream in builder.streams([record])}
        built = builder.build([record], before)
        assert not built.unreadable
        self._marks |= built.marks
        rows = built.tables["step_metrics"].to_pylist() if built.tables else []
        self.values += [(r["job_id"], r["metric"], r["step"], r["value"]) for r in rows]

    def of(self, kind: type[Event]) -> list[Event]:
        return [e for e in self.events if isinstance(e, kind)]


def write(folder: Path, steps: range) -> None:
    with writers.SummaryWriter(str(folder), filename_suffix=".fixed") as writer:
        for step in steps:
            writer.add_scalar("train/loss", 1.0 / (step + 1), step)
            writer.add_scalar("lr", 0.1, step)
        writer.add_text("note", "no scalar")


def reading(folder: Path, topics: Topics) -> TensorBoardImport:
    return TensorBoardImport(folder, "vision/tb", "mine", "ada", topics.send)


def test_scalars_become_points_of_a_tracked_run(tmp_path: Path) -> None:
    write(tmp_path, range(50))
    topics = Topics()
    found = reading(tmp_path, topics).read()
    assert (found.points, found.passed_over, len(found.runs)) == (100, 0, 1)
    begun, ended = topics.of(TrackedRunBegun)[0], topics.of(TrackedRunChanged)[0]
    assert isinstance(begun, TrackedRunBegun) and isinstance(ended, TrackedRunChanged)
    assert (begun.name, begun.project, begun.experiment, begun.client) == ("mine", "vision", "vision/tb", "tensorboard")
    assert begun.started_at_ms <= (ended.ended_at_ms or 0)
    losses = [(step, value) for _, metric, step, value in topics.values if metric == "train/loss"]
    assert losses == [(n, pytest.approx(1.0 / (n + 1))) for n in range(50)]


def test_a_second_reading_adds_nothing_and_a_grown_folder_what_is_new(tmp_path: Path) -> None:
    write(tmp_path, range(30))
    topics = Topics()
    first = reading(tmp_path, topics).read()
    held = list(topics.values)
    again = reading(tmp_path, topics).read()
    assert again.points == first.points and again.runs == first.runs and topics.values == held
    following = reading(tmp_path, topics)
    following.read(ended=False)
    write(tmp_path / "eval", range(5))
    write(tmp_path, range(30, 40))
    assert following.read(ended=False).points == 30
    assert len(topics.values) == len(set(topics.values)) == 90
    assert following.read().points == 0


def test_a_reading_that_was_interrupted_loses_no_point(tmp_path: Path) -> None:
    write(tmp_path, range(30))
    topics = Topics()
    following = reading(tmp_path, topics)
    following.read(ended=False)
    write(tmp_path, range(30, 40))
    sends = following._send
    following._send = interrupted
    with pytest.raises(KeyboardInterrupt):
        following.read(ended=False)
    following._send = sends
    following.read(ended=True)
    assert len(topics.values) == len(set(topics.values)) == 80


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_file_that_grows_under_a_reader_goes_on_where_it_was(tmp_path: Path) -> None:
    topics = Topics()
    writer = writers.SummaryWriter(str(tmp_path))
    following = reading(tmp_path, topics)
    for step in range(20):
        writer.add_scalar("loss", math.nan if step == 3 else step, step)
        if step % 5 == 4:
            writer.flush()
            following.read(ended=False)
    writer.close()
    reading(tmp_path, topics).read()
    assert [step for _, _, step, _ in topics.values] == list(range(20)) and math.isnan(topics.values[3][3])


def test_hyperparameters_become_parameters(tmp_path: Path) -> None:
    with writers.SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("loss", 1.0, 0)
        writer.add_hparams({"lr": 0.5, "name": "a"}, {"hparam/acc": 1.0}, run_name="h")
    topics = Topics()
    reading(tmp_path, topics).read()
    logged = topics.of(ParametersLogged)[0]
    assert isinstance(logged, ParametersLogged) and logged.parameters == {"lr": "0.5", "name": "a"}


def test_what_cannot_be_kept_is_counted(tmp_path: Path) -> None:
    with writers.SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("loss", 1.0, 1)
        writer.add_scalar("loss", 1.0, -1)
    topics = Topics()
    found = reading(tmp_path, topics).read()
    assert (found.points, found.passed_over) == (1, 1)
    assert [e.steps for e in topics.of(StepMetrics) if isinstance(e, StepMetrics)] == [(1,)]
