"""Plots of a simulation: bounded, whole, readable files; and the arithmetic behind them."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhouse.scheduler.sim import drawing, gantt, plots
from trainhouse.scheduler.sim.summary import summarize
from trainhouse.scheduler.sim.types import JobRow, Point, Segment, SimNode, SimResult

NODES = [SimNode("n0", 8), SimNode("n1", 4)]


def result(policy: str, jobs: int = 40) -> SimResult:
    rows = [JobRow(f"j{n}", "t", "", 1 << n % 7, n, 60, n + n % 9, n + n % 9 + 60, n % 9, 60 + n % 9, 60, 1) for n in range(jobs)]
    segments = [Segment(f"j{n}", f"n{n % 2}", 0b1011, 10 * n, 10 * n + 10) for n in range(jobs)]
    timeline = [Point(10 * n, 10 * n + 10, n % 12, 12, n % 5, n % 7) for n in range(jobs)]
    return SimResult(policy, rows, segments, timeline, ("n0", "n1"), 0, 10 * jobs, 100.0, 400.0)


def test_every_plot_is_written_twice_and_the_same_each_time(tmp_path: Path) -> None:
    results = [result(f"policy {n}") for n in range(10)]
    found: dict[str, bytes] = {}
    for _ in range(2):
        paths = [*plots.utilization(results, tmp_path, "a test"), *plots.queue(results, tmp_path, "a test")]
        paths += plots.waits_by_size([summarize(r) for r in results], tmp_path, "a test")
        paths += gantt.gantt(results[0], NODES, tmp_path, "a test")
        assert sorted({p.suffix for p in paths}) == [".png", ".svg"] and len(paths) == 8
        for path in paths:
            data = path.read_bytes()
            assert data.startswith(b"\x89PNG") or b"<svg" in data
            assert found.setdefault(path.name, data) == data
    text = (tmp_path / "utilization.svg").read_text()
    assert "policy 9 (mean 25.0 %)" in text and "share of GPUs in service" in text
    assert (tmp_path / "gantt_policy_0.svg").exists()


def test_a_result_without_anything_still_draws(tmp_path: Path) -> None:
    empty = SimResult("none", [], [], [], ("n0",), 0, 0, 0.0, 0.0)
    plots.utilization([empty], tmp_path, "nothing")
    plots.queue([empty], tmp_path, "nothing")
    plots.waits_by_size([summarize(empty)], tmp_path, "nothing")
    gantt.gantt(empty, NODES, tmp_path, "nothing")


def test_a_gantt_chart_has_bounded_bars_and_says_what_it_leaves_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gantt, "MAX_BARS", 10)
    gantt.gantt(result("p"), NODES, tmp_path, "a test")
    text = (tmp_path / "gantt_p.svg").read_text()
    assert "10 of 80 bars, 16.6 % of the device time in use" in text


def test_without_matplotlib_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    real = builtins.__import__

    def absent(name: str, *rest: object, **more: object) -> object:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(drawing.PlotsMissingError, match=r"trainhouse\[sim\].*--no-plots"):
        drawing.figure(1, 1)


@given(st.integers(0, 2**70))
def test_runs_are_the_set_bits(devices: int) -> None:
    found = list(gantt.runs(devices))
    assert sum(((1 << count) - 1) << first for first, count in found) == devices
    assert all(first + count < after for (first, count), (after, _) in pairwise(found))


@given(st.lists(st.tuples(st.integers(1, 50), st.floats(0, 100)), min_size=1, max_size=1000))
def test_thinned_lines_are_bounded_and_keep_the_area(widths: list[tuple[int, float]]) -> None:
    points, at = [], 0
    for width, level in widths:
        points.append(Point(at, at + width, level, 100, level, level))
        at += width
    thin = plots.thin(points)
    assert len(thin) <= plots.MAX_POINTS
    assert (thin[0].from_s, thin[-1].to_s) == (0, at)
    area = sum(p.busy * (p.to_s - p.from_s) for p in points)
    assert sum(p.busy * (p.to_s - p.from_s) for p in thin) == pytest.approx(area, rel=1e-9, abs=1e-6)


def test_names_of_files_are_safe() -> None:
    assert gantt.file_part("my/../policy é") == "my_.._policy__"
