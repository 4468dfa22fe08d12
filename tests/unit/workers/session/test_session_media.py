"""Images, tables, histograms, texts and audio of a session: stored beside training, whole or not at all, and never in a step's way."""

from __future__ import annotations

import hashlib
import io
import itertools
import re
import threading
import time
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import torch
from PIL import Image as Pillow

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.waiting import until
from tests.unit.workers.session.test_session_boundary import lines
from trainhouse.checkpointing.errors import ObjectStoreUnavailableError
from trainhouse.events.model.media import MEDIA_PATH, MediaRecorded
from trainhouse.events.wire.topics import ENVIRONMENTS
from trainhouse.workers import Audio, Histogram, Image, Table, Text
from trainhouse.workers.agent.core.spool import SpoolEvent
from trainhouse.workers.agent.core.telemetry import RankIdentity
from trainhouse.workers.session import Context
from trainhouse.workers.session.errors import InvalidUseError
from trainhouse.workers.session.logging.sink import open_sink
from trainhouse.workers.session.media import media_log, values
from trainhouse.workers.session.process_groups import Gang
from trainhouse.workers.session.saving.checkpoint_saver import Unsaved
from trainhouse.workers.session.session import Session


class Store(MemoryObjectStore):
    """Fails as often as it is told to, and holds puts back until `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[Exception] = []
        self.go = threading.Event()
        self.go.set()

    def put_if_absent(self, key: str, data: Any) -> bool:
        assert self.go.wait(60)
        if self.failures:
            raise self.failures.pop()
        return super().put_if_absent(key, data)


class Run:
    """A session of rank 0 of job j."""

    def __init__(self, folder: Path, job_id: str | None = "j") -> None:
        self.rank = folder / "rank-0"
        self.rank.mkdir()
        self.store = Store()
        context = Context(job_id=job_id, epoch=3, spool=self.rank / "spool.jsonl", rank_folders=(self.rank,), step_figures=False)
        self.session = Session(context, Gang(context), open_sink(context), Unsaved())
        self.session._media._store = lambda: self.store

    def recorded(self) -> list[dict[str, Any]]:
        return [event[2] for event in lines(self.rank, "e") if event[1] == "MediaRecorded"]

    def stored(self) -> list[tuple[str, bytes]]:
        """Paths without their times, and contents, of what was logged until now."""
        assert self.session._media.close(60)
        return [
            (re.sub(r"timestamp\+\d+", "timestamp+T", one["path"]), self.store.get(f"artifacts/j/{one['sha256']}"))
            for one in self.recorded()
        ]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    found = Run(tmp_path)
    yield found
    found.store.go.set()
    found.session.close()


def pixels(content: bytes) -> Any:
    return np.asarray(Pillow.open(io.BytesIO(content)))


def test_each_kind_is_a_file_whose_name_says_kind_key_and_step(run: Run) -> None:
    grey = torch.tensor([[0.0, 0.5], [1.0, 2.0]], dtype=torch.bfloat16)
    for step in run.session.steps(8):
        if step == 7:
            run.session.log(
                {
                    "eval/samples": [Image(grey), Image(np.full((3, 2, 2), 255, np.uint8))],
                    "answers": Table(["q", "n"], [["a", np.int64(1)], ["b", float("nan")]]),
                }
            )
            run.session.log(loss=0.5, weights=Histogram(torch.tensor([0.0, 1.0, 1.0, float("nan")]), bins=2), said=Text("hé <script>"))
            run.session.log(tone=Audio(torch.tensor([[0.0, 1.0, -1.0], [0.0, 0.5, 0.0]]), 16_000))
    found = dict(run.stored())
    assert list(found) == [
        "images/eval~samples+step+7+timestamp+T+0-0.png",
        "images/eval~samples+step+7+timestamp+T+0-1.png",
        "tables/answers+step+7+timestamp+T+0-0.json",
        "histograms/weights+step+7+timestamp+T+0-0.json",
        "texts/said+step+7+timestamp+T+0-0.txt",
        "audio/tone+step+7+timestamp+T+0-0.wav",
    ]
    first, second, table, histogram, text, audio = found.values()
    assert pixels(first).tolist() == [[0, 128], [255, 255]] and pixels(second).shape == (2, 2, 3)
    assert orjson.loads(table) == {"columns": ["q", "n"], "data": [["a", 1], ["b", None]]}
    assert orjson.loads(histogram) == {"edges": [0.0, 0.5, 1.0], "counts": [1, 2], "not_finite": 1}
    assert text.decode() == "hé <script>"
    with wave.open(io.BytesIO(audio)) as file:
        assert (file.getnchannels(), file.getframerate(), file.getnframes()) == (2, 16_000, 3)
        assert np.frombuffer(file.readframes(3), "<i2").tolist() == [0, 0, 32767, 16383, -32767, 0]
    assert [point[3] for point in lines(run.rank, "m") if "loss" in point[3]] == [{"loss": 0.5}]


def test_what_a_rank_reports_is_an_event_of_its_own_job_and_rank(run: Run) -> None:
    run.session.log({"a b": Text("x")}, step=41)
    run.stored()
    (line,) = [event for event in lines(run.rank, "e") if event[1] == "MediaRecorded"]
    topic, event, own_id = RankIdentity("j", 0, 3, "n", "p", 0).record_of(SpoolEvent(0, line[1], line[2], line[3]), 1) or ("", None, "")  # type: ignore[arg-type]
    assert topic == ENVIRONMENTS and isinstance(event, MediaRecorded) and own_id == line[3]
    named = re.fullmatch(MEDIA_PATH, event.path)
    assert named is not None and named.groups()[:3] == ("texts", "a b", "41") and event.is_of_rank()
    assert not event.model_copy(update={"rank": 1}).is_of_rank()
    assert not event.model_copy(update={"uri": f"s3://b/artifacts/other/{event.sha256}"}).is_of_rank()
    assert event.sha256 == hashlib.sha256(b"x").hexdigest()


def test_a_step_waits_for_copies_alone_and_they_are_of_that_moment(run: Run) -> None:
    run.store.go.clear()
    array = np.zeros((2, 2), np.uint8)
    for _ in range(5):
        run.session.log(seen=Image(array))
    array[:] = 200
    assert not run.recorded() and not run.session._media.close(0)
    run.store.go.set()
    assert all(not pixels(content).any() for _, content in run.stored()) and len(run.recorded()) == 5


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Image(np.zeros((2, 2, 7))), r"shape \(2, 2, 7\) is no image"),
        (lambda: Image(np.zeros((0, 2))), "is no image"),
        (lambda: Image(np.array([["a", "b"]])), "give numbers"),
        (lambda: Table([f"c{n}" for n in range(10_000)], []), "10000 columns, and a table has 1 to 1000"),
        (lambda: Table(["a", "b"], [[1]]), "row 0 has 1 values for 2 columns"),
        (lambda: Table("ab"), "give columns and rows"),
        (lambda: Histogram([1, 2], edges=[0, 1]), "one edge more"),
        (lambda: Histogram([1.0, 2.0], edges=[0, 1, 1]), "edges rise"),
        (lambda: Audio(np.zeros((9, 9)), 8000), "is no sound"),
        (lambda: Audio(np.zeros(9), 0), "samples a second"),
        (lambda: Text(3), "give a str"),  # type: ignore[arg-type]
    ],
)
def test_a_value_of_no_such_shape_is_refused_where_it_is_made(make: Any, why: str) -> None:
    with pytest.raises(InvalidUseError, match=why):
        make()


@pytest.mark.parametrize("key", ["", "../../etc/passwd", "a/../b", "/a", "a//b", "a%2f", "a+b", "k" * 201, "ключ", "a\nb", "."])
def test_a_key_that_no_file_may_have_is_refused(run: Run, key: str) -> None:
    with pytest.raises(InvalidUseError, match="a key of images"):
        run.session.log({key: Text("x")})
    assert not run.recorded()


def test_a_key_of_200_characters_is_one(run: Run) -> None:
    run.session.log({"k" * 200: Text("x")})
    assert [path.split("+")[0] for path, _ in run.stored()] == ["texts/" + "k" * 200]


def test_what_cannot_be_drawn_or_is_too_large_is_dropped_counted_and_training_goes_on(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run.session.log(bad=Image(np.full((2, 2), np.nan)))
    run.session.log(giant=Image(np.zeros((5000, 5000), np.uint8)))
    run.session.log(huge=Image(torch.empty(20_000, 20_000, device="meta")))
    run.session.log(noise=Audio(np.array([0.0, np.inf]), 8000))
    run.session.log(fine=Text("x"))
    assert [path.split("+")[0] for path, _ in run.stored()] == ["texts/fine"]
    assert run.session._media.dropped == 4
    said = capsys.readouterr().err
    assert "giant" in said and "25000000 pixels, and may have 16777216" in said and "MiB may wait" not in said.split("giant")[0]
    assert "(1 so far)" in said and "4 logged images, tables or others were dropped in all" in said


def test_more_than_a_step_may_log_is_dropped(run: Run) -> None:
    run.session.log(many=[Text(str(n)) for n in range(150)])
    run.session.log({"next": Text("x")}, step=1)
    assert len(run.stored()) == 101 and run.session._media.dropped == 50


def test_what_waits_is_bounded(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media_log, "MOST_WAITING_BYTES", 160 << 10)
    run.store.go.clear()
    for _ in range(10):  # of small ones, the number
        run.session.log(x=Image(np.zeros((10, 10), np.uint8)), y=Histogram([1], edges=[0, 1]))
    run.store.go.set()
    assert len(run.stored()) == 10 and run.session._media.dropped == 10


def test_a_rank_that_is_killed_before_the_content_is_there_reports_nothing(run: Run) -> None:
    run.store.go.clear()
    run.session.log(x=Text("never"))
    assert not run.session._media.close(0) and not run.recorded() and not list(run.store.list("artifacts/"))
    run.store.go.set()
    (one,) = run.stored()
    assert one[1] == b"never"


def test_an_outage_is_tried_again_and_one_that_lasts_drops_what_was_logged(run: Run) -> None:
    run.store.failures = [ObjectStoreUnavailableError("away")] * 2
    run.session.log(x=Text("late"))
    assert [content for _, content in run.stored()] == [b"late"]
    run.store.failures = [ObjectStoreUnavailableError("away")] * 3
    run.session.log(x=Text("lost"))
    run.session.log(x=Text("after"))
    assert [content for _, content in run.stored()] == [b"late", b"after"] and run.session._media.dropped == 1


def test_a_step_of_its_own_is_for_media_alone(run: Run) -> None:
    for wrong in (-1, 2**32, 1.5, True):
        with pytest.raises(InvalidUseError, match="give a step"):
            run.session.log({"x": Text("x")}, step=wrong)
    with pytest.raises(InvalidUseError, match="metrics are of the current step"):
        run.session.log({"x": Text("x"), "loss": 1.0}, step=3)
    run.session.log(step=5.0)  # a metric of that name, as ever
    with pytest.raises(TypeError, match="metric 'x' is list"):
        run.session.log(x=[1, 2])


def test_a_long_table_keeps_its_first_rows_and_a_long_text_its_first_characters(run: Run) -> None:
    run.session.log(t=Table({"n": list(range(10_100))}), s=Text("y" * 1_000_010))
    table, text = (content for _, content in run.stored())
    found = orjson.loads(table)
    assert len(found["data"]) == 10_000 and found["left_out_rows"] == 100 and len(text.decode()) == 1_000_001


def test_outside_of_trainhouse_files_are_below_artifacts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outside = Run(tmp_path, None)
    outside.session.log({"a/b": Text("x")})
    until(lambda: [p for p in (tmp_path / "artifacts" / "texts").glob("a~b+step+0+*.txt") if p.read_text() == "x"])
    outside.session.close()


def test_a_figure_of_matplotlib_and_an_image_of_pillow_are_images(run: Run) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1, 1), dpi=50)
    figure.add_subplot().plot([1, 2])
    run.session.log(f=Image(figure), p=Image(Pillow.new("CMYK", (3, 2))))
    (_, drawn), (_, converted) = run.stored()
    assert pixels(drawn).shape[:2] == (50, 50) and pixels(converted).shape == (2, 3, 3)


def test_a_histogram_of_one_value_and_of_none_that_is_finite(run: Run) -> None:
    run.session.log(a=Histogram(np.full(9, 3.0), bins=4), b=Histogram(np.full(2, np.inf)), c=Histogram([3, 1], edges=[0, 1, 2]))
    same, none, given = (orjson.loads(content) for _, content in run.stored())
    assert sum(same["counts"]) == 9 and same["edges"][0] < 3 < same["edges"][-1]
    assert none["not_finite"] == 2 and given == {"edges": [0.0, 1.0, 2.0], "counts": [3.0, 1.0], "not_finite": 0}


def test_a_table_weighs_what_its_texts_do() -> None:
    assert Table(["a"], [["x" * 9000]] * 100).staged_bytes > 900_000
    assert Table(["a"], [[1]]).staged_bytes < 100


@pytest.mark.parametrize(
    "counted",
    [lambda v, bins: values._counted(np.array(v), bins), lambda v, b: values._counted_there(torch.tensor(v, dtype=torch.float64), b)],
)
@pytest.mark.parametrize(
    "given", [[-1e308, 0.0, 1e308], [1.0, 1.0, np.nextafter(1.0, 2.0)], [1.7976931348623157e308] * 3, [0.0, 5e-324, 0.0]]
)
def test_a_histogram_of_values_far_apart_or_next_to_each_other_has_finite_bins(counted: Any, given: list[float]) -> None:
    found = counted([*given, np.inf], 64)
    assert sum(found["counts"]) == 3 and found["not_finite"] == 1 and len(found["edges"]) == len(found["counts"]) + 1
    assert np.isfinite(found["edges"]).all() and all(low < high for low, high in itertools.pairwise(found["edges"]))


def test_a_histogram_counted_on_a_device_is_that_of_main_memory_and_deterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    # Under deterministic algorithms histc raises on CUDA alone.
    monkeypatch.setattr(torch, "histc", lambda *_: pytest.fail("histc is not deterministic on CUDA"))
    tensor = torch.tensor([0.0, 0.3, 0.5, 0.9, 2.0, float("nan"), -2.0])
    torch.use_deterministic_algorithms(True)
    try:
        found = values._counted_there(tensor, 8)
    finally:
        torch.use_deterministic_algorithms(False)
    assert found == values._counted(tensor.numpy(), 8) and found["counts"] == [1, 0, 0, 0, 2, 2, 0, 1]
    wide = torch.tensor([-3e38, 0.0, 3e38])
    assert values._counted_there(wide, 2)["counts"] == [1, 2] and values._counted_there(torch.tensor([0.0, 1e-45]), 2)["counts"] == [2]


def test_a_column_whose_name_is_half_of_a_surrogate_pair_has_one_all_the_same(run: Run) -> None:
    run.session.log(t=Table(["a\ud800"], [["b\ud800"]]))
    ((_, content),) = run.stored()
    assert orjson.loads(content) == {"columns": ["a?"], "data": [["b?"]]}


def test_a_key_that_is_no_text_is_refused_as_a_wrong_use(run: Run) -> None:
    with pytest.raises(InvalidUseError, match="a key of images"):
        run.session.log({1: Text("x")})  # type: ignore[dict-item]


def test_what_ends_with_a_session_has_one_deadline(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def close(wait_s: float) -> bool:
        waits.append(wait_s)
        until(lambda: time.monotonic() > began_s + 0.02 * len(waits))
        return True

    began_s = time.monotonic()
    for part in (run.session._boundary.trace, run.session._artifacts, run.session._media):
        monkeypatch.setattr(part, "close", close)
    run.session.close()
    assert len(waits) == 3 and waits[0] > waits[1] > waits[2]
