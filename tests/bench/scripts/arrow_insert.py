"""Raw Arrow inserts of metric rows, in the engine alone: arrow_insert.py FOLDER ROWS JOBS.

Into a copy of the projector's table that feeds nothing, then into the table itself with all that is derived from it.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from trainhouse.projections.store.clickhouse import connect_embedded
from trainhouse.projections.store.migrate import migrate

BATCH = 200_000
folder, rows, jobs = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
writer = connect_embedded(folder, 2 * 1024**3, 2)
migrate(writer)


def batch(first: int, count: int) -> pa.Table:
    """Rows as the projector writes them: every column of step_metrics."""
    step = np.arange(first, first + count, dtype=np.uint64)
    names = pa.array([f"job-{n}" for n in range(jobs)])
    job = pa.DictionaryArray.from_arrays(pa.array(((step // 500) % jobs).astype(np.int32)), names)
    one = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array(["loss"]))
    node = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array(["bench"]))
    small = pa.array(np.zeros(count, np.uint32))
    return pa.table(
        {
            "job_id": job,
            "metric": one,
            "epoch": small,
            "attempt": small,
            "rank": small,
            "step": pa.array(step),
            "time": pa.array((1_795_000_000_000 + step.astype(np.int64) * 10), pa.timestamp("ms", "UTC")),
            "value": pa.array(8.0 / (step + 1.0)),
            "node_id": node,
            "source_partition": small,
            "source_offset": pa.array(step),
        }
    )


batches = [batch(first, min(BATCH, rows - first)) for first in range(0, rows, BATCH)]


def timed(table: str) -> float:
    """Rows/s of all batches into a table."""
    begin_s = time.perf_counter()
    for number, rows_of_batch in enumerate(batches):
        writer.insert(table, rows_of_batch, f"raw-{number}")
    elapsed_s = time.perf_counter() - begin_s
    if int(writer.rows(f"SELECT count() FROM {table}")[0][0]) != rows:
        raise SystemExit("rows are missing")
    return rows / elapsed_s


writer.command("CREATE TABLE bare AS step_metrics")
raw = timed("bare")
print(json.dumps({"rows_per_s": raw, "with_derived_per_s": timed("step_metrics")}), flush=True)
writer.close()
