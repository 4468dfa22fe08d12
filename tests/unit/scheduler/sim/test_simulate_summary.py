"""The numbers of a simulation, by hand and against numpy; and the Parquet file of its jobs."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhouse.scheduler.sim.parquet import JobsFile
from trainhouse.scheduler.sim.summary import by_size, jain_index, percentile, summarize
from trainhouse.scheduler.sim.types import JobRow, SimResult


def row(job_id: str, tenant: str, gpus: int, submit_s: int, wait_s: int, run_s: int) -> JobRow:
    end_s = submit_s + wait_s + run_s
    return JobRow(job_id, tenant, "", gpus, submit_s, run_s, submit_s + wait_s, end_s, wait_s, wait_s + run_s, run_s, 1)


def result(rows: list[JobRow], policy: str = "p") -> SimResult:
    last_s = max((r.end_s or 0 for r in rows), default=0)
    return SimResult(policy, rows, [], [], ("n0",), 0, last_s, 50.0, 200.0, 3, 1, 2, 77, 9, 0.5)


def test_a_summary_by_hand() -> None:
    rows = [row("a", "x", 1, 0, 0, 100), row("b", "x", 8, 0, 100, 100), row("c", "y", 16, 10, 300, 100)]
    rows += [JobRow("d", "y", "", 999, 0, 1, refused="too big"), JobRow("e", "y", "", 1, 0, 1)]
    found = summarize(result(rows))
    assert (found.jobs, found.finished, found.refused, found.unfinished) == (5, 3, 1, 1)
    assert found.times.mean_jct_s == pytest.approx((100 + 200 + 400) / 3)
    assert (found.times.mean_wait_s, found.times.p50_wait_s) == (pytest.approx(400 / 3), 100)
    assert found.utilization == 0.25
    assert found.big_gangs.jobs == 2 and found.big_gangs.p50_wait_s == 200
    assert found.fairness.worst_wait_tenant == "y" and found.fairness.worst_slowdown == 4
    assert found.fairness.jain_slowdown == pytest.approx((1.5 + 4) ** 2 / (2 * (1.5**2 + 4**2)))
    assert list(found.by_size) == ["1", "5-8", "9-16"]


def test_json_has_the_names_that_were_promised() -> None:
    names = "jobs mean_jct_s mean_wait_s p50_wait_s p95_wait_s p99_wait_s makespan_s utilization preemptions lost_gpu_s wall_s fairness"
    found = summarize(result([row("a", "x", 1, 0, 5, 100)])).as_json()
    assert set(names.split()) <= set(found)
    assert found["jobs"] == 1 and "x" in found["fairness"]["tenants"]


def test_nothing_at_all_is_all_zero() -> None:
    found = summarize(result([]))
    assert (found.times.mean_jct_s, found.times.p99_wait_s, found.fairness.jain_slowdown) == (0, 0, 1)


def test_a_short_job_does_not_rule_the_slowdown() -> None:
    assert summarize(result([row("a", "x", 1, 0, 9, 1)])).times.mean_slowdown == 1


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=60), st.sampled_from([0, 50, 95, 99, 100]))
def test_percentiles_are_numpys(values: list[int], percent: int) -> None:
    assert percentile(sorted(values), percent) == pytest.approx(float(np.percentile(values, percent)), rel=1e-12)


@given(st.lists(st.floats(0.001, 1e6), min_size=1, max_size=20))
def test_jains_index_is_between_one_nth_and_one(values: list[float]) -> None:
    assert 1 / len(values) - 1e-9 <= jain_index(values) <= 1 + 1e-9


@given(st.lists(st.integers(1, 65_536), max_size=30))
def test_every_size_is_in_one_class(sizes: list[int]) -> None:
    found = by_size([row(str(n), "", gpus, 0, 0, 1) for n, gpus in enumerate(sizes)])
    assert sum(map(len, found.values())) == len(sizes)


def test_parquet_has_one_row_a_job_and_policy(tmp_path: Path) -> None:
    rows = [row("a", "x", 1, 0, 5, 100), JobRow("b", "y", "u", 9, 3, 1, refused="too big")]
    with JobsFile(tmp_path / "jobs.parquet") as file:
        file.write("fifo", rows)
        file.write("fair", rows[:1])
        file.write("none", [])
    table = pq.read_table(tmp_path / "jobs.parquet")
    assert table.num_rows == 3
    assert table["policy"].to_pylist() == ["fifo", "fifo", "fair"]
    second = table.to_pylist()[1]
    assert (second["end_s"], second["refused"], second["gpus"], second["user"]) == (None, "too big", 9, "u")
