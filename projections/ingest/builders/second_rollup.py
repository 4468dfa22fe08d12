"""Points of metrics by second: the rows that a batch of points gives `step_metrics_1s`, from columns to columns.

Why here and not by a view of the engine: a batch's points stand in runs of one metric and rank, so that buckets are slices, and numpy takes
a tenth of the time of the engine's grouping by five columns. The coarser levels are views of this one.
Holds: what the buckets of several batches add up to is what the points say (rollups.py makes the same of the points in SQL).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

TABLE = "step_metrics_1s_rows"
Array = npt.NDArray[Any]


def by_second(points: pa.Table) -> pa.Table:
    """The buckets of a table of points: one row a run of points of one job, metric, epoch, rank and second."""
    points = points.combine_chunks()
    seconds = points["time"].cast(pa.int64()).to_numpy() // 1000
    begins = _begins([*(_codes(points[name]) for name in ("job_id", "metric", "epoch", "rank")), seconds])
    counts = np.diff(np.append(begins, len(seconds)))
    steps, values = points["step"].to_numpy(), points["value"].to_numpy()
    finite = np.isfinite(values)
    least, most = np.fmin.reduceat(values, begins), np.fmax.reduceat(values, begins)
    rows = points.select(["job_id", "metric", "epoch", "rank"]).take(pa.array(begins))
    for name, column in (
        ("time", pa.array(seconds[begins].astype(np.uint32))),
        ("first_step", pa.array(np.minimum.reduceat(steps, begins))),
        ("last", _last(points, begins, counts)),
        ("min_value", pa.array(least, mask=np.isnan(least))),
        ("max_value", pa.array(most, mask=np.isnan(most))),
        ("sum_value", pa.array(np.add.reduceat(np.where(finite, values, 0.0), begins))),
        ("finite", pa.array(np.add.reduceat(finite.astype(np.uint64), begins))),
        ("points", pa.array(counts.astype(np.uint64))),
    ):
        rows = rows.append_column(name, column)
    return rows


def _codes(column: pa.ChunkedArray) -> Array:
    """Numbers that differ where the values do."""
    chunk = column.chunk(0)
    codes: Array = (chunk.indices if pa.types.is_dictionary(chunk.type) else chunk).to_numpy()
    return codes


def _begins(columns: list[Array]) -> Array:
    """Indexes of rows that differ from the one before in any column; the first row is always one."""
    changed = np.zeros(len(columns[0]), dtype=bool)
    changed[0] = True
    for column in columns:
        changed[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changed)


def _last(points: pa.Table, begins: Array, counts: Array) -> pa.Array:
    """The largest (epoch, step, time, value's bits) of each bucket as 256 bits, little-endian: what the engine takes for a UInt256."""
    steps, times = points["step"].to_numpy(), points["time"].cast(pa.int64()).to_numpy().astype(np.uint64)
    bits = points["value"].to_numpy().view(np.uint64)
    step = np.maximum.reduceat(steps, begins)
    here = steps == np.repeat(step, counts)
    time = np.maximum.reduceat(np.where(here, times, 0), begins)
    here &= times == np.repeat(time, counts)
    value = np.maximum.reduceat(np.where(here, bits, 0), begins)
    packed = np.stack([value, time, step, points["epoch"].to_numpy()[begins].astype(np.uint64)], axis=1).astype("<u8")
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(32), len(begins), [None, pa.py_buffer(packed.tobytes())])
