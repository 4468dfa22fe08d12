"""Seconds of metrics: what a batch's points give each bucket, against the same worked out point by point."""

from __future__ import annotations

import math
import struct
from itertools import groupby
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from trainhouse.projections.ingest.builders.second_rollup import by_second

VALUES = st.one_of(st.floats(-1e6, 1e6), st.sampled_from([math.nan, math.inf, -math.inf, -0.0]))
POINTS = st.tuples(
    st.sampled_from("ab"),
    st.sampled_from(["loss", "lr"]),
    st.integers(0, 1),
    st.integers(0, 1),
    st.integers(0, 9),
    st.integers(0, 4000),
    VALUES,
)


def table(points: list[tuple[Any, ...]]) -> pa.Table:
    jobs, metrics, epochs, ranks, steps, times, values = zip(*points, strict=True)
    return pa.table(
        {
            "job_id": pa.array(jobs).dictionary_encode(),
            "metric": pa.array(metrics).dictionary_encode(),
            "epoch": pa.array(epochs, pa.uint32()),
            "rank": pa.array(ranks, pa.uint32()),
            "step": pa.array(steps, pa.uint64()),
            "time": pa.array(times, pa.timestamp("ms", "UTC")),
            "value": pa.array(values, pa.float64()),
        }
    )


@given(st.lists(POINTS, min_size=1, max_size=40))
def test_buckets_are_runs_of_points(points: list[tuple[Any, ...]]) -> None:
    found = by_second(table(points)).to_pylist()
    runs = [list(group) for _, group in groupby(points, key=lambda p: (*p[:4], p[5] // 1000))]
    assert len(found) == len(runs)
    for row, run in zip(found, runs, strict=True):
        values = [p[6] for p in run]
        numbers = [v for v in values if not math.isnan(v)]
        finite = [v for v in values if math.isfinite(v)]
        assert (row["job_id"], row["metric"], row["epoch"], row["rank"]) == run[0][:4]
        assert (row["time"], row["first_step"], row["points"], row["finite"]) == (
            run[0][5] // 1000,
            min(p[4] for p in run),
            len(run),
            len(finite),
        )
        assert row["min_value"] == (min(numbers) if numbers else None)
        assert row["max_value"] == (max(numbers) if numbers else None)
        assert math.isclose(row["sum_value"], math.fsum(finite), rel_tol=1e-9, abs_tol=1e-6)
        last = max((p[2], p[4], p[5], struct.unpack("<Q", struct.pack("<d", p[6]))[0]) for p in run)
        bits, time, step, epoch = struct.unpack("<4Q", row["last"])
        assert (epoch, step, time, bits) == last
